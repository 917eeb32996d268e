"""The settings of a consumer group."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from goqueue.model.errors import InvalidSettings
from goqueue.model.fields import choice, count, duration_ms, parse_fields
from goqueue.model.topic_settings import MAX_VISIBILITY_MS

GroupKind = Literal["range", "sticky", "shared"]
GroupMode = Literal["queue", "stream"]
Ordering = Literal["none", "key"]
StartAt = Literal["earliest", "latest"]

_DAY_MS = 86_400_000
_INHERITED = "As the topic's setting of this name."


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of a group, each with its default. A group stores only what was set for it."""

    kind: GroupKind = choice(
        "range",
        ("range", "sticky", "shared"),
        "How partitions are assigned to members: 'range' splits those of each topic evenly; 'sticky' also moves as few "
        "as possible, without stopping the others; 'shared' delivers messages of all partitions to every member. Can "
        "be changed while the group has no members.",
        fixed=True,
        while_empty=True,
    )
    mode: GroupMode = choice(
        "queue",
        ("queue", "stream"),
        "'queue': each message is settled on its own, by its receipt. 'stream': messages are delivered in the order of "
        "their offsets, and an offset is committed.",
        fixed=True,
    )
    ordering: Ordering = choice(
        "none",
        ("none", "key"),
        "'key': messages with the same key are in flight one at a time, in the order of their offsets.",
        fixed=True,
    )
    start: StartAt = choice(
        "earliest", ("earliest", "latest"), "Where the group starts in a partition that is new to it."
    )
    max_in_flight: int = count(1_000, (1, 100_000), "How many messages a member may have in flight.")
    visibility_timeout_ms: int | None = duration_ms(None, (100, MAX_VISIBILITY_MS), _INHERITED, inherits=True)
    max_retries: int | None = count(None, (0, 1_000_000), _INHERITED, inherits=True)
    retry_backoff_ms: int | None = duration_ms(None, (0, _DAY_MS), _INHERITED, inherits=True)
    max_retry_backoff_ms: int | None = duration_ms(None, (0, _DAY_MS), _INHERITED, inherits=True)
    session_timeout_ms: int = duration_ms(
        30_000,
        (1_000, 30 * 60_000),
        "A member that sends nothing for this long is removed from the group. A join can set another timeout.",
    )
    handover_timeout_ms: int = duration_ms(
        10_000,
        (0, 10 * 60_000),
        "Under 'sticky', how long the owner of a partition that moves may take to finish its messages in flight.",
    )
    auto_commit_ms: int = duration_ms(
        5_000,
        (100, 3_600_000),
        "How often the offsets of a 'stream' member that joined with auto_commit are committed.",
    )
    idle_expiry_ms: int | None = duration_ms(
        7 * _DAY_MS,
        (60_000, 3_650 * _DAY_MS),
        "A group that has no members for this long is deleted, with its offsets.",
        unlimited=True,
    )

    def with_overrides(self, overrides: dict[str, Any]) -> GroupSettings:
        return dataclasses.replace(self, **overrides)


def parse_group_settings(raw: dict[str, object]) -> dict[str, Any]:
    """Parse settings that a user has sent; the error names every problem."""
    values, problems = parse_fields(GroupSettings, raw)
    if problems:
        raise InvalidSettings("; ".join(problems[:10]))
    check_together(values.get("kind"), values.get("mode"), values.get("ordering"))
    return values


def check_together(kind: GroupKind | None, mode: GroupMode | None, ordering: Ordering | None) -> None:
    """Raise if these settings exclude each other; ``None``: not known yet."""
    if mode == "stream" and (kind == "shared" or ordering == "key"):
        raise InvalidSettings(
            "mode: 'stream' gives whole partitions to members in offset order; it goes with kind 'range' or 'sticky' "
            "and without ordering"
        )
