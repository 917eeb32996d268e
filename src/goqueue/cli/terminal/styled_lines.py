"""Lines of text in colours, for a terminal; without them for a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import msgspec
import typer

Span = tuple[str, str]
"""A text and its style; without colours only the text counts."""
Line = list[Span]


def plain(lines: Iterable[Line]) -> str:
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def put_json(answer: object) -> None:
    """For programs: indented, in UTF-8 wherever it goes."""
    typer.echo(msgspec.json.format(msgspec.json.encode(answer, enc_hook=str), indent=2))


def put(lines: Iterable[Line]) -> None:
    """Onto standard output; at once, so that whoever follows sees it."""
    if not sys.stdout.isatty():
        # Keys and reasons may have letters that the encoding of a pipe has not.
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        typer.echo(plain(lines).encode(encoding, "backslashreplace").decode(encoding))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line in lines:
        # Lines have the width that they are to have.
        console.print(Text.assemble(*line), soft_wrap=True)
