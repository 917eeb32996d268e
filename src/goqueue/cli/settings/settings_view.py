"""Settings of topics and groups: as options take them, and as tables show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goqueue.model.fields import FieldSpec, shown

if TYPE_CHECKING:
    from goqueue.cli.terminal.styled_lines import Line

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="FIELD=VALUE", help="A setting, such as retention_ms=7d. Can be given several times."
    ),
]


def assigned(given: list[str] | None) -> dict[str, str]:
    """What ``--set`` said, by name. What the values may be is for the broker to say."""
    found: dict[str, str] = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{shown(text)} is no setting; write FIELD=VALUE", param_hint="--set")
        if name.strip() in found:
            raise typer.BadParameter(f"{shown(name)} is set twice", param_hint="--set")
        found[name.strip()] = value.strip()
    return found


def value_of(declared: Mapping[str, FieldSpec], name: str, value: object) -> str:
    """As a person writes it. A newer broker may have settings that are not known here."""
    if name in declared:
        return declared[name].format(value)
    return "" if value is None else str(value)


def listed(
    declared: Mapping[str, FieldSpec], settings: Mapping[str, Any], overrides: Sequence[str], own: str
) -> Iterator[Line]:
    """Every setting; those that were set are marked with ``own``, the others are the broker's defaults."""
    from goqueue.cli.terminal import tables

    rows = [
        [name, value_of(declared, name, value), own if name in overrides else ""] for name, value in settings.items()
    ]
    yield from tables.table(["setting", "value", ""], rows)
