"""The body of the response about priority lanes."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.api.http.bodies.fields import GroupField, NextPageField, PartitionField, TopicField


class PartitionLane(Struct):
    """A lane of a partition."""

    messages: Annotated[int, Meta(description="In the log now.")]
    published: Annotated[int, Meta(description="Came since the broker started.")]
    published_per_second: Annotated[float, Meta(description="The same as a rate, of about the last minute.")]


class GroupLane(Struct, omit_defaults=True):
    """A lane of a partition as a group sees it."""

    ready: Annotated[int, Meta(description="Messages that wait for a poll.")]
    in_flight: Annotated[int, Meta(description="Messages that are with members.")]
    delivered: Annotated[int, Meta(description="Messages that members were given since the broker started.")]
    delivered_per_second: Annotated[float, Meta(description="The same as a rate, of about the last minute.")]
    last_served: Annotated[
        str | UnsetType, Meta(description="When a member was last given one (RFC 3339); left out if none was.")
    ] = UNSET
    avg_wait: Annotated[
        str | UnsetType,
        Meta(description="How long what was delivered had waited, from its timestamp on, such as 12ms."),
    ] = UNSET


class GroupOfPartition(Struct):
    """A group that works on a partition."""

    group: GroupField
    lanes: Annotated[
        dict[str, GroupLane], Meta(description="The lanes of the partition as the group sees them, by name.")
    ]


class PartitionPriorities(Struct, omit_defaults=True):
    """A partition and its lanes."""

    topic: TopicField
    partition: PartitionField
    lanes: Annotated[dict[str, PartitionLane], Meta(description="Its lanes by name.")]
    groups: Annotated[list[GroupOfPartition], Meta(description="The groups that work on it as a queue.")]
    groups_left_out: Annotated[
        int, Meta(description="How many more groups there are than one answer has room for.")
    ] = 0


class PriorityStats(Struct, omit_defaults=True):
    """Of the topic that was asked for, or of all topics."""

    messages_by_priority: Annotated[
        dict[str, int], Meta(description="What the logs of all partitions hold now, by lane.")
    ]
    avg_wait_time_by_priority: Annotated[
        dict[str, str],
        Meta(description="How long what groups got had waited, by lane; only lanes of which they got any."),
    ]
    partitions: Annotated[list[PartitionPriorities], Meta(description="A page of partitions, by topic and number.")]
    total_partitions: Annotated[int, Meta(description="How many there are on all pages.")]
    next: NextPageField | UnsetType = UNSET
