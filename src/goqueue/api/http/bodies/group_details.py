"""A group as an answer shows it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from goqueue.api.http.bodies.fields import GroupStateName
from goqueue.api.http.bodies.group_schemas import GroupDetails, GroupMember, LagOfPartition
from goqueue.broker.operations import GroupDescription, MemberDescription, PartitionLag
from goqueue.model.units import format_duration_ms


def names_of(partitions: Sequence[tuple[str, int]]) -> list[str]:
    """``("orders", 0)`` is ``"orders-0"``."""
    return [f"{topic}-{number}" for topic, number in partitions]


def state_name(state: str) -> GroupStateName:
    """The names that clients know have none for a group without members."""
    return "rebalancing" if state == "rebalancing" else "stable"


def details(group: GroupDescription) -> GroupDetails:
    return GroupDetails(
        group_id=group.name,
        state=state_name(group.state),
        members=[_member(each) for each in group.members],
        generation=group.generation,
        protocol=group.settings.kind,
        settings=dataclasses.asdict(group.settings),
        overrides=group.overrides,
        lag=[_lag(each, number) for each, number in zip(group.lag, group.held_back, strict=True)],
        total_lag=sum(each.lag for each in group.lag),
        total_held_back=sum(group.held_back),
    )


def _member(member: MemberDescription) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        client_id=member.client_id,
        assigned_partitions=names_of(member.assigned),
        revoking_partitions=names_of(member.revoking),
        in_flight=member.in_flight,
        topics=member.topics,
        session_timeout=format_duration_ms(member.session_timeout_ms),
        instance_id=member.instance_id,
    )


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
