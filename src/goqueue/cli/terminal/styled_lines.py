"""Lines of styled text: printed with colours on a terminal and as plain text to a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable

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
