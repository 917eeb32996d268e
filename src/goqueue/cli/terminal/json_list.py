"""Streaming writer of a JSON document with a long list in it: items are printed as they come, so memory stays
bounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import typer


class JsonList:
    """Prints the same text as ``styled_lines.print_json`` for the whole document. Prints nothing before ``begin``,
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
