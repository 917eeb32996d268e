"""Prints the effective configuration: as a table, as plain text or as JSON."""

from __future__ import annotations

import json

from goqueue.cli.settings.config_loader import LoadedConfig, setting_specs

_TITLES = ("setting", "value", "source")
_GAP = "  "


def as_rows(loaded: LoadedConfig) -> list[tuple[str, str, str]]:
    """Setting, formatted value and source, in the order of the reference. Secrets are hidden."""
    return [
        (setting, spec.displayed(loaded.value(setting)), loaded.sources[setting])
        for setting, spec in setting_specs().items()
    ]


def as_json(loaded: LoadedConfig) -> str:
    """One object: each setting with its value (numbers in the unit of its name), that value as text, and its source."""
    settings = {
        setting: {"value": _json_value(loaded.value(setting), text), "text": text, "source": source}
        for setting, text, source in as_rows(loaded)
    }
    return json.dumps(settings, indent=2)


def _json_value(value: object, text: str) -> object:
    """The value for JSON. A text is replaced by its displayed form, because a part of it may be secret."""
    return text if isinstance(value, str) else value


def as_plain_text(loaded: LoadedConfig) -> str:
    """Columns padded with spaces, for a pipe or a file."""
    rows = [_TITLES, *as_rows(loaded)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_TITLES))]
    return "\n".join(
        _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def print_table(loaded: LoadedConfig) -> None:
    """A table for a terminal; settings that are not defaults stand out."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*_TITLES)
    last_section = None
    for setting, value, source in as_rows(loaded):
        section = setting.partition(".")[0]
        if last_section not in {None, section}:
            table.add_section()
        last_section = section
        style = "dim" if source == "default" else "bold"
        table.add_row(Text(setting), Text(value), Text(source, style=style))
    Console().print(table)
