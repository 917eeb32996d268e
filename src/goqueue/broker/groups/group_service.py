"""Everything about groups, behind one face."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from goqueue.broker.dead_letters.dead_letter_mover import DeadLetterMover
from goqueue.broker.dead_letters.redrive import DeadLetters
from goqueue.broker.group_shards.dead_letter_topics import CreateTopic
from goqueue.broker.group_shards.group_shard import GroupShard
from goqueue.broker.group_shards.shard_directory import GroupShards
from goqueue.broker.group_shards.shard_work import HeldUp
from goqueue.broker.groups.group_offsets import GroupOffsets, Offsets, PartitionLag
from goqueue.broker.groups.leader_work import LeaderWork
from goqueue.broker.groups.member_expiry import MemberExpiry
from goqueue.broker.groups.membership import Assignment, Join, Membership
from goqueue.broker.groups.subscriptions import Subscriptions
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.queues.assigned_queues import drop_expired
from goqueue.broker.queues.lane_stats import PartitionLanes, lane_stats
from goqueue.broker.queues.peek import Peeking
from goqueue.broker.queues.polling import Polling
from goqueue.broker.queues.returns import Returns
from goqueue.broker.queues.settlement_service import SettlementService
from goqueue.broker.queues.stream_commits import StreamCommits
from goqueue.broker.queues.tally import Tally
from goqueue.broker.queues.transactional_acks import TransactionalAcks
from goqueue.coordination.group import Group
from goqueue.coordination.group_configuration import decide_change
from goqueue.coordination.transaction_records import GroupAcks, GroupOffset
from goqueue.model.errors import GoQueueError
from goqueue.model.group_settings import parse_group_settings
from goqueue.model.logging import get_logger
from goqueue.model.names import check_group_name

__all__ = ["Assignment", "GroupService", "GroupStateName", "Join", "Offsets", "PartitionLag"]

log = get_logger(__name__)

GroupStateName = Literal["empty", "rebalancing", "stable"]


class GroupService:
    """The broker's face for everything about groups."""

    def __init__(
        self,
        shards: GroupShards,
        create: CreateTopic,
        check_room: Callable[[], None] = lambda: None,
    ) -> None:
        self.shards = shards
        self._create = create
        self._check_room = check_room
        self._tally = Tally()
        self._returns = Returns(self._tally)
        self.settling = SettlementService(shards, create, self._tally)
        self.stream_commits = StreamCommits(shards)
        self.transactional_acks = TransactionalAcks(shards, self._tally)
        self.polling = Polling(shards, self._returns, self.stream_commits, self._tally)
        self.peeking = Peeking(shards)
        self._subscriptions = Subscriptions(shards)
        self._expiry = MemberExpiry(shards.clock, self._returns, self._subscriptions)
        self._membership = Membership(shards, self._returns, self.stream_commits, self._subscriptions, self._expiry)
        self._offsets = GroupOffsets(shards, self.stream_commits, self.transactional_acks, self._subscriptions)
        self.dead_letters = DeadLetters(shards)

    # Life

    async def start(self) -> None:
        """Lead all shards. Nothing can be published before this returns (``GroupShard.lead``)."""
        for shard in self.shards.all:
            shard.load()
        for shard in self.shards.all:
            await self.lead(shard)

    async def lead(self, shard: GroupShard) -> None:
        """Lead a shard that is loaded."""
        mover = DeadLetterMover(shard, self._tally, self._create, self._check_room)
        await shard.lead(LeaderWork(shard, self._returns, self._expiry, self._subscriptions, mover))

    async def stop(self) -> None:
        self.shards.stop_waiting()
        for shard in self.shards.all:
            await shard.let_go()

    def held_up(self) -> list[HeldUp]:
        """Messages that cannot be moved to another topic for now."""
        return [each for shard in self.shards.leading for each in shard.work.held_up()]

    # Lanes

    async def lane_stats(self, topic: str | None = None) -> list[PartitionLanes]:
        """How the lanes are doing, partition by partition."""
        return await lane_stats(self.shards, topic, self.shards.clock.now_ns())

    # Members

    async def join(self, name: str, request: Join) -> Assignment:
        """Add a member; make the group if this is its first."""
        return await self._membership.join(name, request)

    async def heartbeat(self, name: str, member_id: str, generation: int | None) -> Assignment:
        """A sign of life; the answer tells what the member has now."""
        return await self._membership.heartbeat(name, member_id, generation)

    async def resume(self, name: str, member_id: str, held: Collection[tuple[str, int, int]]) -> Assignment:
        """The member is back after a broken connection, with these leases (topic, partition, lease) and no others."""
        return await self._membership.resume(name, member_id, held)

    async def leave(self, name: str, member_id: str, *, if_idle: bool = False) -> bool:
        """What the member has in flight is given back at once; with ``if_idle`` it stays if there is any: False."""
        return await self._membership.leave(name, member_id, if_idle=if_idle)

    def assignment(self, name: str, member_id: str) -> Assignment:
        """What a member has now."""
        return self._membership.assignment(name, member_id)

    async def next_assignment(self, name: str, member_id: str, seen: int) -> Assignment:
        """What the member has, when that is news to someone who knows version ``seen``."""
        return await self._membership.next_assignment(name, member_id, seen)

    def set_window(self, name: str, member_id: str, messages: int | None) -> None:
        """How many messages of a queue a member wants in flight from now on; ``None``: as many as it may have."""
        self._membership.set_window(name, member_id, messages)

    def attach(self, name: str, member_id: str, change: int) -> None:
        """A stream of the member's has begun (1) or ended (-1): as long as it is there, so is the member."""
        self._membership.attach(name, member_id, change)

    # Offsets

    async def commit(self, name: str, member_id: str, offsets: Offsets, generation: int | None = None) -> None:
        """In a stream: everything below is done. In a queue: what was delivered below is, and nothing else."""
        await self._offsets.commit(name, member_id, offsets, generation)

    def commit_later(
        self, name: str, member_id: str, offsets: Offsets, generation: int | None, holder: str
    ) -> tuple[list[GroupOffset], list[GroupAcks]]:
        """What a commit of these offsets is, for a transaction that does it when it is committed itself."""
        return self._offsets.commit_later(name, member_id, offsets, generation, holder)

    def read_again(self, offsets: Sequence[GroupOffset]) -> None:
        """Members of a stream go back to what is committed."""
        self._offsets.read_again(offsets)

    async def offsets(self, name: str, topic: str | None = None) -> dict[str, dict[int, int]]:
        """Committed offsets: the end of what is done without a gap."""
        return await self._offsets.committed(name, topic)

    async def reset(self, name: str, offsets: Offsets) -> None:
        """Begin again at these offsets, back or forward; receipts from before are void."""
        await self._offsets.reset(name, offsets)

    def lag(self, name: str) -> list[PartitionLag]:
        """Where the group is in each of its partitions."""
        return self._offsets.lag(name)

    async def lag_in_stretches(self, name: str) -> list[PartitionLag]:
        """The same, giving way to others meanwhile: there may be thousands."""
        return await self._offsets.lag_in_stretches(name)

    # Groups

    def state(self, name: str) -> GroupStateName:
        """Whether anyone is there, and whether partitions are changing hands."""
        state = self.shards.find(name).group.state
        if not state.members:
            return "empty"
        return "rebalancing" if state.handovers else "stable"

    async def configure(self, name: str, raw_settings: Mapping[str, object]) -> Group:
        """Make a group, or change what can be changed of it."""
        check_group_name(name)
        settings = parse_group_settings(dict(raw_settings))
        shard = self.shards.of(name)
        group = shard.get(name)
        if group is None:
            shard.change(name, [self._membership.decide_creation(name, settings)])
        else:
            group.change(decide_change(group.group, group.settings, settings))
        group = self.shards.find(name)
        self._expiry.arm(group)
        group.runtime.wake_all()
        await group.journal.settled()
        return self.shards.find(name).group

    async def delete(self, name: str) -> None:
        """Forget a group that has no members, and everything it knew."""
        group = self.shards.find(name)
        group.change(group.group.decide_deletion(is_moving=any(queue.moving for queue in group.queues())))
        await group.journal.settled()
        log.info("group deleted", group=name)

    def topic_created(self, topic: Topic) -> None:
        self._subscriptions.topic_created(topic)

    def start_moved(self, topic: Topic, number: int) -> None:
        """The partition begins later than before, by a point that is on the disk: what its groups had of it is void.

        Without this each would notice when it is next polled.
        """
        topic_id, partition = topic.record.topic_id, topic.partitions[number]
        for name in self.shards.groups_on(topic_id, number):
            group = self.shards.find(name)
            queue = group.queue(topic_id, number)
            # A poll that reads from it at present notices by itself.
            if queue is not None and queue.key not in group.runtime.reading:
                with suppress(GoQueueError):
                    drop_expired(group, queue, partition)

    def topic_deleted(self, topic: Topic) -> None:
        self._subscriptions.topic_deleted(topic)
