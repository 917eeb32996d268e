"""What ``goqueue queue`` shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from goqueue.cli.terminal.message_text import INDENT, cell, header_lines, key_of, place_of, value_line, value_lines
from goqueue.cli.terminal.styled_lines import Line
from goqueue.model.units import parse_instant_ns
from goqueue.observe.logs import escape

_KEY_WIDTH = 20
_VALUE_WIDTH = 44
_ERROR_WIDTH = 40
_MEMBER_WIDTH = 30


def polled(message: dict[str, Any], *, with_receipt: bool) -> Iterator[Line]:
    """One message with all that is known of it; the receipt, if it is of use, has the line behind the first."""
    told = [f"delivery {message['deliveries']}"]
    if "key" in message:
        told.insert(0, f"key {escape(key_of(message))}")
    if message["priority"] != "normal":
        told.append(message["priority"])
    yield [(escape(place_of(message)), "bold"), (f"{INDENT}{', '.join(told)}", "")]
    if with_receipt:
        yield [(f"{INDENT}receipt: ", "dim"), (escape(message["receipt_handle"]), "")]
    yield from header_lines(message)
    yield from value_lines(message)


def peeked(messages: Sequence[dict[str, Any]], now_ns: int) -> Iterator[Line]:
    """A line for each."""
    from goqueue.cli.terminal import tables

    rows = [
        [
            place_of(each),
            cell(key_of(each), _KEY_WIDTH),
            value_line(each, _VALUE_WIDTH),
            state_words(each, now_ns),
            str(each.get("deliveries", 0)),
            cell(each.get("error", ""), _ERROR_WIDTH),
        ]
        for each in messages
    ]
    titles = ["message", "key", "value", "state", "deliveries", "last error"]
    if not any(row[-1] for row in rows):
        titles, rows = titles[:-1], [row[:-1] for row in rows]
    return tables.table(titles, rows)


def state_words(message: dict[str, Any], now_ns: int) -> str:
    """Where the group is with a message."""
    from goqueue.cli.terminal.time_words import duration

    left_ns = parse_instant_ns(message["until"]) - now_ns if "until" in message else 0
    match message["state"]:
        case "in-flight":
            who = cell(message.get("member", "?"), _MEMBER_WIDTH)
            # Clocks differ, and a lease is taken back a moment after its time.
            return f"in flight by {who}" + (f" for {duration(left_ns)}" if left_ns > 0 else "")
        case "retry":
            return f"retry in {duration(left_ns)}" if left_ns > 0 else "retry now"
        case "moving":
            return "on its way to the dead letters"
        case "in-transaction":
            return "acked in a transaction that has not ended"
    return str(message["state"])


def refused(receipts: Sequence[str], results: Sequence[dict[str, Any]]) -> Iterator[Line]:
    """Those that could not be settled, and why."""
    from goqueue.cli.terminal import tables

    rows = [
        [receipt, str(result.get("code", "")), str(result.get("error", ""))]
        for receipt, result in zip(receipts, results, strict=True)
        if not result.get("ok")
    ]
    return tables.table(["receipt", "problem", "why"], rows)
