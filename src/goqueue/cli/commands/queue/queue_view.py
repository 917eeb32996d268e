"""Formats the output of ``goqueue queue``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from goqueue.cli.terminal import tables
from goqueue.cli.terminal.message_text import (
    INDENT,
    cell_text,
    header_lines,
    key_text,
    position_of,
    value_line,
    value_lines,
)
from goqueue.cli.terminal.output import Line
from goqueue.cli.terminal.times import duration
from goqueue.model.units import parse_instant_ns
from goqueue.observe.logs import escape

_KEY_WIDTH = 20
_VALUE_WIDTH = 44
_ERROR_WIDTH = 40
_MEMBER_WIDTH = 30


def message_lines(message: dict[str, Any], *, with_receipt: bool) -> Iterator[Line]:
    """One message in full; the receipt, if it is of use, is on the second line."""
    facts = [f"delivery {message['deliveries']}"]
    if "key" in message:
        facts.insert(0, f"key {escape(key_text(message))}")
    if message["priority"] != "normal":
        facts.append(message["priority"])
    yield [(escape(position_of(message)), "bold"), (f"{INDENT}{', '.join(facts)}", "")]
    if with_receipt:
        yield [(f"{INDENT}receipt: ", "dim"), (escape(message["receipt_handle"]), "")]
    yield from header_lines(message)
    yield from value_lines(message)


def peeked_table(messages: Sequence[dict[str, Any]], now_ns: int) -> Iterator[Line]:
    """A row for each message."""
    rows = [
        [
            position_of(each),
            cell_text(key_text(each), _KEY_WIDTH),
            value_line(each, _VALUE_WIDTH),
            state_text(each, now_ns),
            str(each.get("deliveries", 0)),
            cell_text(each.get("error", ""), _ERROR_WIDTH),
        ]
        for each in messages
    ]
    titles = ["message", "key", "value", "state", "deliveries", "last error"]
    if not any(row[-1] for row in rows):
        titles, rows = titles[:-1], [row[:-1] for row in rows]
    return tables.table(titles, rows)


def state_text(message: dict[str, Any], now_ns: int) -> str:
    """Describe a group's state for a message."""
    left_ns = parse_instant_ns(message["until"]) - now_ns if "until" in message else 0
    match message["state"]:
        case "in-flight":
            who = cell_text(message.get("member", "?"), _MEMBER_WIDTH)
            # Clocks differ, and a lease expires slightly after its deadline.
            return f"in flight by {who}" + (f" for {duration(left_ns)}" if left_ns > 0 else "")
        case "retry":
            return f"retry in {duration(left_ns)}" if left_ns > 0 else "retry now"
        case "moving":
            return "on its way to the dead letters"
        case "in-transaction":
            return "acked in a transaction that has not ended"
    return str(message["state"])


def failures_table(receipts: Sequence[str], results: Sequence[dict[str, Any]]) -> Iterator[Line]:
    """The receipts that could not be settled, and why."""
    rows = [
        [receipt, str(result.get("code", "")), str(result.get("error", ""))]
        for receipt, result in zip(receipts, results, strict=True)
        if not result.get("ok")
    ]
    return tables.table(["receipt", "problem", "why"], rows)
