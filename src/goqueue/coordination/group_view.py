"""What a shard was shown of a group: enough to serve the group's members in its partitions without the coordinator.

The coordinator decides who owns what; a shard journals what of that concerns its own partitions, and goes by it. Only
what has changed for a shard is journaled there, so its ``generation`` is that of the last change that concerned it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from goqueue.coordination.group import Group, Member
from goqueue.model.ids import GroupId, PartitionKey


class SeenMember(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member as far as it concerns a shard. ``topics`` are only noted where any member takes from any partition."""

    topics: list[str] = []
    auto_commit: bool = False


class ViewEvent(msgspec.Struct, frozen=True):
    """What this shard was shown of a group. ``identity`` tells it from groups that had its name before."""

    group: str
    identity: GroupId


class GroupSeen(ViewEvent, frozen=True, tag="group_seen", omit_defaults=True):
    """What has changed, as of a generation; all there is, if nothing is known of a group of this identity.

    ``owners`` may take messages from partitions of this shard from now on; from ``left_alone`` no one may.
    """

    generation: int
    settings: dict[str, Any] | None = None
    joined: dict[str, SeenMember] = {}
    left: list[str] = []
    owners: dict[PartitionKey, str] = {}
    left_alone: list[PartitionKey] = []


class GroupForgotten(ViewEvent, frozen=True, tag="group_forgotten"):
    """The group is gone, or has nothing to do with this shard any more."""


AnyViewEvent = GroupSeen | GroupForgotten


class GroupView(msgspec.Struct):
    """What the events come to. ``settings`` are those that are not left to the broker's defaults."""

    group: str
    identity: GroupId
    generation: int
    settings: dict[str, Any]
    members: dict[str, SeenMember] = {}
    """In a shared group all; else those that own something here."""
    owners: dict[PartitionKey, str] = {}
    """Who may take messages from which partition. Not among them: partitions that are to change hands, and in a shared
    group all of them."""

    def apply(self, event: GroupSeen) -> None:
        self.generation = event.generation
        if event.settings is not None:
            self.settings = event.settings
        for member_id in event.left:
            self.members.pop(member_id, None)
        self.members |= event.joined
        for partition in event.left_alone:
            self.owners.pop(partition, None)
        self.owners |= event.owners


def first_view(event: GroupSeen) -> GroupView:
    """The view that begins with an event."""
    view = GroupView(event.group, event.identity, event.generation, {})
    view.apply(event)
    return view


def decide_view(
    group: Group,
    settings: dict[str, Any],
    view: GroupView | None,
    owners: Mapping[PartitionKey, str],
    *,
    is_shared: bool,
) -> GroupSeen | None:
    """What a shard with queues of a group is to be shown, given what it has seen; ``None``: nothing has changed for it.

    ``settings`` are those of the group that are not left to defaults, ``owners`` those who may take messages from the
    shard's partitions.
    """
    state = group.state
    wanted = state.members if is_shared else dict.fromkeys(owners.values())
    if view is None or view.identity != state.identity:
        seen = {member_id: _seen(state.members[member_id], is_shared=is_shared) for member_id in wanted}
        return GroupSeen(state.name, state.identity, state.generation, settings, seen, [], dict(owners))
    if settings == view.settings and owners == view.owners and wanted.keys() == view.members.keys():
        return None
    return GroupSeen(
        state.name,
        state.identity,
        state.generation,
        None if settings == view.settings else settings,
        {
            member_id: _seen(state.members[member_id], is_shared=is_shared)
            for member_id in wanted
            if member_id not in view.members
        },
        [member_id for member_id in view.members if member_id not in wanted],
        {partition: owner for partition, owner in owners.items() if view.owners.get(partition) != owner},
        [partition for partition in view.owners if partition not in owners],
    )


def _seen(member: Member, *, is_shared: bool) -> SeenMember:
    return SeenMember(member.topics if is_shared else [], member.auto_commit)
