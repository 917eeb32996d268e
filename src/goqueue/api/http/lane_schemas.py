"""The body of the response about priority lanes."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType


class PartitionLane(Struct):
    """``messages``: in the log now. ``published``: came since the broker started; the rate is of the last minute."""

    messages: int
    published: int
    published_per_second: float


class GroupLane(Struct, omit_defaults=True):
    """``ready``: waits for a poll. ``in_flight``: is with members. ``delivered``: since the broker started.

    ``avg_wait``: how long what was delivered had waited, from its timestamp on.
    """

    ready: int
    in_flight: int
    delivered: int
    delivered_per_second: float
    last_served: str | UnsetType = UNSET
    avg_wait: str | UnsetType = UNSET


class GroupOfPartition(Struct):
    """The lanes of a partition as a group sees them, by name."""

    group: str
    lanes: dict[str, GroupLane]


class PartitionPriorities(Struct, omit_defaults=True):
    """The lanes of a partition by name, and the groups that work on it as a queue."""

    topic: str
    partition: int
    lanes: dict[str, PartitionLane]
    groups: list[GroupOfPartition]
    groups_left_out: int = 0
    """More than one answer has room for."""


class PriorityStats(Struct, omit_defaults=True):
    """By priority: what the logs hold now, and how long what groups got had waited, if they got any.

    Both are over all partitions of the topic that was asked for, or of all topics. ``partitions`` are listed by topic
    and number; if there are more, go on with ``after=next``.
    """

    messages_by_priority: dict[str, int]
    avg_wait_time_by_priority: dict[str, str]
    partitions: list[PartitionPriorities]
    total_partitions: int
    next: str | UnsetType = UNSET
