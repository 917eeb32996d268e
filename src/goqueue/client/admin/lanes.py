"""Lane statistics, as returned by the client."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from goqueue.client.connection.instants import from_nanoseconds
from goqueue.client.connection.structs import struct_of
from goqueue.wire.proto import goqueue_pb2 as pb


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


def to_partition_lanes(found: pb.PartitionLanes) -> PartitionLanes:
    groups = [GroupLanes(each.group, [struct_of(GroupLane, lane) for lane in each.lanes]) for each in found.groups]
    return struct_of(
        PartitionLanes, found, lanes=[struct_of(PartitionLane, each) for each in found.lanes], groups=groups
    )
