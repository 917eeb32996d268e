"""Messages as JSON answers have them, in words. Nothing that a producer wrote can draw on the screen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

from goqueue.cli.terminal.styled_lines import Line
from goqueue.observe.logs import escape

_MOST_LINES = 200
_MOST_LETTERS = 300
"""More than a cell of a table shows, and more than the longest name has."""
INDENT = "  "
_OF_VALUE = f"{INDENT}| "
_OF_HEADER = f"{INDENT}header "
"""Marks: what a producer wrote cannot be taken for what the broker says, such as a receipt."""


def place_of(message: dict[str, Any], topic: str | None = None) -> str:
    """As ``goqueue trace`` and others take it: ``orders/0/17``."""
    return f"{message['topic'] if topic is None else topic}/{message['partition']}/{message['offset']}"


def key_of(message: dict[str, Any]) -> str:
    return str(message.get("key", ""))


def short(message: dict[str, Any]) -> dict[str, Any]:
    """What a line of a table needs of it: thousands of these can be held, whatever their values are."""
    return {
        name: text[:_MOST_LETTERS] if isinstance(text, str) else text
        for name, text in message.items()
        if name != "headers"
    }


def value_line(message: dict[str, Any], most: int) -> str:
    """The beginning of a value, on one line."""
    return cell(_value(message), most)


def cell(text: str, most: int) -> str:
    """The beginning of a text, as wide as ``most`` letters are."""
    from goqueue.cli.terminal.tables import shortened

    # No need to look at a megabyte to show forty letters.
    return shortened(escape(text[: most + 1]), most, "…")


def value_lines(message: dict[str, Any]) -> Iterator[Line]:
    """A whole value, JSON with indents; of a very long one the beginning."""
    text = _value(message)
    if message.get("encoding") != "base64" and text[:1] in ("{", "["):
        # It may only look like JSON.
        with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            text = msgspec.json.format(text.encode(), indent=2).decode()
    lines = text.split("\n")
    for line in lines[:_MOST_LINES]:
        yield [(_OF_VALUE, "dim"), (escape(line), "")]
    if len(lines) > _MOST_LINES:
        yield [(f"{INDENT}… {len(lines) - _MOST_LINES} more lines; --json shows all", "dim")]


def header_lines(message: dict[str, Any]) -> Iterator[Line]:
    """A name that has several values has a line for each."""
    for name, values in message.get("headers", {}).items():
        for value in [values] if isinstance(values, str) else values:
            yield [(f"{_OF_HEADER}{escape(name)}: ", "dim"), (escape(value), "")]


def _value(message: dict[str, Any]) -> str:
    if "value" not in message:
        return ""
    if message["value"] is None:
        return "(tombstone)"
    text = str(message["value"])
    return f"base64:{text}" if message.get("encoding") == "base64" else text
