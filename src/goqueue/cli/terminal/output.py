"""Standard output: styled lines with colours on a terminal and plain to a pipe, JSON documents, and raw bytes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec
import typer

Span = tuple[str, str]
"""A text and its style; the style is ignored where output has no colours."""
Line = list[Span]


def plain_text(lines: Iterable[Line]) -> str:
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def print_json(answer: object) -> None:
    """Print an answer for programs: JSON, indented, always in UTF-8."""
    typer.echo(msgspec.json.format(msgspec.json.encode(answer, enc_hook=str), indent=2))


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines on standard output, unbuffered, so that a reader of a pipe sees them at once."""
    if not sys.stdout.isatty():
        # Keys and reasons may have characters that the pipe's encoding lacks.
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        typer.echo(plain_text(lines).encode(encoding, "backslashreplace").decode(encoding))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line in lines:
        # Lines already have their final width.
        console.print(Text.assemble(*line), soft_wrap=True)


def print_answer(answer: object, lines: str | Iterable[Line], *, as_json: bool) -> int:
    """Print an answer as JSON, or as the text or lines made of it; return the exit status of success."""
    if as_json:
        print_json(answer)
    elif isinstance(lines, str):
        typer.echo(lines)
    else:
        print_lines(lines)
    return 0


class JsonList:
    """Prints the same text as ``print_json`` for the whole document. Prints nothing before ``begin``,
    ``add`` or ``end``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._count = 0
        self.is_begun = False

    def begin(self, fields: Mapping[str, object] | None = None) -> None:
        """Print the fields in front of the list, and open the list."""
        self.is_begun = True
        typer.echo("{\n" + "".join(f"  {_field(*each)},\n" for each in (fields or {}).items()), nl=False)
        typer.echo(f"  {_json(self._name)}: [", nl=False)

    def add(self, items: Iterable[object]) -> None:
        if not self.is_begun:
            self.begin()
        for item in items:
            typer.echo(("," if self._count else "") + "\n    ", nl=False)
            typer.echo(_json(item, 4).encode(), nl=False)
            self._count += 1

    def end(self, fields: Mapping[str, object]) -> None:
        """Close the list, and print the fields behind it."""
        if not self.is_begun:
            self.begin()
        typer.echo("\n  ]" if self._count else "]", nl=False)
        typer.echo("".join(f",\n  {_field(*each)}" for each in fields.items()) + "\n}")


def _field(name: str, value: object) -> str:
    return f"{_json(name)}: {_json(value, 2)}"


def _json(value: object, indent: int = 0) -> str:
    # Strings hold no line breaks: JSON writes them as escapes.
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode().replace("\n", "\n" + " " * indent)


def discard_output() -> None:
    """Redirect standard output to /dev/null, so that Python does not flush a closed pipe at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_bytes(output: bytes) -> None:
    """Write and flush all of ``output``. Under PYTHONUNBUFFERED a signal may cut a write short; the rest is then
    written."""
    left = memoryview(output)
    while left:
        left = left[sys.stdout.buffer.write(left) or 0 :]
    sys.stdout.buffer.flush()


def write_text(text: str) -> None:
    """Write and flush all of ``text``. Characters that the output's encoding lacks are escaped."""
    write_bytes(text.encode(getattr(sys.stdout, "encoding", None) or "utf-8", "backslashreplace"))
