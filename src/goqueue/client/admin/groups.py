"""Groups, dead letters and lanes, as returned by the client."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import msgspec

from goqueue.client.connection.instants import from_nanoseconds, to_nanoseconds
from goqueue.client.connection.structs import struct_of
from goqueue.client.consumer.reader import unpacked
from goqueue.client.consumer.stream_source import TopicPartition
from goqueue.model.message import Headers, Message
from goqueue.wire.batch import parse_batch
from goqueue.wire.decoding import decode_run
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.trace_context import trace_id_of


class GroupMember(msgspec.Struct, frozen=True):
    """A member of a group. ``in_flight`` counts messages delivered to it and not settled."""

    member_id: str
    client_id: str
    instance_id: str
    topics: list[str]
    assigned: list[TopicPartition]
    in_flight: int


class GroupPartition(msgspec.Struct, frozen=True):
    """Progress of a group in one partition. ``waiting`` counts messages that wait for a retry."""

    topic: str
    partition: int
    committed: int
    latest: int
    lag: int
    in_flight: int
    waiting: int
    owner: str


class GroupInfo(msgspec.Struct, frozen=True):
    """A group. ``state``: stable, rebalancing or empty. ``settings`` are those in effect, in the form of configuration
    values."""

    name: str
    state: str
    generation: int
    members: list[GroupMember]
    settings: dict[str, str]
    overrides: list[str]
    partitions: list[GroupPartition]
    created_at: datetime

    @property
    def lag(self) -> int:
        """Number of unfinished messages in all partitions."""
        return sum(each.lag for each in self.partitions)


class DeadLetter(msgspec.Struct, frozen=True):
    """A message that a group failed to handle. ``partition`` and ``offset`` are its position in the dead-letter
    topic."""

    partition: int
    offset: int
    key: bytes | None
    value: Any
    headers: Headers
    priority: int
    died_at: datetime
    origin_topic: str
    origin_partition: int
    origin_offset: int
    group: str
    error: str
    deliveries: int
    redriven: bool

    @property
    def trace_id(self) -> str:
        """The trace of the original message, 32 hexadecimal digits; the dead letter belongs to it too."""
        return trace_id_of(self.headers, self.origin_topic, self.origin_partition, self.origin_offset)


class PeekedMessage(msgspec.Struct, frozen=True):
    """An unfinished message of a group, and its state there.

    ``state``: waiting, in-flight, retry, moving (to the dead-letter topic) or in-transaction (acked in an open one).
    ``until``: end of the delivery in flight, or time of the next retry; ``None`` is now. ``error``: why the last
    delivery failed.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: Any
    headers: Headers
    priority: int
    timestamp: datetime
    state: str
    deliveries: int
    member: str
    until: datetime | None
    error: str

    @property
    def trace_id(self) -> str:
        """The trace of the message, 32 hexadecimal digits."""
        return trace_id_of(self.headers, self.topic, self.partition, self.offset)


class RedriveReport(msgspec.Struct, frozen=True):
    """Result of a redrive; of a dry run, what a redrive would do.

    ``already`` were redriven before; ``unreachable`` cannot be sent back because their topic or group no longer exists.
    """

    matched: int
    redriven: int
    already: int
    unreachable: int
    by_topic: dict[str, int]


class ReliabilityStats(msgspec.Struct, frozen=True):
    """Delivery counters since the broker started."""

    acks: int
    nacks: int
    rejects: int
    extensions: int
    redeliveries: int
    visibility_timeouts: int
    dead_letters: int
    redriven: int
    expired: int


class PartitionLane(msgspec.Struct, frozen=True):
    """One lane of one partition: ``stored`` in the log now; ``published`` since the broker started."""

    priority: int
    stored: int
    published: int
    published_per_second: float


class GroupLane(msgspec.Struct, frozen=True):
    """One lane of one partition for one group: ``ready`` to deliver, in flight, and delivered since the broker
    started."""

    priority: int
    ready: int
    in_flight: int
    delivered: int
    delivered_per_second: float
    last_served_ns: int | None
    average_wait_ns: int | None

    @property
    def last_served(self) -> datetime | None:
        """Time of the last delivery from this lane to the group."""
        return None if self.last_served_ns is None else from_nanoseconds(self.last_served_ns)

    @property
    def average_wait(self) -> timedelta | None:
        """Average time from a message's timestamp to its delivery."""
        return None if self.average_wait_ns is None else timedelta(microseconds=self.average_wait_ns // 1_000)


class GroupLanes(msgspec.Struct, frozen=True):
    """The five lanes of one partition for one group."""

    group: str
    lanes: list[GroupLane]


class PartitionLanes(msgspec.Struct, frozen=True):
    """The five lanes of one partition, the most urgent first, and the groups that consume it as a queue.

    Beyond ten thousand groups, ``groups_left_out`` are not listed.
    """

    topic: str
    partition: int
    lanes: list[PartitionLane]
    groups: list[GroupLanes]
    groups_left_out: int = 0


def to_group_info(group: pb.Group) -> GroupInfo:
    return struct_of(
        GroupInfo,
        group,
        members=[
            struct_of(
                GroupMember,
                each,
                topics=list(each.topics),
                assigned=[TopicPartition(place.topic, place.partition) for place in each.assigned],
            )
            for each in group.members
        ],
        settings=dict(group.settings),
        overrides=list(group.overrides),
        partitions=[struct_of(GroupPartition, each) for each in group.partitions],
        created_at=from_nanoseconds(group.created_at_ns),
    )


def to_dead_letter(letter: pb.DeadLetter) -> DeadLetter:
    return struct_of(
        DeadLetter, letter, died_at=from_nanoseconds(letter.died_at_ns), **_contents(decode_single(letter.message))
    )


def to_peeked(peeked: pb.PeekedMessage) -> PeekedMessage:
    message = decode_single(peeked.message)
    return struct_of(
        PeekedMessage,
        peeked,
        offset=message.offset,
        timestamp=from_nanoseconds(message.timestamp_ns),
        until=from_nanoseconds(peeked.until_ns) if peeked.until_ns else None,
        **_contents(message),
    )


def _contents(message: Message) -> dict[str, Any]:
    value = unpacked(message, None)
    return {"key": message.key, "value": value, "headers": message.headers, "priority": message.priority}


def decode_single(batch: bytes) -> Message:
    """The only message of a batch."""
    [message], _ = decode_run(parse_batch(batch), verify=False)
    return message


def to_filter(
    group: str | None, error: str | None, since: datetime | None, until: datetime | None
) -> pb.DeadLetterFilter:
    return pb.DeadLetterFilter(
        group=group or "",
        error=error or "",
        since_ns=0 if since is None else to_nanoseconds(since),
        until_ns=0 if until is None else to_nanoseconds(until),
    )


def merge_reports(reports: list[pb.RedriveResponse]) -> RedriveReport:
    by_topic: Counter[str] = Counter()
    for each in reports:
        by_topic.update(each.by_topic)
    counts = {name: sum(getattr(each, name) for each in reports) for name in RedriveReport.__struct_fields__[:-1]}
    return RedriveReport(**counts, by_topic=dict(by_topic))


def to_offsets(response: pb.FetchOffsetsResponse) -> dict[TopicPartition, int]:
    return {TopicPartition(each.topic, each.partition): each.offset for each in response.offsets}


def to_partition_lanes(found: pb.PartitionLanes) -> PartitionLanes:
    groups = [GroupLanes(each.group, [struct_of(GroupLane, lane) for lane in each.lanes]) for each in found.groups]
    return struct_of(
        PartitionLanes, found, lanes=[struct_of(PartitionLane, each) for each in found.lanes], groups=groups
    )
