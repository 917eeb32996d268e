"""How the priority lanes are doing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from goqueue.api.http.bodies.fields import AfterParameter
from goqueue.api.http.bodies.lane_schemas import (
    GroupLane,
    GroupOfPartition,
    PartitionLane,
    PartitionPriorities,
    PriorityStats,
)
from goqueue.api.http.routes.broker_routes import BrokerRoutes
from goqueue.api.http.routing.declaration import Documented, get
from goqueue.broker.operations import Caller, GroupLanes, LaneOfGroup, PartitionLanes, average_waits_ns
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import shown
from goqueue.model.message import PRIORITY_LABELS
from goqueue.model.units import format_duration_ms, format_instant_ns

_MAX_PARTITIONS = 1_000
_MAX_GROUPS = 1_000
"""In one answer, over all of its partitions: each takes about a kilobyte."""
_MAX_AFTER_LENGTH = 300
_IDLE = {"messages": 0, "published": 0, "published_per_second": 0}
_UNSERVED = {"ready": 0, "in_flight": 0, "delivered": 0, "delivered_per_second": 0}
_EXAMPLE: dict[str, Any] = {
    "messages_by_priority": {"critical": 3, "high": 0, "normal": 0, "low": 0, "background": 0},
    "avg_wait_time_by_priority": {"critical": "12ms"},
    "partitions": [
        {
            "topic": "orders",
            "partition": 0,
            "lanes": {
                **dict.fromkeys(PRIORITY_LABELS, _IDLE),
                "critical": {"messages": 3, "published": 3, "published_per_second": 0.05},
            },
            "groups": [
                {
                    "group": "billing",
                    "lanes": {
                        **dict.fromkeys(PRIORITY_LABELS, _UNSERVED),
                        "critical": {
                            "ready": 2,
                            "in_flight": 1,
                            "delivered": 1,
                            "delivered_per_second": 0.017,
                            "last_served": "2030-01-01T09:00:00Z",
                            "avg_wait": "12ms",
                        },
                    },
                }
            ],
        }
    ],
    "total_partitions": 3,
    "next": "orders-0",
}


class LaneRoutes(BrokerRoutes):
    """Statistics of priority lanes."""

    tag = "Priority lanes"

    @get(
        "/priority/stats",
        errors=(404,),
        answer=Documented("Lane by lane.", _EXAMPLE),
        summary="What waits in each priority lane, and for how long",
    )
    async def priority_stats(
        self,
        caller: Caller,
        topic: Annotated[str | None, Meta(description="Only partitions of this topic.")] = None,
        limit: Annotated[int, Meta(ge=1, le=_MAX_PARTITIONS, description="The most partitions to answer with.")] = 100,
        after: AfterParameter = None,
    ) -> PriorityStats:
        """Of one topic or of all, with a page of their partitions and of the groups that work on these."""
        begin = None if after is None else _parse_place(after)
        stats = await self._operations.queues.lane_stats(caller, topic)
        # With many thousands of partitions this takes tens of milliseconds; nothing changes what it looks at.
        return await asyncio.to_thread(_summary, stats, begin, limit)


def _parse_place(text: str) -> tuple[str, int]:
    topic, _, number = text.rpartition("-")
    if not topic or len(text) > _MAX_AFTER_LENGTH or not (number.isascii() and number.isdigit()):
        raise InvalidRequest(f"after is {shown(text)}; take it from 'next' of the page before")
    return topic, int(number)


def _summary(stats: Sequence[PartitionLanes], after: tuple[str, int] | None, limit: int) -> PriorityStats:
    partitions, next_place = _page(stats, after, limit)
    return PriorityStats(_messages(stats), _waits(stats), partitions, len(stats), next_place)


def _messages(stats: Sequence[PartitionLanes]) -> dict[str, int]:
    counts = [0] * len(PRIORITY_LABELS)
    for partition in stats:
        for each in partition.lanes:
            counts[each.lane] += each.stored
    return dict(zip(PRIORITY_LABELS, counts, strict=True))


def _waits(stats: Sequence[PartitionLanes]) -> dict[str, str]:
    averages = average_waits_ns(stats)
    return {PRIORITY_LABELS[lane]: _duration(wait_ns) for lane, wait_ns in averages.items() if wait_ns is not None}


def _page(
    stats: Sequence[PartitionLanes], after: tuple[str, int] | None, limit: int
) -> tuple[list[PartitionPriorities], str | UnsetType]:
    """What fits, and where to go on. A partition with more groups than fit into any answer is cut, and says so."""
    page: list[PartitionPriorities] = []
    room = _MAX_GROUPS
    rest = (each for each in stats if after is None or (each.topic, each.partition) > after)
    for each in rest:
        if len(page) == limit or (page and len(each.groups) > room):
            return page, f"{page[-1].topic}-{page[-1].partition}"
        groups = [_of_group(group) for group in islice(each.groups, room)]
        room -= len(groups)
        lanes = {
            PRIORITY_LABELS[lane.lane]: PartitionLane(lane.stored, lane.published, round(lane.published_per_second, 3))
            for lane in each.lanes
        }
        page.append(PartitionPriorities(each.topic, each.partition, lanes, groups, len(each.groups) - len(groups)))
    return page, UNSET


def _of_group(group: GroupLanes) -> GroupOfPartition:
    return GroupOfPartition(group.group, {PRIORITY_LABELS[each.lane]: _lane(each) for each in group.lanes})


def _lane(lane: LaneOfGroup) -> GroupLane:
    return GroupLane(
        lane.ready,
        lane.in_flight,
        lane.delivered,
        round(lane.delivered_per_second, 3),
        UNSET if lane.last_served_ns is None else format_instant_ns(lane.last_served_ns),
        UNSET if lane.average_wait_ns is None else _duration(lane.average_wait_ns),
    )


def _duration(nanoseconds: int) -> str:
    return format_duration_ms(nanoseconds // NANOS_PER_MS)
