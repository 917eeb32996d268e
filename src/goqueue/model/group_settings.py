"""What can be set for one group."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from goqueue.model.errors import InvalidSettings
from goqueue.model.fields import parse_fields, setting
from goqueue.model.topic_settings import MAX_VISIBILITY_MS

GroupKind = Literal["range", "sticky", "shared"]
GroupMode = Literal["queue", "stream"]
Ordering = Literal["none", "key"]
StartAt = Literal["earliest", "latest"]

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of a group, each with its default. A group stores only what was set for it."""

    kind: GroupKind = setting(
        "range",
        "How members share the work: 'range' splits each topic's partitions among them; 'sticky' does, and moves as "
        "few as it can while the others go on; 'shared' gives every member messages of every partition. It can be "
        "changed while the group has no members.",
        "choice",
        choices=("range", "sticky", "shared"),
        fixed=True,
        while_empty=True,
    )
    mode: GroupMode = setting(
        "queue",
        "'queue': messages are settled one by one with their receipts. 'stream': messages come in offset order and an "
        "offset is committed.",
        "choice",
        choices=("queue", "stream"),
        fixed=True,
    )
    ordering: Ordering = setting(
        "none",
        "'key': of the messages with the same key only one is in flight at a time, in the order of their offsets.",
        "choice",
        choices=("none", "key"),
        fixed=True,
    )
    start: StartAt = setting(
        "earliest",
        "Where the group begins with a partition that is new to it.",
        "choice",
        choices=("earliest", "latest"),
    )
    max_in_flight: int = setting(
        1_000, "How many messages a member may have in flight.", "count", minimum=1, maximum=100_000
    )
    visibility_timeout_ms: int | None = setting(
        None, "As the topic's setting of this name.", "ms", minimum=100, maximum=MAX_VISIBILITY_MS, inherits=True
    )
    max_retries: int | None = setting(
        None, "As the topic's setting of this name.", "count", minimum=0, maximum=1_000_000, inherits=True
    )
    retry_backoff_ms: int | None = setting(
        None, "As the topic's setting of this name.", "ms", minimum=0, maximum=_DAY_MS, inherits=True
    )
    max_retry_backoff_ms: int | None = setting(
        None, "As the topic's setting of this name.", "ms", minimum=0, maximum=_DAY_MS, inherits=True
    )
    session_timeout_ms: int = setting(
        30_000,
        "A member that is not heard of for so long is taken out of the group, unless its join says otherwise.",
        "ms",
        minimum=1_000,
        maximum=30 * 60_000,
    )
    handover_timeout_ms: int = setting(
        10_000,
        "How long the old owner of a partition that moves may take to finish what it has in hand ('sticky').",
        "ms",
        minimum=0,
        maximum=10 * 60_000,
    )
    auto_commit_ms: int = setting(
        5_000,
        "How often the offsets of a 'stream' member that joined with auto_commit are committed.",
        "ms",
        minimum=100,
        maximum=3_600_000,
    )
    idle_expiry_ms: int | None = setting(
        7 * _DAY_MS,
        "A group without members for so long is deleted, with everything it knows.",
        "ms",
        minimum=60_000,
        maximum=3_650 * _DAY_MS,
        unlimited=True,
    )

    def with_overrides(self, overrides: dict[str, Any]) -> GroupSettings:
        return dataclasses.replace(self, **overrides)


def parse_group_settings(raw: dict[str, object]) -> dict[str, Any]:
    """Check what a user wants to set; every problem is named."""
    values, problems = parse_fields(GroupSettings, raw)
    if problems:
        raise InvalidSettings("; ".join(problems[:10]))
    check_together(values.get("kind"), values.get("mode"), values.get("ordering"))
    return values


def check_together(kind: GroupKind | None, mode: GroupMode | None, ordering: Ordering | None) -> None:
    """Not everything goes with everything; ``None``: not known yet."""
    if mode == "stream" and (kind == "shared" or ordering == "key"):
        raise InvalidSettings(
            "mode: 'stream' gives whole partitions to members in offset order; it goes with kind 'range' or 'sticky' "
            "and without ordering"
        )
