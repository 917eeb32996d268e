"""What ``goqueue stats`` prints."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from goqueue.cli.commands.transactions import WORDS as TRANSACTION_WORDS
from goqueue.cli.terminal import figure_words as words
from goqueue.cli.terminal.styled_lines import Line
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
"""The counts; how long they took is told by ``goqueue txn stats``."""


def described(found: dict[str, Any], limit: int, width: int = sys.maxsize) -> Iterator[Line]:
    """``limit`` topics and as many groups, the largest first; how many more there are is said.

    Lists of figures go on in another line where one would be wider than ``width``.
    """
    yield from _broker(found, width)
    yield []
    yield from _topics(found["topics"], limit)
    if found["groups"]:
        yield []
        yield from _groups(found["groups"], limit)
    yield []
    lanes = found["waiting_by_lane"]
    here = (
        []
        if lanes is None
        else [("waiting by lane", _listed({lane: f"{count:,}" for lane, count in lanes.items()}) + _of_how_many(found))]
    )
    everywhere = [
        ("delays", _listed(_named(found["delays"], _DELAYS)) + _next_due(found["delays"])),
        ("transactions", _listed(_named(found["transactions"], _TRANSACTIONS))),
        ("deliveries", _listed(_named(found["reliability"], _COUNTS))),
    ]
    if found["topic"] is None:
        yield from _aligned(here + everywhere, width)
        return
    yield from _aligned(here, width)
    yield []
    # A broker counts these for all topics together.
    yield [("of all topics", "bold")]
    yield from _aligned(everywhere, width)


def _aligned(rows: Sequence[tuple[str, str]], width: int) -> Iterator[Line]:
    for_names = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        for number, part in enumerate(_folded(escape(text), width - for_names - len(GAP))):
            yield [(f"{('' if number else name).ljust(for_names)}{GAP}", "dim"), (part, "")]


def _folded(text: str, width: int) -> Iterator[str]:
    """A list in lines of its own, broken behind its commas alone."""
    line = ""
    for part in text.split(", "):
        if line and len(line) + len(", ") + len(part) + len(",") > width:
            yield f"{line},"
            line = part
        else:
            line = f"{line}, {part}" if line else part
    yield line


def _of_how_many(found: Mapping[str, Any]) -> str:
    """What waits is added up for so many partitions and no more: a part must not pass for the whole."""
    counted = found["lanes_of_partitions"]
    return "" if counted is None else f" (in the first {counted:,} of {found['partitions']:,} partitions)"


def _broker(found: dict[str, Any], width: int) -> Iterator[Line]:
    health, ready, held = found["health"], found["readiness"], found["broker"]
    is_ok = health["status"] == "ok"
    uptime_s = parse_duration_ms(held["uptime"]) / 1_000
    takes = "takes messages" if ready["status"] == "pass" else "TAKES NO MESSAGES"
    state: Line = [
        (f"{escape(found['server'])}{GAP}", "bold"),
        (escape(health["status"]), "green" if is_ok else "bold red"),
        (f", {takes}", "" if ready["status"] == "pass" else "bold red"),
    ]
    since = f"{GAP}version {escape(found['version'])}{GAP}up {words.seconds(uptime_s)}"
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
        "offsets": words.count(held["messages"]),
        "stored": words.size(held["total_size_bytes"]),
        "disk free": words.size(held["disk_free_bytes"]),
        "fsync rounds": words.count(held["fsync_rounds"]),
        "memory": words.size(held["memory_bytes"]),
        "connections": f"{sum(held['connections'].values()):,}",
    }
    of_all = "" if found["topic"] is None else "all topics: "
    for part in _folded(of_all + _listed(facts), width - len(GAP)):
        yield [(GAP + part, "")]


def _topics(topics: dict[str, Any], limit: int) -> Iterator[Line]:
    if not topics:
        yield [("no topics", "dim")]
        return
    # Those with the most in them first: these are what takes room and time.
    ordered = sorted(topics.items(), key=lambda each: (-each[1]["size_bytes"], each[0]))
    rows = [
        [
            name,
            f"{each['partitions']:,}",
            f"{each['messages']:,}",
            words.size(each["size_bytes"]),
            f"{each['segments']:,}",
            f"{each['damaged_messages']:,}",
        ]
        for name, each in ordered[:limit]
    ]
    yield from table(["topic", "partitions", "offsets", "size", "segments", "damaged"], rows)
    yield from _more(len(topics), limit, "topics")


def _groups(groups: list[dict[str, Any]], limit: int) -> Iterator[Line]:
    rows = [
        [
            each["group"],
            f"{each['lag']:,}",
            f"{each['in_flight']:,}",
            f"{each['retry']:,}",
            f"{each['members']:,}",
        ]
        for each in groups[:limit]
    ]
    yield from table(["group", "lag", "in flight", "given back", "members"], rows)
    yield from _more(len(groups), limit, "groups")


def _more(count: int, limit: int, what: str) -> Iterator[Line]:
    if count > limit:
        yield [(f"{count - limit:,} more {what}; --limit shows them", "dim")]


def _named(figures: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    """The first of them in any case, and of the others those that there are any of."""
    first = next(iter(names))
    return {told: f"{figures[name]:,}" for name, told in names.items() if name == first or figures.get(name)}


def _listed(figures: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in figures.items())


def _next_due(delays: Mapping[str, Any]) -> str:
    return f", the next at {delays['next_due']}" if delays.get("next_due") else ""
