"""Formats messages of JSON answers as text. Everything that a producer wrote is escaped, so it cannot control the
terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

from goqueue.cli.terminal.output import Line
from goqueue.cli.terminal.tables import shortened
from goqueue.observe.logs import escape

_MOST_LINES = 200
_MAX_FIELD_CHARS = 300
"""Longer than any table cell and any name."""
INDENT = "  "
_VALUE_PREFIX = f"{INDENT}| "
_HEADER_PREFIX = f"{INDENT}header "
"""Prefixes of lines that show a producer's text, so that it cannot pass for the broker's, such as a receipt."""


def position_of(message: dict[str, Any], topic: str | None = None) -> str:
    """A message's position as ``goqueue trace`` and other commands take it: ``orders/0/17``."""
    return f"{message['topic'] if topic is None else topic}/{message['partition']}/{message['offset']}"


def key_text(message: dict[str, Any]) -> str:
    return str(message.get("key", ""))


def row_fields(message: dict[str, Any]) -> dict[str, Any]:
    """The fields that a table row needs, with long texts cut, so that thousands can be held whatever their values'
    sizes."""
    return {
        name: text[:_MAX_FIELD_CHARS] if isinstance(text, str) else text
        for name, text in message.items()
        if name != "headers"
    }


def value_line(message: dict[str, Any], most: int) -> str:
    """The beginning of a value, escaped, on one line of at most ``most`` columns."""
    return cell_text(_value(message), most)


def cell_text(text: str, most: int) -> str:
    """The beginning of a text, escaped, at most ``most`` columns wide."""
    # Cut first: a value may have a megabyte, and a cell shows forty characters.
    return shortened(escape(text[: most + 1]), most, "…")


def value_lines(message: dict[str, Any]) -> Iterator[Line]:
    """A whole value, with JSON indented; of a very long one the first lines."""
    text = _value(message)
    if message.get("encoding") != "base64" and text[:1] in ("{", "["):
        # The value may look like JSON without being valid.
        with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            text = msgspec.json.format(text.encode(), indent=2).decode()
    lines = text.split("\n")
    for line in lines[:_MOST_LINES]:
        yield [(_VALUE_PREFIX, "dim"), (escape(line), "")]
    if len(lines) > _MOST_LINES:
        yield [(f"{INDENT}… {len(lines) - _MOST_LINES} more lines; --json shows all", "dim")]


def header_lines(message: dict[str, Any]) -> Iterator[Line]:
    """One line for each header value; a name with several values has several lines."""
    for name, values in message.get("headers", {}).items():
        for value in [values] if isinstance(values, str) else values:
            yield [(f"{_HEADER_PREFIX}{escape(name)}: ", "dim"), (escape(value), "")]


def _value(message: dict[str, Any]) -> str:
    if "value" not in message:
        return ""
    if message["value"] is None:
        return "(tombstone)"
    text = str(message["value"])
    return f"base64:{text}" if message.get("encoding") == "base64" else text
