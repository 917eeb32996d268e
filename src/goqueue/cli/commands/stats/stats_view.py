"""Formats the output of ``goqueue stats``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from goqueue.cli.commands.transactions import COUNT_LABELS as TRANSACTION_WORDS
from goqueue.cli.terminal import figure_words
from goqueue.cli.terminal.output import Line
from goqueue.cli.terminal.tables import GAP, table
from goqueue.model.units import parse_duration_ms
from goqueue.observe.logs import escape

_COUNTS = {
    "acks_total": "acked",
    "nacks_total": "given back",
    "rejects_total": "rejected",
    "redeliveries": "delivered again",
    "visibility_timeouts": "not settled in time",
    "visibility_extensions": "leases extended",
    "dlq_messages": "dead letters",
    "redriven": "redriven",
    "expired": "expired",
}
_DELAYS = {
    "pending_count": "waiting",
    "delivered_count": "became visible",
    "cancelled_count": "cancelled",
    "rescheduled_count": "rescheduled",
    "lost_count": "lost",
}
_TRANSACTIONS = {name: word for name, word in TRANSACTION_WORDS.items() if name.endswith(("_transactions", "_total"))}
"""Counts only; durations are shown by ``goqueue txn stats``."""


def stats_lines(found: dict[str, Any], limit: int, width: int = sys.maxsize) -> Iterator[Line]:
    """``limit`` topics and as many groups, the largest first, with the number of those left out.

    Lists of figures are broken into lines of at most ``width`` columns.
    """
    yield from _broker_lines(found, width)
    yield []
    yield from _topic_lines(found["topics"], limit)
    if found["groups"]:
        yield []
        yield from _group_lines(found["groups"], limit)
    yield []
    lanes = found["waiting_by_lane"]
    here = (
        []
        if lanes is None
        else [
            ("waiting by lane", _joined({lane: f"{count:,}" for lane, count in lanes.items()}) + _coverage_note(found))
        ]
    )
    everywhere = [
        ("delays", _joined(_labelled(found["delays"], _DELAYS)) + _next_due(found["delays"])),
        ("transactions", _joined(_labelled(found["transactions"], _TRANSACTIONS))),
        ("deliveries", _joined(_labelled(found["reliability"], _COUNTS))),
    ]
    if found["topic"] is None:
        yield from _align(here + everywhere, width)
        return
    yield from _align(here, width)
    yield []
    # The broker counts these for all topics together.
    yield [("of all topics", "bold")]
    yield from _align(everywhere, width)


def _align(rows: Sequence[tuple[str, str]], width: int) -> Iterator[Line]:
    for_names = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        for number, part in enumerate(_fold(escape(text), width - for_names - len(GAP))):
            yield [(f"{('' if number else name).ljust(for_names)}{GAP}", "dim"), (part, "")]


def _fold(text: str, width: int) -> Iterator[str]:
    """Break a list into lines at its commas."""
    line = ""
    for part in text.split(", "):
        if line and len(line) + len(", ") + len(part) + len(",") > width:
            yield f"{line},"
            line = part
        else:
            line = f"{line}, {part}" if line else part
    yield line


def _coverage_note(found: Mapping[str, Any]) -> str:
    """A note if only a part of the partitions was summed up, so that it does not pass for the whole."""
    counted = found["lanes_of_partitions"]
    return "" if counted is None else f" (in the first {counted:,} of {found['partitions']:,} partitions)"


def _broker_lines(found: dict[str, Any], width: int) -> Iterator[Line]:
    health, ready, totals = found["health"], found["readiness"], found["broker"]
    is_ok = health["status"] == "ok"
    uptime_s = parse_duration_ms(totals["uptime"]) / 1_000
    takes = "takes messages" if ready["status"] == "pass" else "TAKES NO MESSAGES"
    state: Line = [
        (f"{escape(found['server'])}{GAP}", "bold"),
        (escape(health["status"]), "green" if is_ok else "bold red"),
        (f", {takes}", "" if ready["status"] == "pass" else "bold red"),
    ]
    since = f"{GAP}version {escape(found['version'])}{GAP}up {figure_words.seconds(uptime_s)}"
    if sum(len(text) for text, _ in state) + len(since) <= width:
        yield [*state, (since, "")]
    else:
        yield state
        yield [(since, "")]
    for problem in health["problems"]:
        yield [(f"{GAP}problem: {escape(problem)}", "bold red")]
    for name, check in ready.get("checks", {}).items():
        if check["status"] != "pass" and check["message"] not in health["problems"]:
            yield [(f"{GAP}{escape(check['status'])}: {escape(name)}: {escape(check['message'])}", "yellow")]
    facts = {
        "offsets": figure_words.count(totals["messages"]),
        "stored": figure_words.size(totals["total_size_bytes"]),
        "disk free": figure_words.size(totals["disk_free_bytes"]),
        "fsync rounds": figure_words.count(totals["fsync_rounds"]),
        "memory": figure_words.size(totals["memory_bytes"]),
        "connections": f"{sum(totals['connections'].values()):,}",
    }
    of_all = "" if found["topic"] is None else "all topics: "
    for part in _fold(of_all + _joined(facts), width - len(GAP)):
        yield [(GAP + part, "")]


def _topic_lines(topics: dict[str, Any], limit: int) -> Iterator[Line]:
    if not topics:
        yield [("no topics", "dim")]
        return
    # The largest first: they take disk space and time.
    ordered = sorted(topics.items(), key=lambda each: (-each[1]["size_bytes"], each[0]))
    rows = [
        [
            name,
            f"{each['partitions']:,}",
            f"{each['messages']:,}",
            figure_words.size(each["size_bytes"]),
            f"{each['segments']:,}",
            f"{each['damaged_messages']:,}",
        ]
        for name, each in ordered[:limit]
    ]
    yield from table(["topic", "partitions", "offsets", "size", "segments", "damaged"], rows)
    yield from _more(len(topics), limit, "topics")


def _group_lines(groups: list[dict[str, Any]], limit: int) -> Iterator[Line]:
    rows = [
        [each["group"], f"{each['lag']:,}", f"{each['in_flight']:,}", f"{each['retry']:,}", f"{each['members']:,}"]
        for each in groups[:limit]
    ]
    yield from table(["group", "lag", "in flight", "given back", "members"], rows)
    yield from _more(len(groups), limit, "groups")


def _more(count: int, limit: int, what: str) -> Iterator[Line]:
    if count > limit:
        yield [(f"{count - limit:,} more {what}; --limit shows them", "dim")]


def _labelled(figures: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    """The first figure always, the others if not zero."""
    first = next(iter(names))
    return {label: f"{figures[name]:,}" for name, label in names.items() if name == first or figures.get(name)}


def _joined(figures: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in figures.items())


def _next_due(delays: Mapping[str, Any]) -> str:
    return f", the next at {delays['next_due']}" if delays.get("next_due") else ""
