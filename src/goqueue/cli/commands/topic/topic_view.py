"""Topics as tables, and what is asked before they are emptied."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from goqueue.cli.settings.settings_view import listed, value_of
from goqueue.cli.terminal import figure_words as words
from goqueue.cli.terminal import tables
from goqueue.cli.terminal.styled_lines import Line
from goqueue.cli.terminal.time_words import Times
from goqueue.model.fields import specs
from goqueue.model.settings import TopicSettings
from goqueue.observe.logs import escape


def count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def up_to(offsets: int) -> str:
    """Of so many offsets not all are messages: there are markers of transactions, and records of what was delayed."""
    return f"up to {count(offsets, 'message')}" if offsets else "no messages"


def purge_question(found: dict[str, Any], partition: int | None, before: str | None) -> str:
    offsets = found["partition_offsets"]
    chosen = [offsets[str(partition)]] if str(partition) in offsets else list(offsets.values())
    held = up_to(sum(each["latest"] - each["earliest"] for each in chosen))
    where = escape(found["name"]) if partition is None else f"partition {partition} of {escape(found['name'])}"
    what = held if before is None else f"those before {escape(before)} of {held}"
    return f"Remove {what} from {where}? That cannot be undone."


def described(answer: dict[str, Any]) -> Iterator[Line]:
    yield [(escape(answer["name"]), "bold")]
    made = Times().later(answer["created_at"], time.time_ns())
    size = words.size(answer["total_size_bytes"])
    yield [(f"{tables.GAP}made {made}, {up_to(answer['total_messages'])}, {size}", "dim")]
    yield []
    yield from listed(specs(TopicSettings), answer["settings"], answer["overrides"], "set for this topic")
    yield []
    rows = [
        [number, str(each["earliest"]), str(each["latest"]), f"{each['latest'] - each['earliest']:,}", _held_back(each)]
        for number, each in answer["partition_offsets"].items()
    ]
    yield from tables.table(["partition", "earliest", "latest", "offsets", ""], rows)


def _held_back(offsets: dict[str, int]) -> str:
    stable = offsets["last_stable_offset"]
    return f"a transaction is open from {stable} on" if stable < offsets["latest"] else ""


def changes(before: dict[str, Any], after: dict[str, Any], named: list[str]) -> Iterator[Line]:
    """What a setting was and what it is."""
    declared = specs(TopicSettings)
    rows = [
        [
            name,
            value_of(declared, name, before["settings"].get(name)),
            value_of(declared, name, after["settings"].get(name)),
            "set for this topic" if name in after["overrides"] else "as the broker is configured",
        ]
        for name in dict.fromkeys(named)
    ]
    yield from tables.table(["setting", "was", "is", ""], rows)


def purged(answer: dict[str, Any]) -> Iterator[Line]:
    rows = [
        [str(each["partition"]), str(each["earliest_before"]), str(each["earliest"]), f"{each['removed_messages']:,}"]
        for each in answer["partitions"]
    ]
    yield from tables.table(["partition", "began at", "begins at", "removed"], rows)
    yield [(f"{count(answer['removed_messages'], 'message')} removed", "bold")]
