"""Formats topics as tables, and the question before a purge."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from goqueue.cli.settings.settings_view import format_value, settings_table
from goqueue.cli.terminal import figure_words, tables
from goqueue.cli.terminal.output import Line
from goqueue.cli.terminal.times import Times
from goqueue.model.fields import specs
from goqueue.model.topic_settings import TopicSettings
from goqueue.model.units import counted
from goqueue.observe.logs import escape


def at_most_messages(offsets: int) -> str:
    """A message count for a span of offsets. It is an upper bound: some offsets are transaction markers or delayed
    messages."""
    return f"up to {counted(offsets, 'message')}" if offsets else "no messages"


def purge_question(found: dict[str, Any], partition: int | None, before: str | None) -> str:
    offsets = found["partition_offsets"]
    chosen = [offsets[str(partition)]] if str(partition) in offsets else list(offsets.values())
    held = at_most_messages(sum(each["latest"] - each["earliest"] for each in chosen))
    where = escape(found["name"]) if partition is None else f"partition {partition} of {escape(found['name'])}"
    what = held if before is None else f"those before {escape(before)} of {held}"
    return f"Remove {what} from {where}? That cannot be undone."


def topic_lines(answer: dict[str, Any]) -> Iterator[Line]:
    yield [(escape(answer["name"]), "bold")]
    made = Times().later(answer["created_at"], time.time_ns())
    size = figure_words.size(answer["total_size_bytes"])
    yield [(f"{tables.GAP}made {made}, {at_most_messages(answer['total_messages'])}, {size}", "dim")]
    yield []
    yield from settings_table(specs(TopicSettings), answer["settings"], answer["overrides"], "set for this topic")
    yield []
    rows = [
        [number, str(each["earliest"]), str(each["latest"]), f"{each['latest'] - each['earliest']:,}", _held_back(each)]
        for number, each in answer["partition_offsets"].items()
    ]
    yield from tables.table(["partition", "earliest", "latest", "offsets", ""], rows)


def _held_back(offsets: dict[str, int]) -> str:
    stable = offsets["last_stable_offset"]
    return f"a transaction is open from {stable} on" if stable < offsets["latest"] else ""


def changes_table(before: dict[str, Any], after: dict[str, Any], named: list[str]) -> Iterator[Line]:
    """The values of settings before and after a change."""
    declared = specs(TopicSettings)
    rows = [
        [
            name,
            format_value(declared, name, before["settings"].get(name)),
            format_value(declared, name, after["settings"].get(name)),
            "set for this topic" if name in after["overrides"] else "as the broker is configured",
        ]
        for name in dict.fromkeys(named)
    ]
    yield from tables.table(["setting", "was", "is", ""], rows)


def purged_table(answer: dict[str, Any]) -> Iterator[Line]:
    rows = [
        [str(each["partition"]), str(each["earliest_before"]), str(each["earliest"]), f"{each['removed_messages']:,}"]
        for each in answer["partitions"]
    ]
    yield from tables.table(["partition", "began at", "begins at", "removed"], rows)
    yield [(f"{counted(answer['removed_messages'], 'message')} removed", "bold")]
