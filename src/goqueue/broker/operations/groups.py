"""Operations on groups and their members: join, heartbeat, leave, configure, describe."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from goqueue.broker.groups.group_offsets import PartitionLag
from goqueue.broker.groups.group_service import GroupStateName
from goqueue.broker.groups.membership import Assignment, Join
from goqueue.broker.operations.caller import Caller
from goqueue.broker.operations.gate import Resource, ResourceOperations, Served, operation
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.runtime.time_slices import TimeSlice
from goqueue.broker.shards.active_group import ActiveGroup
from goqueue.model.group_settings import GroupSettings
from goqueue.model.ids import partition_key
from goqueue.storage.log import lanes

AssignedPartitions = list[tuple[str, int]]
"""Topics and partition numbers."""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group, and what it has."""

    member_id: str
    client_id: str
    instance_id: str
    topics: list[str]
    session_timeout_ms: int
    assigned: AssignedPartitions
    revoking: AssignedPartitions
    """Partitions that the member has to let go of."""
    in_flight: int


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as of one moment."""

    name: str
    state: GroupStateName
    generation: int
    created_at_ns: int
    settings: GroupSettings
    overrides: list[str]
    members: list[MemberDescription]
    lag: list[PartitionLag]
    held_back: list[int]
    """For each of ``lag``: how many messages no one gets before a transaction has ended."""


class GroupOperations(ResourceOperations):
    """What changes a group is durable when the operation returns."""

    @operation("groups.list", Resource.BROKER)
    def names(self, caller: Caller) -> list[str]:
        """The names of all groups of users, sorted."""
        return self._host.groups.shards.names()

    @operation("groups.describe", Resource.GROUP)
    def describe(self, caller: Caller, group: str) -> Coroutine[Any, Any, GroupDescription]:
        """Settings in effect, members, and how far the group is in each partition."""
        return self._describe(group)

    async def _describe(self, group: str) -> GroupDescription:
        groups = self._host.groups
        lag = await groups.offsets.lag_in_stretches(group)
        held_back = []
        stretch = TimeSlice()
        for each in lag:
            held_back.append(_held_back(self._host.topics.find(each.topic).partition(each.partition)))
            if stretch.is_over:
                await stretch.rest()
        found = groups.shards.find(group)
        state = found.group.state
        settings = found.settings
        return GroupDescription(
            group,
            groups.state(group),
            state.generation,
            state.created_at_ns,
            settings,
            sorted(state.overrides),
            self._members(found, lag, is_shared=settings.kind == "shared"),
            lag,
            held_back,
        )

    def _members(self, active: ActiveGroup, lag: list[PartitionLag], *, is_shared: bool) -> list[MemberDescription]:
        """In one pass over the partitions, however many members there are."""
        group = active.group
        assigned: dict[str, AssignedPartitions] = {}
        revoking: dict[str, AssignedPartitions] = {}
        by_topic: dict[str, AssignedPartitions] = {}
        for each in lag:
            place = each.topic, each.partition
            by_topic.setdefault(each.topic, []).append(place)
            if each.owner is not None:
                named = partition_key(self._host.topics.find(each.topic).record.topic_id, each.partition)
                held = revoking if named in group.state.handovers else assigned
                held.setdefault(each.owner, []).append(place)
        return [
            MemberDescription(
                member_id,
                member.client_id,
                member.instance_id,
                member.topics,
                member.session_timeout_ms,
                [place for topic in member.topics for place in by_topic.get(topic, ())]
                if is_shared
                else assigned.get(member_id, []),
                revoking.get(member_id, []),
                active.in_flight(member_id),
            )
            for member_id, member in group.state.members.items()
        ]

    @operation("groups.configure", Resource.GROUP)
    async def configure(self, caller: Caller, group: str, settings: Mapping[str, object]) -> GroupDescription:
        """Make a group, or change those of its settings that are named and can change."""
        await self._host.groups.configure(group, settings)
        return await self._describe(group)

    @operation("groups.delete", Resource.GROUP)
    def delete(self, caller: Caller, group: str) -> Coroutine[Any, Any, None]:
        """Forget a group that has no members, with its offsets."""
        return self._host.groups.delete(group)

    @operation("groups.join", Resource.GROUP, Served.WHILE_ACCEPTING)
    def join(self, caller: Caller, group: str, request: Join) -> Coroutine[Any, Any, Assignment]:
        """Add a member; the first join makes the group."""
        return self._host.groups.membership.join(group, request)

    @operation("groups.resume", Resource.GROUP)
    def resume(
        self, caller: Caller, group: str, member_id: str, held: Collection[tuple[str, int, int]]
    ) -> Coroutine[Any, Any, Assignment]:
        """The member is back after a broken connection, with these leases (topic, partition, lease) and no others."""
        return self._host.groups.membership.resume(group, member_id, held)

    @operation("groups.heartbeat", Resource.GROUP)
    def heartbeat(
        self, caller: Caller, group: str, member_id: str, generation: int | None
    ) -> Coroutine[Any, Any, Assignment]:
        """Stay in a group; return the member's current assignment."""
        return self._host.groups.membership.heartbeat(group, member_id, generation)

    @operation("groups.leave", Resource.GROUP)
    def leave(self, caller: Caller, group: str, member_id: str, *, if_idle: bool = False) -> Coroutine[Any, Any, bool]:
        """Leave a group and give back messages in flight. With ``if_idle``, return False instead if there are any."""
        return self._host.groups.membership.leave(group, member_id, if_idle=if_idle)

    @operation("groups.next_assignment", Resource.GROUP)
    def next_assignment(self, caller: Caller, group: str, member_id: str, seen: int) -> Coroutine[Any, Any, Assignment]:
        """The member's assignment, as soon as it is newer than version ``seen``."""
        return self._host.groups.membership.next_assignment(group, member_id, seen)

    @operation("groups.state", Resource.GROUP)
    def state(self, caller: Caller, group: str) -> GroupStateName:
        """Whether the group has members, and whether partitions are changing hands."""
        return self._host.groups.state(group)

    @operation("groups.members", Resource.GROUP)
    def member_ids(self, caller: Caller, group: str) -> list[str]:
        """The members of a group, in the order in which they joined."""
        return list(self._host.groups.shards.find(group).group.state.members)

    @operation("groups.attach", Resource.GROUP, Served.ALWAYS)
    def attach(self, caller: Caller, group: str, member_id: str, change: int) -> None:
        """A stream of the member's has begun (1) or ended (-1): while it has one, its session does not expire."""
        self._host.groups.membership.attach(group, member_id, change)

    @operation("groups.set_window", Resource.GROUP, Served.ALWAYS)
    def set_window(self, caller: Caller, group: str, member_id: str, messages: int | None) -> None:
        """How many messages a member wants in flight; ``None``: as many as it may have."""
        self._host.groups.membership.set_window(group, member_id, messages)


def _held_back(partition: Partition) -> int:
    first, end = partition.stable_end, partition.high_watermark
    if first >= end:
        return 0
    return lanes.visible(partition.log, first, end) - partition.producers.state.aborted.count(first, end)
