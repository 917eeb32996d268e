"""What ``goqueue dlq`` shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from goqueue.cli.terminal.message_text import INDENT, cell, header_lines, key_of, place_of, value_lines
from goqueue.cli.terminal.styled_lines import Line
from goqueue.model.units import parse_instant_ns
from goqueue.observe.logs import escape

if TYPE_CHECKING:
    from goqueue.cli.commands.dlq.dlq_redrive import Tally

_ERROR_WIDTH = 50
_KEY_WIDTH = 20
NOBODY = "(refused at publish)"


def listed(letters: Sequence[dict[str, Any]], now_ns: int) -> Iterator[Line]:
    """A line for each."""
    from goqueue.cli.terminal import tables
    from goqueue.cli.terminal.time_words import Times

    rows = [
        [
            str(each["partition"]),
            str(each["offset"]),
            Times().later(each["timestamp"], now_ns),
            origin_of(each),
            each["group"] or NOBODY,
            str(each["deliveries"]),
            cell(each["error"], _ERROR_WIDTH),
            cell(key_of(each), _KEY_WIDTH),
            "yes" if each["redriven"] else "",
        ]
        for each in letters
    ]
    titles = ["partition", "offset", "died", "was", "group", "deliveries", "error", "key", "sent back"]
    return tables.table(titles, rows)


def shown(dlq_topic: str, letter: dict[str, Any], now_ns: int) -> Iterator[Line]:
    """All that is known of one."""
    from goqueue.cli.terminal.time_words import Times, duration

    def moment(instant: str) -> str:
        return f"{Times().later(instant, now_ns)} ({duration(max(0, now_ns - parse_instant_ns(instant)))} ago)"

    yield [(escape(place_of(letter, dlq_topic)), "bold")]
    told = {
        "error": letter["error"],
        "group": letter["group"] or NOBODY,
        "deliveries": str(letter["deliveries"]),
        "died": moment(letter["timestamp"]),
        "was": origin_of(letter),
        "published": moment(letter["origin_timestamp"]) if letter["origin_timestamp"] else "",
        "key": key_of(letter),
        "priority": letter["priority"],
        "sent back": "yes" if letter["redriven"] else "no",
    }
    for name, text in told.items():
        if text:
            yield [(f"{INDENT}{name}: ", "dim"), (escape(text), "")]
    yield from header_lines(letter)
    yield from value_lines(letter)
    where = f"{escape(letter['topic'])} {letter['origin_partition']} {letter['origin_offset']}"
    yield [("its story: ", "dim"), (f"goqueue trace {where}", "")]


def origin_of(letter: dict[str, Any]) -> str:
    return f"{letter['topic']}/{letter['origin_partition']}/{letter['origin_offset']}"


def would_send(tally: Tally) -> Iterator[Line]:
    """Of a dry run."""
    from goqueue.cli.terminal import tables

    rows = [[f"would go back to {topic}", f"{count:,}"] for topic, count in sorted(tally.by_topic.items())]
    if not rows:
        rows = [["would go back", "0"]]
    rows += [["went back before", f"{tally.already:,}"], ["cannot go back", f"{tally.unreachable:,}"]]
    return tables.table(["dead letters", ""], rows)


def sent(tally: Tally) -> str:
    told = f"{tally.redriven:,} sent back"
    if tally.already:
        told += f", {tally.already:,} were before"
    if tally.unreachable:
        told += f", {tally.unreachable:,} cannot go back: their topic or group is gone, or they do not fit its schema"
    return told
