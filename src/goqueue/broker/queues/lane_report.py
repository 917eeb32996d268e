"""How the lanes are doing: what came, what waits, what was served, and how long it had waited."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.runtime.time_slices import TimeSlice
from goqueue.broker.shards.active_group import ActiveGroup
from goqueue.broker.shards.backlog import LANES, waiting
from goqueue.broker.shards.group_runtime import Served
from goqueue.broker.shards.shard_directory import Shards
from goqueue.delivery.leases import lane_of
from goqueue.delivery.queue import Queue
from goqueue.storage.log import lanes

_EVERYTHING = 1 << 62


@dataclass(frozen=True, slots=True)
class LaneOfPartition:
    """One lane of one partition."""

    lane: int
    stored: int
    published: int
    published_per_second: float


@dataclass(frozen=True, slots=True)
class LaneOfGroup:
    """The same lane as a group sees it."""

    lane: int
    ready: int
    in_flight: int
    delivered: int
    delivered_per_second: float
    last_served_ns: int | None
    average_wait_ns: int | None


@dataclass(frozen=True, slots=True)
class GroupLanes:
    group: str
    lanes: list[LaneOfGroup]


@dataclass(frozen=True, slots=True)
class PartitionLanes:
    topic: str
    partition: int
    lanes: list[LaneOfPartition]
    groups: list[GroupLanes]


async def lane_stats(shards: Shards, topic: str | None) -> list[PartitionLanes]:
    """Of every partition, or of those of one topic, in order."""
    now_ns = shards.clock.now_ns()
    topics = [shards.host.topic(topic)] if topic is not None else list(shards.host.running_topics())
    queues: dict[Partition, list[tuple[ActiveGroup, Queue]]] = {}
    stretch = TimeSlice()
    for name in shards.names():
        group = shards.get(name)
        if group is None or group.settings.mode != "queue":
            continue
        for queue in group.queues():
            place = group.shards.place(queue)
            if place is not None:
                queues.setdefault(place[1], []).append((group, queue))
            if stretch.is_over:
                await stretch.rest()
    found = []
    for each in sorted(topics, key=lambda one: one.name):
        for number, partition in enumerate(each.partitions):
            if each.closed:
                break
            groups = [
                _of_group(group, queue, partition, now_ns)
                for group, queue in queues.get(partition, ())
                if group.shards.has(queue)
            ]
            found.append(PartitionLanes(each.name, number, _of_partition(partition, now_ns), groups))
            # Index files of old segments may have to be read.
            if stretch.is_over:
                await stretch.rest()
    return found


def _of_partition(partition: Partition, now_ns: int) -> list[LaneOfPartition]:
    start, end = partition.log.start_offset, partition.stable_end
    return [
        LaneOfPartition(lane, lanes.count(partition.log, lane, start, end), rate.total, rate.per_second(now_ns))
        for lane, rate in enumerate(partition.arrivals)
    ]


def _of_group(group: ActiveGroup, queue: Queue, partition: Partition, now_ns: int) -> GroupLanes:
    ready = waiting(queue, partition, _EVERYTHING)
    in_flight = _in_flight(queue)
    served = group.runtime.served.get(queue.key, {})
    return GroupLanes(
        queue.group,
        [_lane_of_group(lane, ready.get(lane, 0), in_flight.get(lane, 0), served.get(lane), now_ns) for lane in LANES],
    )


def _lane_of_group(lane: int, ready: int, in_flight: int, served: Served | None, now_ns: int) -> LaneOfGroup:
    if served is None:
        return LaneOfGroup(lane, ready, in_flight, 0, 0.0, None, None)
    total = served.rate.total
    average_ns = served.waited_ns // total if total else None
    return LaneOfGroup(lane, ready, in_flight, total, served.rate.per_second(now_ns), served.last_ns, average_ns)


def _in_flight(queue: Queue) -> dict[int, int]:
    counts: dict[int, int] = {}
    for batch in queue.batches():
        if batch.member is not None:
            lane = lane_of(batch.lease)
            counts[lane] = counts.get(lane, 0) + batch.bits.bit_count()
    return counts


def average_waits_ns(stats: Iterable[PartitionLanes]) -> dict[int, int | None]:
    """By lane, over all groups."""
    totals: dict[int, tuple[int, int]] = {}
    for partition in stats:
        for group in partition.groups:
            for each in group.lanes:
                count, waited_ns = totals.get(each.lane, (0, 0))
                totals[each.lane] = count + each.delivered, waited_ns + (each.average_wait_ns or 0) * each.delivered
    return {lane: waited_ns // count if count else None for lane, (count, waited_ns) in sorted(totals.items())}
