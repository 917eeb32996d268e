"""Rebalances: who owns which partition once a member joins or leaves, or topics change, and what is handed over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from goqueue.coordination.assignment import Partitions, assign_range, assign_sticky
from goqueue.coordination.group import (
    AnyGroupEvent,
    Group,
    Handover,
    Member,
    MemberJoined,
    MemberLeft,
    Rebalanced,
    with_successor,
)
from goqueue.model.ids import PartitionKey


class Rules(msgspec.Struct, frozen=True):
    """What a decision about members goes by."""

    kind: str
    now_ns: int
    handover_deadline_ns: int = 0


def decide_join(group: Group, member: Member, partitions: Partitions, rules: Rules) -> list[AnyGroupEvent]:
    """``partitions`` are those of every topic that any member names."""
    replaced = group.instance(member.instance_id) if member.instance_id else None
    joined = MemberJoined(group.name, member, replaced.member_id if replaced else "")
    members = {name: each for name, each in group.state.members.items() if each is not replaced}
    members[member.member_id] = member
    owners, handovers = group.state.owners, group.state.handovers
    if replaced is not None:
        # What the instance had, or was to have, it keeps: a quick restart moves nothing.
        owners, handovers = with_successor(owners, handovers, replaced.member_id, member.member_id)
    return [joined, _rebalance(group, members, owners, handovers, partitions, rules)]


def decide_leave(group: Group, gone: Sequence[str], partitions: Partitions, rules: Rules) -> list[AnyGroupEvent]:
    members = {name: member for name, member in group.state.members.items() if name not in gone}
    events: list[AnyGroupEvent] = [MemberLeft(group.name, each, rules.now_ns) for each in gone]
    return [*events, _rebalance(group, members, group.state.owners, group.state.handovers, partitions, rules)]


def decide_rebalance(group: Group, partitions: Partitions, rules: Rules) -> list[AnyGroupEvent]:
    """Topics have come, gone, or grown."""
    event = _rebalance(group, group.state.members, group.state.owners, group.state.handovers, partitions, rules)
    is_news = event.owners != group.state.owners or event.handovers != group.state.handovers
    return [event] if is_news else []


def _rebalance(
    group: Group,
    members: Mapping[str, Member],
    owners: Mapping[PartitionKey, str],
    begun: Mapping[PartitionKey, Handover],
    partitions: Partitions,
    rules: Rules,
) -> Rebalanced:
    generation = group.state.generation + 1
    # By instance where there is one: one that comes back under another id has its old place among the others.
    ranked = sorted(members.values(), key=lambda member: (member.instance_id or member.member_id, member.member_id))
    subscribed = {member.member_id: member.topics for member in ranked}
    if rules.kind == "shared":
        return Rebalanced(group.name, generation, {}, {})
    if rules.kind == "range":
        return Rebalanced(group.name, generation, assign_range(partitions, subscribed), {})
    # A partition that is changing hands counts as its next owner's, if that is still there.
    settled = {
        partition: begun[partition].to if partition in begun and begun[partition].to in members else owner
        for partition, owner in owners.items()
    }
    target = assign_sticky(partitions, subscribed, settled, owners)
    now: dict[PartitionKey, str] = {}
    handovers: dict[PartitionKey, Handover] = {}
    for partition, member in target.items():
        owner = owners.get(partition)
        if owner is None or owner == member or owner not in members:
            now[partition] = member
            continue
        now[partition] = owner
        # Whichever member gets it in the end: its owner was notified once, and has that long.
        deadline_ns = begun[partition].deadline_ns if partition in begun else rules.handover_deadline_ns
        handovers[partition] = Handover(member, deadline_ns)
    return Rebalanced(group.name, generation, now, handovers)
