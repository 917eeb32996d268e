"""Members of groups: joining, leaving, and being forgotten when nothing is heard of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from goqueue.broker.groups.member_expiry import MemberExpiry
from goqueue.broker.groups.subscriptions import Subscriptions
from goqueue.broker.queues.returns import Returns
from goqueue.broker.queues.stream_commits import StreamCommits
from goqueue.broker.shards.shard_directory import Shards
from goqueue.coordination.group import (
    Group,
    GroupMade,
    Member,
    decide_change,
    decide_creation,
    initial_overrides,
    new_state,
)
from goqueue.coordination.rebalance import decide_join
from goqueue.coordination.shard_state import ShardEvent
from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import shown, specs
from goqueue.model.group_settings import GroupSettings, parse_group_settings
from goqueue.model.ids import GroupId, PartitionKey, split_partition_key
from goqueue.model.logging import get_logger
from goqueue.model.names import check_group_name
from goqueue.observe.trace_event import RELEASED

log = get_logger(__name__)

MAX_CLIENT_ID = 200
MAX_TOPICS = 1_000
_ID_BYTES = 8


@dataclass(frozen=True, slots=True)
class Join:
    """What a member asks for when it joins. ``settings`` make the group if it is not there, and must fit if it is."""

    client_id: str
    topics: Sequence[str]
    settings: Mapping[str, object] = field(default_factory=dict)
    session_timeout_ms: int | None = None
    instance_id: str = ""
    auto_commit: bool = False
    initial_settings: Mapping[str, object] = field(default_factory=dict)
    """More for a group that this join makes; one that is there stays as it is."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member has. ``revoking`` is what it must let go of, as soon as it has settled what it has in hand."""

    group: str
    member_id: str
    generation: int
    assigned: list[tuple[str, int]]
    revoking: list[tuple[str, int]]
    leader_id: str
    """The first among the members; nothing depends on it."""
    version: int
    settings: GroupSettings
    session_timeout_ms: int


class Membership:
    def __init__(
        self,
        shards: Shards,
        returns: Returns,
        commits: StreamCommits,
        subscriptions: Subscriptions,
        expiry: MemberExpiry,
    ) -> None:
        self._shards = shards
        self._host = shards.host
        self._clock = shards.clock
        self._returns = returns
        self._commits = commits
        self._subscriptions = subscriptions
        self._expiry = expiry

    # Coming and going

    async def join(self, name: str, request: Join) -> Assignment:
        """Add a member; make the group if this is its first."""
        check_group_name(name)
        settings = parse_group_settings(dict(request.settings))
        initial = parse_group_settings(dict(request.initial_settings))
        self._check_join(request)
        topics = [self._host.topic(each) for each in dict.fromkeys(request.topics)]
        active = self._shards.get(name)
        events: list[ShardEvent] = []
        if active is None:
            created = self.decide_creation(name, initial_overrides(initial, settings, self._host.config.group))
            events.append(created)
            group = Group(new_state(created))
        else:
            group = active.group
            events += decide_change(group, active.settings, settings)
        effective = self._host.config.group.with_overrides(group.state.fixed | group.state.overrides | settings)
        replaced = group.instance(request.instance_id) if request.instance_id else None
        limit = self._host.config.limits.max_group_members
        if len(group.state.members) >= limit and replaced is None:
            raise InvalidRequest(f"group {name!r} has {limit} members, the most that limits.max_group_members allows")
        member = Member(
            f"{request.client_id}-{self._new_id()}",
            request.client_id,
            [topic.name for topic in topics],
            request.session_timeout_ms or effective.session_timeout_ms,
            request.instance_id,
            request.auto_commit,
        )
        if replaced is not None and active is not None:
            log.info(
                "a member is replaced by another process of its instance_id",
                group=name,
                member=replaced.member_id,
                by=member.member_id,
                instance_id=request.instance_id,
            )
            events += self._returns.of_member(active, replaced.member_id, orderly=False)
        members = [*group.state.members.values(), member]
        events += self._subscriptions.opened(group, topics, effective)
        partitions, rules = self._subscriptions.partitions(members), self._subscriptions.rules(effective)
        arrival = decide_join(group, member, partitions, rules)
        events += arrival
        if active is not None:
            events += self._subscriptions.idle_handovers(active, arrival)
        self._shards.change(name, events, RELEASED)
        active = self._shards.find(name)
        session = active.runtime.session(member.member_id, self._clock.monotonic_ns())
        session.committed_at_ns = session.heard_ns
        # The others are looked at when their time comes: nothing has changed for them.
        self._expiry.arm_member(active, member)
        await active.settled()
        return self.assignment(name, member.member_id)

    def decide_creation(self, name: str, overrides: dict[str, Any]) -> GroupMade:
        """A new group, if there is room for one more."""
        limit = self._host.config.limits.max_groups
        if self._shards.count() >= limit:
            raise InvalidRequest(f"there are {limit} groups already, the most that limits.max_groups allows")
        group_id = GroupId(self._new_id())
        return decide_creation(name, group_id, overrides, self._host.config.group, self._clock.now_ns())

    def _check_join(self, request: Join) -> None:
        if not 1 <= len(request.client_id) <= MAX_CLIENT_ID or not request.client_id.isprintable():
            raise InvalidRequest(f"client_id must have 1 to {MAX_CLIENT_ID} printable characters")
        if len(request.instance_id) > MAX_CLIENT_ID or not request.instance_id.isprintable():
            raise InvalidRequest(f"instance_id may have at most {MAX_CLIENT_ID} printable characters")
        if not 1 <= len(request.topics) <= MAX_TOPICS:
            raise InvalidRequest(f"topics must name 1 to {MAX_TOPICS} topics")
        if request.session_timeout_ms is not None:
            specs(GroupSettings)["session_timeout_ms"].parse(request.session_timeout_ms)

    async def heartbeat(self, name: str, member_id: str, generation: int | None = None) -> Assignment:
        """A sign of life; the answer tells what the member has now."""
        group = self._shards.find(name)
        group.group.member(member_id)
        current = group.group.state.generation
        if generation is not None and generation > current:
            raise InvalidRequest(f"generation {shown(generation)} has not been yet; group {name!r} is at {current}")
        group.runtime.session(member_id, self._clock.monotonic_ns())
        await group.settled()
        return self.assignment(name, member_id)

    async def leave(self, name: str, member_id: str, *, if_idle: bool = False) -> bool:
        """What the member has in flight is given back at once; with ``if_idle`` it stays if there is any: False."""
        group = self._shards.find(name)
        group.group.member(member_id)
        if if_idle and group.in_flight(member_id):
            return False
        if group.settings.mode == "stream":
            self._commits.auto_commit(group, member_id, now=True)
        self._expiry.remove(group, [member_id], orderly=True)
        await group.settled()
        return True

    async def resume(self, name: str, member_id: str, held: Collection[tuple[str, int, int]]) -> Assignment:
        """The member is back after a broken connection, with these leases (topic, partition, lease) and no others."""
        group = self._shards.find(name)
        group.group.member(member_id)
        group.change(self._returns.of_unseen(group, member_id, lambda lease: lease not in held))
        # What was on its way when the connection broke was not seen: a stream goes on at what is committed.
        group.runtime.session(member_id, self._clock.monotonic_ns()).positions.clear()
        return await self.heartbeat(name, member_id, None)

    # Looking

    def assignment(self, name: str, member_id: str) -> Assignment:
        active = self._shards.find(name)
        group = active.group
        member = group.member(member_id)
        if active.settings.kind == "shared":
            topics = self._subscriptions.topics(member.topics)
            assigned = [(topic.name, number) for topic in topics for number in range(len(topic.partitions))]
        else:
            assigned = self._named(group.owned_by(member_id))
        return Assignment(
            name,
            member_id,
            group.state.generation,
            assigned,
            self._named(group.leaving(member_id)),
            next(iter(group.state.members)),
            active.runtime.version,
            active.settings,
            member.session_timeout_ms,
        )

    def _named(self, partitions: Sequence[PartitionKey]) -> list[tuple[str, int]]:
        found = []
        for each in partitions:
            topic_id, number = split_partition_key(each)
            topic = self._host.topic_by_id(topic_id)
            if topic is not None:
                found.append((topic.name, number))
        return sorted(found)

    async def next_assignment(self, name: str, member_id: str, seen: int) -> Assignment:
        """What the member has, as soon as its version is another than ``seen``."""
        group = self._shards.find_served(name)
        seen = await group.runtime.wait_for_change(seen)
        while group.coordinated is None and not group.is_over:
            # What has changed is told when its coordinator is led here again.
            seen = await group.runtime.wait_for_change(seen)
        await group.settled()
        return self.assignment(name, member_id)

    def set_window(self, name: str, member_id: str, messages: int | None) -> None:
        """How many messages of a queue a member wants in flight from now on; ``None``: as many as it may have."""
        group = self._shards.served(name)
        session = None if group is None else group.runtime.sessions.get(member_id)
        if group is not None and session is not None:
            session.window = messages
            group.runtime.wake_member(member_id)

    def attach(self, name: str, member_id: str, change: int) -> None:
        """A stream of the member's has begun (1) or ended (-1): while it has one, its session does not expire."""
        group = self._shards.served(name)
        session = None if group is None else group.runtime.sessions.get(member_id)
        if session is not None:
            # The session may be a new one, which knows nothing of a stream that ends.
            session.calls = max(0, session.calls + change)
            session.heard_ns = self._clock.monotonic_ns()

    def _new_id(self) -> str:
        return self._host.randomness.random_bytes(_ID_BYTES).hex()
