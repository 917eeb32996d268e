"""Formats the output of ``goqueue dlq``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from goqueue.cli.terminal import tables
from goqueue.cli.terminal.message_text import INDENT, cell_text, header_lines, key_text, position_of, value_lines
from goqueue.cli.terminal.output import Line
from goqueue.cli.terminal.times import Times, duration
from goqueue.model.units import parse_instant_ns
from goqueue.observe.logs import escape

if TYPE_CHECKING:
    from goqueue.cli.commands.dlq.dlq_letters import RedriveCounts

_ERROR_WIDTH = 50
_KEY_WIDTH = 20
NO_GROUP = "(refused at publish)"


def letters_table(letters: Sequence[dict[str, Any]], now_ns: int) -> Iterator[Line]:
    """A row for each dead letter."""
    rows = [
        [
            str(each["partition"]),
            str(each["offset"]),
            Times().later(each["timestamp"], now_ns),
            origin_position(each),
            each["group"] or NO_GROUP,
            str(each["deliveries"]),
            cell_text(each["error"], _ERROR_WIDTH),
            cell_text(key_text(each), _KEY_WIDTH),
            "yes" if each["redriven"] else "",
        ]
        for each in letters
    ]
    titles = ["partition", "offset", "died", "was", "group", "deliveries", "error", "key", "sent back"]
    return tables.table(titles, rows)


def letter_lines(dlq_topic: str, letter: dict[str, Any], now_ns: int) -> Iterator[Line]:
    """One dead letter in full."""

    def moment(instant: str) -> str:
        return f"{Times().later(instant, now_ns)} ({duration(max(0, now_ns - parse_instant_ns(instant)))} ago)"

    yield [(escape(position_of(letter, dlq_topic)), "bold")]
    fields = {
        "error": letter["error"],
        "group": letter["group"] or NO_GROUP,
        "deliveries": str(letter["deliveries"]),
        "died": moment(letter["timestamp"]),
        "was": origin_position(letter),
        "published": moment(letter["origin_timestamp"]) if letter["origin_timestamp"] else "",
        "key": key_text(letter),
        "priority": letter["priority"],
        "sent back": "yes" if letter["redriven"] else "no",
    }
    for name, text in fields.items():
        if text:
            yield [(f"{INDENT}{name}: ", "dim"), (escape(text), "")]
    yield from header_lines(letter)
    yield from value_lines(letter)
    where = f"{escape(letter['topic'])} {letter['origin_partition']} {letter['origin_offset']}"
    yield [("its story: ", "dim"), (f"goqueue trace {where}", "")]


def origin_position(letter: dict[str, Any]) -> str:
    return f"{letter['topic']}/{letter['origin_partition']}/{letter['origin_offset']}"


def dry_run_table(counts: RedriveCounts) -> Iterator[Line]:
    """The result of a dry run."""
    rows = [[f"would go back to {topic}", f"{count:,}"] for topic, count in sorted(counts.by_topic.items())]
    if not rows:
        rows = [["would go back", "0"]]
    rows += [["went back before", f"{counts.already:,}"], ["cannot go back", f"{counts.unreachable:,}"]]
    return tables.table(["dead letters", ""], rows)


def redriven_text(counts: RedriveCounts) -> str:
    text = f"{counts.redriven:,} sent back"
    if counts.already:
        text += f", {counts.already:,} were before"
    if counts.unreachable:
        text += f", {counts.unreachable:,} cannot go back: their topic or group is gone, or they do not fit its schema"
    return text
