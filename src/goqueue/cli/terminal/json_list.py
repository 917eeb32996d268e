"""A JSON document with a long list in it, written while the list comes: nobody needs to hold the whole of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import typer


class JsonList:
    """Looks as ``lines.put_json`` would print the whole of it. Nothing is written before ``add`` or ``end``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._count = 0
        self.is_begun = False

    def begin(self, fields: Mapping[str, object] | None = None) -> None:
        """With the fields in front of the list."""
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
        """With the fields behind the list."""
        if not self.is_begun:
            self.begin()
        typer.echo("\n  ]" if self._count else "]", nl=False)
        typer.echo("".join(f",\n  {_field(*each)}" for each in fields.items()) + "\n}")


def _field(name: str, value: object) -> str:
    return f"{_json(name)}: {_json(value, 2)}"


def _json(value: object, indent: int = 0) -> str:
    # No text in it has a line end: JSON writes them as escapes.
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode().replace("\n", "\n" + " " * indent)
