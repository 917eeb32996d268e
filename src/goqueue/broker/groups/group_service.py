"""Groups of one broker: their services, made together, and what is done to a group as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from goqueue.broker.dead_letters.dead_letter_mover import DeadLetterMover
from goqueue.broker.dead_letters.redrive import DeadLetters
from goqueue.broker.groups.group_offsets import GroupOffsets
from goqueue.broker.groups.leader_work import LeaderWork
from goqueue.broker.groups.member_expiry import MemberExpiry
from goqueue.broker.groups.membership import Membership
from goqueue.broker.groups.subscriptions import Subscriptions
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.queues.assigned_queues import drop_expired
from goqueue.broker.queues.peek import Peeking
from goqueue.broker.queues.polling import Polling
from goqueue.broker.queues.returns import Returns
from goqueue.broker.queues.settlement_service import SettlementService
from goqueue.broker.queues.stream_commits import StreamCommits
from goqueue.broker.queues.tally import Tally
from goqueue.broker.queues.transactional_acks import TransactionalAcks
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.shards.dead_letter_topics import CreateTopic
from goqueue.broker.shards.shard import Shard
from goqueue.broker.shards.shard_directory import Shards
from goqueue.broker.shards.shard_work import HeldUp
from goqueue.coordination.group import Group, decide_change
from goqueue.model.errors import GoQueueError
from goqueue.model.group_settings import parse_group_settings
from goqueue.model.logging import get_logger
from goqueue.model.names import check_group_name

log = get_logger(__name__)

GroupStateName = Literal["empty", "rebalancing", "stable"]


class GroupService:
    """Has a service for each concern of groups, and decides itself on the settings and the life of a group."""

    def __init__(self, shards: Shards, create: CreateTopic, check_room: Callable[[], None] = lambda: None) -> None:
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
        self.subscriptions = Subscriptions(shards)
        self._expiry = MemberExpiry(shards.clock, self._returns, self.subscriptions)
        self.membership = Membership(shards, self._returns, self.stream_commits, self.subscriptions, self._expiry)
        self.offsets = GroupOffsets(shards, self.stream_commits, self.transactional_acks, self.subscriptions)
        self.dead_letters = DeadLetters(shards)

    # Life

    async def start(self) -> None:
        """Lead all shards. Nothing can be published before this returns (``Shard.lead``)."""
        await self.lead(self.shards.all)

    async def lead(self, shards: Sequence[Shard]) -> None:
        """Load these shards and lead them: first their queues, then the groups, which need the queues of all shards."""
        for shard in shards:
            shard.load()
        for shard in shards:
            mover = DeadLetterMover(self.shards, shard, self._tally, self._create, self._check_room)
            shard.lead(LeaderWork(self.shards, shard, self._returns, self._expiry, self.subscriptions, mover))
        # What a crash took from queues must stay taken, and deletions of groups must be certain (``close_orphans``).
        await Journal.all_settled([shard.journal for shard in self.shards.leading])
        self.shards.close_orphans()
        for shard in shards:
            for name in shard.state.names():
                shard.work.take_up_group(name)
        for group in self.shards.groups_in(shards):
            group.look_for_queues()
            if group.coordinated is not None:
                # Its topics may have come or gone meanwhile, and these shards have yet to be shown what has changed.
                self.subscriptions.keep_up(group)
                self._expiry.return_departed(group)
            if group.shard in shards:
                group.runtime.notify_change()
            group.runtime.wake_all()

    async def stop(self) -> None:
        self.shards.stop_waiting()
        for shard in self.shards.leading:
            # Before any is let go: what is under way in one may need another.
            await shard.work.stop()
        for shard in self.shards.leading:
            await self.shards.let_go(shard)

    def held_up(self) -> list[HeldUp]:
        """Messages that cannot be moved to another topic for now."""
        return [each for shard in self.shards.leading for each in shard.work.held_up()]

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
        group = self.shards.get(name)
        if group is None:
            self.shards.change(name, [self.membership.decide_creation(name, settings)])
        else:
            group.change(decide_change(group.group, group.settings, settings))
        group = self.shards.find(name)
        self._expiry.arm(group)
        group.runtime.wake_all()
        await group.shard.journal.settled()
        return self.shards.find(name).group

    async def delete(self, name: str) -> None:
        """Forget a group that has no members, and everything it knew."""
        group = self.shards.find(name)
        self.shards.map.check_all_led()
        group.change(group.group.decide_deletion(is_moving=any(queue.moving for queue in group.queues())))
        await group.shard.journal.settled()
        log.info("group deleted", group=name)

    def start_moved(self, topic: Topic, number: int) -> None:
        """The partition begins later than before, by a point that is on the disk: what its groups had of it is void.

        Without this each would notice when it is next polled.
        """
        topic_id, partition = topic.record.topic_id, topic.partitions[number]
        for name in sorted(self.shards.groups_on(topic_id, number)):
            group = self.shards.served(name)
            queue = None if group is None else group.queue(topic, number)
            # A poll that reads from it at present notices by itself.
            if group is not None and queue is not None and queue.key not in group.runtime.reading:
                with suppress(GoQueueError):
                    drop_expired(group, queue, partition)
