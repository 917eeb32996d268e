"""How lanes are doing, as the Groups service says it."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.broker.operations import LaneOfGroup, LaneOfPartition, PartitionLanes
from goqueue.model.errors import InvalidRequest
from goqueue.wire.proto import goqueue_pb2 as pb

_PARTITIONS = 100
_MAX_PARTITIONS = 1_000
_MAX_GROUPS = 10_000
"""In one answer, over all of its partitions: each takes about 200 bytes."""


def to_lane_stats(found: Sequence[PartitionLanes], request: pb.LaneStatsRequest) -> pb.LaneStatsResponse:
    """The part that was asked for. ``found`` is in order."""
    if request.limit > _MAX_PARTITIONS:
        raise InvalidRequest(f"limit is {request.limit}; at most {_MAX_PARTITIONS} partitions are allowed")
    if request.HasField("after"):
        last = (request.after.topic, request.after.partition)
        found = [each for each in found if (each.topic, each.partition) > last]
    page: list[pb.PartitionLanes] = []
    room = _MAX_GROUPS
    for each in found[: request.limit or _PARTITIONS]:
        if page and len(each.groups) > room:
            break
        page.append(_of_partition(each, room))
        room -= len(page[-1].groups)
    return pb.LaneStatsResponse(partitions=page, more=len(page) < len(found))


def _of_partition(stats: PartitionLanes, most_groups: int) -> pb.PartitionLanes:
    """A partition with more groups than fit into any answer is cut, and says so."""
    groups = stats.groups[:most_groups]
    return pb.PartitionLanes(
        topic=stats.topic,
        partition=stats.partition,
        lanes=[_lane_of_partition(each) for each in stats.lanes],
        groups=[
            pb.GroupLanes(group=each.group, lanes=[_lane_of_group(lane) for lane in each.lanes]) for each in groups
        ],
        groups_left_out=len(stats.groups) - len(groups),
    )


def _lane_of_partition(lane: LaneOfPartition) -> pb.PartitionLane:
    return pb.PartitionLane(
        priority=lane.lane, stored=lane.stored, published=lane.published, published_per_second=lane.published_per_second
    )


def _lane_of_group(lane: LaneOfGroup) -> pb.GroupLane:
    return pb.GroupLane(
        priority=lane.lane,
        ready=lane.ready,
        in_flight=lane.in_flight,
        delivered=lane.delivered,
        delivered_per_second=lane.delivered_per_second,
        last_served_ns=lane.last_served_ns,
        average_wait_ns=lane.average_wait_ns,
    )
