"""One group: its members, who owns which partition, its settings, and what changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.errors import GroupConflict, InvalidSettings, MemberFenced, StaleGeneration, UnknownMember
from goqueue.model.fields import shown, specs
from goqueue.model.group_settings import GroupSettings, check_together
from goqueue.model.ids import GroupId, PartitionKey

MAX_REMEMBERED_FENCED = 100


class Member(msgspec.Struct, frozen=True, omit_defaults=True):
    """Someone who works for the group."""

    member_id: str
    client_id: str
    topics: list[str]
    session_timeout_ms: int
    instance_id: str = ""
    auto_commit: bool = False


class Handover(msgspec.Struct, frozen=True, array_like=True):
    """A partition that leaves its owner: ``to`` gets it when the owner has let go, at the latest at the deadline."""

    to: str
    deadline_ns: int


class GroupEvent(msgspec.Struct, frozen=True):
    """Something that happened to the group ``group``."""

    group: str


class GroupMade(GroupEvent, frozen=True, tag="group_made"):
    """A group exists from now on. ``identity`` distinguishes it from groups that had the name before.

    ``fixed`` are the settings that never change, also where they were the defaults of that day.
    """

    identity: GroupId
    overrides: dict[str, Any]
    at_ns: int
    fixed: dict[str, Any] = {}


class GroupChanged(GroupEvent, frozen=True, tag="group_changed"):
    """Its settings are these from now on, all of them."""

    overrides: dict[str, Any]


class GroupDeleted(GroupEvent, frozen=True, tag="group_deleted"):
    """It is gone, and everything it knew."""


class MemberJoined(GroupEvent, frozen=True, tag="joined"):
    """In place of ``replaces`` if that is set: the same instance, in another process."""

    member: Member
    replaces: str = ""


class MemberLeft(GroupEvent, frozen=True, tag="left"):
    """Of itself, or because nothing was heard of it."""

    member_id: str
    at_ns: int


class Rebalanced(GroupEvent, frozen=True, tag="rebalanced"):
    """Who owns what from now on, and what is to change hands."""

    generation: int
    owners: dict[PartitionKey, str]
    handovers: dict[PartitionKey, Handover]


class HandedOver(GroupEvent, frozen=True, tag="handed_over"):
    """These partitions belong to those who waited for them."""

    partitions: list[PartitionKey]


AnyGroupEvent = GroupMade | GroupChanged | GroupDeleted | MemberJoined | MemberLeft | Rebalanced | HandedOver


class GroupState(msgspec.Struct):
    """What a snapshot holds of a group."""

    name: str
    identity: GroupId
    overrides: dict[str, Any]
    created_at_ns: int
    empty_since_ns: int
    generation: int = 0
    members: dict[str, Member] = {}
    owners: dict[PartitionKey, str] = {}
    handovers: dict[PartitionKey, Handover] = {}
    fixed: dict[str, Any] = {}
    fenced: list[str] = []
    """Members whose instance came back under another id; so many as are worth a better error."""


def new_state(made: GroupMade) -> GroupState:
    return GroupState(made.group, made.identity, made.overrides, made.at_ns, made.at_ns, fixed=made.fixed)


_Owned = tuple[Mapping[PartitionKey, str], Mapping[PartitionKey, Handover], dict[str, list[PartitionKey]]]
"""Owners and handovers, and what each member may take messages from according to them."""


class Group:
    """Looks and decides; ``apply`` changes."""

    def __init__(self, state: GroupState) -> None:
        self.state = state
        self.name = state.name
        self._owned: _Owned | None = None

    def member(self, member_id: str) -> Member:
        found = self.state.members.get(member_id)
        if found is not None:
            return found
        if member_id in self.state.fenced:
            raise MemberFenced(
                f"member {shown(member_id)} of group {self.name!r} was replaced by another process with its instance_id"
            )
        raise UnknownMember(f"group {self.name!r} has no member {shown(member_id)}; it has to join")

    def check_generation(self, generation: int | None) -> None:
        """A request that names another generation than the present one comes from the past."""
        if generation is not None and generation != self.state.generation:
            raise StaleGeneration(
                f"generation {shown(generation)} of group {self.name!r} is over; it is {self.state.generation} now"
            )

    def instance(self, instance_id: str) -> Member | None:
        return next((each for each in self.state.members.values() if each.instance_id == instance_id), None)

    def owned(self) -> dict[str, list[PartitionKey]]:
        """What each member may take messages from: not what it is about to hand over."""
        found: dict[str, list[PartitionKey]] = {member_id: [] for member_id in self.state.members}
        for partition, owner in self.state.owners.items():
            if partition not in self.state.handovers:
                found.setdefault(owner, []).append(partition)
        return found

    def owned_by(self, member_id: str) -> list[PartitionKey]:
        """``owned`` of one member. All members of a group ask for it after every change."""
        owners, handovers = self.state.owners, self.state.handovers
        if self._owned is None or self._owned[0] is not owners or self._owned[1] is not handovers:
            # Neither is ever altered, only replaced.
            self._owned = owners, handovers, self.owned()
        return self._owned[2].get(member_id, [])

    def leaving(self, member_id: str) -> list[PartitionKey]:
        """What a member is to let go of."""
        state = self.state
        return [partition for partition in state.handovers if state.owners.get(partition) == member_id]

    def decide_handovers(self, released: Sequence[PartitionKey]) -> list[AnyGroupEvent]:
        done = [partition for partition in released if partition in self.state.handovers]
        return [HandedOver(self.name, done)] if done else []

    def decide_deletion(self, *, is_moving: bool) -> list[AnyGroupEvent]:
        """``is_moving``: messages are on their way to the dead letters, which only the group knows of."""
        if self.state.members:
            raise GroupConflict(f"group {self.name!r} has {len(self.state.members)} members; they must leave first")
        if is_moving:
            raise GroupConflict(f"group {self.name!r} has messages on their way to the dead letters; try again")
        return [GroupDeleted(self.name)]

    def expired_members(self, heard_ns: Mapping[str, int], now_ns: int) -> list[str]:
        """Members whose session timeout is over, by when each was last heard of."""
        return [
            name
            for name, member in self.state.members.items()
            if heard_ns[name] + member.session_timeout_ms * NANOS_PER_MS <= now_ns
        ]

    def idle_until_ns(self, idle_expiry_ms: int | None) -> int | None:
        """When the group is deleted for having no members; ``None``: it has some, or stays without."""
        if self.state.members or idle_expiry_ms is None:
            return None
        return self.state.empty_since_ns + idle_expiry_ms * NANOS_PER_MS

    def overdue(self, now_ns: int) -> list[PartitionKey]:
        """Partitions whose old owner has had its time."""
        return [partition for partition, each in self.state.handovers.items() if each.deadline_ns <= now_ns]

    def apply(self, event: AnyGroupEvent) -> None:
        state = self.state
        match event:
            case GroupChanged(_, overrides):
                state.overrides = overrides
            case MemberJoined(_, member, replaces):
                if replaces:
                    state.members.pop(replaces, None)
                    state.fenced = [*state.fenced[1 - MAX_REMEMBERED_FENCED :], replaces]
                    now = with_successor(state.owners, state.handovers, replaces, member.member_id)
                    state.owners, state.handovers = now
                state.members[member.member_id] = member
            case MemberLeft(_, member_id, at_ns):
                state.members.pop(member_id, None)
                if not state.members:
                    state.empty_since_ns = at_ns
            case Rebalanced(_, generation, owners, handovers):
                state.generation, state.owners, state.handovers = generation, owners, handovers
            case HandedOver(_, partitions):
                state.owners = state.owners | {each: state.handovers[each].to for each in partitions}
                state.handovers = {name: each for name, each in state.handovers.items() if name not in partitions}


def with_successor(
    owners: Mapping[PartitionKey, str], handovers: Mapping[PartitionKey, Handover], before: str, now: str
) -> tuple[dict[PartitionKey, str], dict[PartitionKey, Handover]]:
    """Owners and handovers once a member has another's place."""
    return (
        {partition: now if owner == before else owner for partition, owner in owners.items()},
        {name: Handover(now, each.deadline_ns) if each.to == before else each for name, each in handovers.items()},
    )


def decide_creation(
    name: str, group_id: GroupId, overrides: dict[str, Any], defaults: GroupSettings, now_ns: int
) -> GroupMade:
    """A new group. Its fixed settings are recorded, so that other defaults later do not change them."""
    chosen = defaults.with_overrides(overrides)
    check_together(chosen.kind, chosen.mode, chosen.ordering)
    fixed = {each: getattr(chosen, each) for each, spec in specs(GroupSettings).items() if spec.fixed}
    return GroupMade(name, group_id, overrides, now_ns, fixed)


def initial_overrides(initial: dict[str, Any], wanted: dict[str, Any], defaults: GroupSettings) -> dict[str, Any]:
    """With which settings a join creates a group: ``initial`` too, unless these do not go together with the others."""
    both = initial | wanted
    chosen = defaults.with_overrides(both)
    try:
        check_together(chosen.kind, chosen.mode, chosen.ordering)
    except InvalidSettings:
        return wanted
    return both


def decide_change(group: Group, effective: GroupSettings, wanted: dict[str, Any]) -> list[GroupChanged]:
    """Change settings of a group that exists. Fixed ones can only be named, or changed while it has no members."""
    members = len(group.state.members)
    for each, spec in specs(GroupSettings).items():
        if each not in wanted or not spec.fixed or getattr(effective, each) == wanted[each]:
            continue
        has = f"group {group.name!r} has {each} {getattr(effective, each)!r}, which"
        if not spec.while_empty:
            raise GroupConflict(f"{has} cannot be changed to {wanted[each]!r}")
        if members:
            raise GroupConflict(
                f"{has} can be changed to {wanted[each]!r} only while it has no members; it has {members}"
            )
    chosen = effective.with_overrides(wanted)
    check_together(chosen.kind, chosen.mode, chosen.ordering)
    overrides = group.state.overrides | wanted
    return [] if overrides == group.state.overrides else [GroupChanged(group.name, overrides)]
