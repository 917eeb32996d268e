"""A group as an answer shows it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from goqueue.api.http.bodies.fields import GroupStateName
from goqueue.api.http.bodies.group_schemas import GroupDetails, GroupMember, LagOfPartition
from goqueue.broker.broker import Broker
from goqueue.broker.coordinator.group_shards import partition_name
from goqueue.broker.groups.group_service import PartitionLag
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.runtime.time_slices import Stretch
from goqueue.coordination.group import Group
from goqueue.model.units import format_duration_ms
from goqueue.storage.log import lanes

_HEARTBEAT_MS = 3_000
_HEARTBEATS_A_SESSION = 3


def names_of(partitions: Sequence[tuple[str, int]]) -> list[str]:
    """``("orders", 0)`` is ``"orders-0"``."""
    return [f"{topic}-{number}" for topic, number in partitions]


def state_of(broker: Broker, name: str) -> GroupStateName:
    """The names that clients know have none for a group without members."""
    return "rebalancing" if broker.groups.state(name) == "rebalancing" else "stable"


def heartbeat_interval(session_ms: int) -> str:
    """Often enough that two may be lost."""
    return format_duration_ms(min(_HEARTBEAT_MS, session_ms // _HEARTBEATS_A_SESSION))


async def details(broker: Broker, name: str) -> GroupDetails:
    lag = await broker.groups.lag_in_stretches(name)
    held_back = []
    stretch = Stretch()
    for each in lag:
        held_back.append(_held_back(broker.topic(each.topic).partition(each.partition)))
        if stretch.is_over:
            await stretch.rest()
    group = broker.groups.shards.find(name)
    settings = broker.groups.shards.settings(group)
    return GroupDetails(
        group_id=name,
        state=state_of(broker, name),
        members=_members(broker, group, lag, is_shared=settings.kind == "shared"),
        generation=group.state.generation,
        protocol=settings.kind,
        settings=dataclasses.asdict(settings),
        overrides=sorted(group.state.overrides),
        lag=[_lag(each, number) for each, number in zip(lag, held_back, strict=True)],
        total_lag=sum(each.lag for each in lag),
        total_held_back=sum(held_back),
    )


def _members(broker: Broker, group: Group, lag: list[PartitionLag], *, is_shared: bool) -> list[GroupMember]:
    """In one pass over the partitions, however many members there are."""
    assigned: dict[str, list[str]] = {}
    revoking: dict[str, list[str]] = {}
    by_topic: dict[str, list[str]] = {}
    for each in lag:
        (shown,) = names_of([(each.topic, each.partition)])
        by_topic.setdefault(each.topic, []).append(shown)
        if each.owner is not None:
            place = partition_name(broker.topic(each.topic).record.topic_id, each.partition)
            held = revoking if place in group.state.handovers else assigned
            held.setdefault(each.owner, []).append(shown)
    return [
        GroupMember(
            member_id=member_id,
            client_id=member.client_id,
            assigned_partitions=[shown for topic in member.topics for shown in by_topic.get(topic, ())]
            if is_shared
            else assigned.get(member_id, []),
            revoking_partitions=revoking.get(member_id, []),
            in_flight=group.in_flight.get(member_id, 0),
            topics=member.topics,
            session_timeout=format_duration_ms(member.session_timeout_ms),
            instance_id=member.instance_id,
        )
        for member_id, member in group.state.members.items()
    ]


def _held_back(partition: Partition) -> int:
    """How many messages nobody gets before a transaction has ended."""
    first, end = partition.stable_end, partition.high_watermark
    if first >= end:
        return 0
    return lanes.visible(partition.log, first, end) - partition.producers.state.aborted.count(first, end)


def _lag(each: PartitionLag, held_back: int) -> LagOfPartition:
    return LagOfPartition(
        each.topic,
        each.partition,
        each.committed,
        each.latest,
        each.lag,
        each.in_flight,
        each.waiting,
        each.owner,
        held_back,
    )
