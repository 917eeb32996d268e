"""Settings of topics and groups: parsed from options, and formatted for tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goqueue.cli.terminal import tables
from goqueue.model.fields import FieldSpec, shown

if TYPE_CHECKING:
    from goqueue.cli.terminal.output import Line

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="FIELD=VALUE", help="A setting, such as retention_ms=7d. Can be given several times."
    ),
]


def parse_assignments(given: list[str] | None) -> dict[str, str]:
    """Parse ``--set`` options into values by name. The broker validates the values."""
    found: dict[str, str] = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{shown(text)} is no setting; write FIELD=VALUE", param_hint="--set")
        if name.strip() in found:
            raise typer.BadParameter(f"{shown(name)} is set twice", param_hint="--set")
        found[name.strip()] = value.strip()
    return found


def format_value(declared: Mapping[str, FieldSpec], name: str, value: object) -> str:
    """Format a setting's value. A newer broker may have settings that are not declared here."""
    if name in declared:
        return declared[name].format(value)
    return "" if value is None else str(value)


def settings_table(
    declared: Mapping[str, FieldSpec], settings: Mapping[str, Any], overrides: Sequence[str], own: str
) -> Iterator[Line]:
    """Every setting as a table; overridden ones are marked with ``own``, the others are the broker's defaults."""
    rows = [
        [name, format_value(declared, name, value), own if name in overrides else ""]
        for name, value in settings.items()
    ]
    yield from tables.table(["setting", "value", ""], rows)
