"""One shard of consumer groups: its journal ``__groups/k``, the groups in it, their timers, and the work due for them.

A shard is loaded from its journal, leads, and can be let go and loaded again while other shards serve. All changes of
its groups go through ``change``: events are appended and applied, timers are set and waiting polls are woken, in one
step without an ``await``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from goqueue.broker.events.range_effects import foreseen
from goqueue.broker.group_shards.backlog import is_plain, may_scan
from goqueue.broker.group_shards.dead_letter_topics import target_for
from goqueue.broker.group_shards.group_runtime import GroupRuntime, Share
from goqueue.broker.group_shards.host import Host
from goqueue.broker.group_shards.partition_news import PartitionNews
from goqueue.broker.group_shards.shard_work import ShardWork
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.runtime.named_timers import NamedTimers
from goqueue.broker.runtime.timer_service import TimerService
from goqueue.coordination.group import AnyGroupEvent, Group, HandedOver, Rebalanced
from goqueue.coordination.groups import Groups, GroupsEvent
from goqueue.delivery.committed_offsets import decide_cut
from goqueue.delivery.events import Acked, Committed, CutTo, Dropped, QueueClosed, QueueEvent, ResetTo
from goqueue.delivery.queue import Queue
from goqueue.delivery.receipts import Seal
from goqueue.delivery.retry import Terms
from goqueue.model.errors import NotLeader
from goqueue.model.group_settings import GroupSettings
from goqueue.model.ids import PartitionKey, QueueKey, TopicId, partition_key, queue_key, queue_key_of, split_queue_key
from goqueue.model.logging import get_logger

log = get_logger(__name__)

_RANGE_EVENTS = (Committed, Dropped, CutTo, ResetTo)
"""Events that do not name the messages one by one that they are about."""


class ActiveGroup:
    """A group with everything that a request needs of it, found once for each request."""

    __slots__ = ("group", "journal", "name", "runtime", "settings", "shard")

    def __init__(self, shard: GroupShard, group: Group, runtime: GroupRuntime) -> None:
        self.shard = shard
        self.journal = shard.journal
        self.name = group.name
        self.runtime = runtime
        self.use(group)

    def use(self, group: Group) -> None:
        """The group has other settings now, or the journal went back to what is durable and made it anew."""
        self.group = group
        config = self.shard.host.config.group
        self.settings: GroupSettings = config.with_overrides(group.state.fixed | group.state.overrides)

    # Its queues

    def queue(self, topic_id: TopicId, partition: int) -> Queue | None:
        return self.journal.machine.by_key.get(queue_key(self.group.state.identity, topic_id, partition))

    def queues(self) -> list[Queue]:
        return self.journal.machine.queues_of(self.group)

    def has_several_lanes(self, share: Share) -> bool:
        """Whether a member has anything to fetch outside of lane normal."""
        identity, queues = self.group.state.identity, self.journal.machine.by_key
        for name in share.partitions & self.shard.news.special:
            queue = queues.get(queue_key_of(identity, name))
            place = None if queue is None else self.shard.place(queue)
            if queue is not None and place is not None and not is_plain(queue, place[1]):
                return True
        return False

    def has_something(self, queue: Queue) -> bool:
        """Whether a poll of a queue would find something to do; not while another poll reads it."""
        place = self.shard.place(queue)
        if place is None or queue.key in self.runtime.reading:
            return False
        return (
            queue.has_ready
            or may_scan(queue, place[1], place[1].stable_end, self.shard.host.config.limits.max_outstanding)
            or self.must_learn_keys(queue)
        )

    def must_learn_keys(self, queue: Queue) -> bool:
        """Whether key order has to be read from the log: after a start the keys of parked messages are not known."""
        return queue.keys is None and self.settings.ordering == "key" and queue.parked > 0

    def seal(self, queue: Queue, topic: Topic) -> Seal:
        """What proves this queue's receipts."""
        seals = self.runtime.seals
        seal = seals.get(queue.key)
        if seal is None:
            key = self.shard.receipt_key
            seal = seals[queue.key] = Seal(key, topic.name, queue.partition, self.name, queue.key)
        return seal

    def sealed_queue(self, topic: Topic, partition: int) -> tuple[Queue, Seal] | None:
        """A queue, and what proves its receipts."""
        queue = self.queue(topic.record.topic_id, partition)
        return None if queue is None else (queue, self.seal(queue, topic))

    def terms(self, queue: Queue, topic: Topic) -> Terms:
        """What a decision about a queue's messages goes by, as of now."""
        host = self.shard.host
        return Terms(self.settings, topic.settings, host.clock.now_ns(), lambda: target_for(host, queue, topic))

    # Changing

    def change(self, events: Sequence[GroupsEvent], cause: str = "", freed: Collection[str] = ()) -> None:
        """``GroupShard.change`` of this group. ``freed`` are members that have room again afterwards."""
        self.shard.change(self.name, events, cause)
        for member in freed:
            self.release(member)
            if self.runtime.waiters:
                self.runtime.wake_member(member)

    def release(self, member_id: str) -> None:
        """Complete handovers of partitions of which the member that gives them up has nothing in flight any more."""
        group = self.group
        if group.state.handovers:
            done = [name for name in group.leaving(member_id) if not self._is_held(member_id, name)]
            if done:
                self.change(group.decide_handovers(done))

    def _is_held(self, member_id: str, partition: PartitionKey) -> bool:
        queue = self.journal.machine.by_key.get(queue_key_of(self.group.state.identity, partition))
        if queue is None:
            return False
        if self.settings.mode == "queue":
            return queue.leases.in_hand(member_id) > 0
        session = self.runtime.sessions.get(member_id)
        return session is not None and session.positions.get(queue.key, queue.committed) > queue.committed

    def offer(self, queue: Queue) -> None:
        """If there is something in a queue to fetch, wake the poll that has waited longest for it."""
        if self.runtime.waiters and self.settings.mode == "queue" and self.has_something(queue):
            self.runtime.wake_one(partition_key(queue.topic_id, queue.partition))

    def offer_all(self, queues: Iterable[Queue]) -> None:
        """The same for several queues, as long as a poll waits that has room."""
        for queue in queues:
            if not self.runtime.has_takers:
                return
            self.offer(queue)


class GroupShard:
    """Groups by name. ``journal.machine`` has their durable state, and only ``change`` changes it."""

    def __init__(
        self,
        number: int,
        journal: Journal[Groups],
        host: Host,
        receipt_key: bytes,
        timers: TimerService,
        news: PartitionNews,
    ) -> None:
        self.number = number
        self.journal = journal
        self.host = host
        self.news = news
        self.receipt_key = receipt_key
        self.is_leading = False
        self._work: ShardWork | None = None
        self._active: dict[str, ActiveGroup] = {}
        self._queue_times = NamedTimers[QueueKey](timers, self._queues_due)
        self.group_times = NamedTimers[str](timers, self._groups_due)

    # Load, lead, let go

    def load(self) -> None:
        """Make the state of the groups from the journal."""
        self.journal.load()

    async def lead(self, work: ShardWork) -> None:
        """Take up where the journal ends, and serve requests from then on.

        What a crash took from a partition's log is taken from its groups as well. That is durable when this returns: a
        second crash must not find a group ahead of a log that has grown again, or it would take new messages for those
        that are done.
        """
        self._work, self.is_leading = work, True
        machine = self.journal.machine
        for queue in machine.queues():
            self._take_up(queue, work)
        for name in machine.names():
            work.take_up_group(name)
        await self.journal.settled()

    def _take_up(self, queue: Queue, work: ShardWork) -> None:
        place = self.place(queue)
        if place is None:
            return
        topic, partition = place
        cut = decide_cut(queue, partition.log.end_offset)
        if cut:
            log.warning(
                "a group was ahead of its partition, which a crash cut short; it goes on at the end",
                group=queue.group,
                topic=topic.name,
                partition=queue.partition,
                group_at=queue.known_end,
                end_offset=partition.log.end_offset,
            )
            self.change(queue.group, cut)
        self.watch(queue)
        self.rearm(queue)
        work.take_up_queue(queue)

    def end_waits(self) -> None:
        """End the waits of all polls and assignments."""
        for active in self._active.values():
            active.runtime.end()

    async def let_go(self) -> None:
        """Stop serving, finish what is under way, and forget the state: the journal has it.

        Requests get ``NotLeader`` until ``load`` and ``lead`` are called again.
        """
        if self._work is None:
            return
        self.is_leading = False
        self.end_waits()
        await self._work.stop()
        self._queue_times.clear()
        self.group_times.clear()
        for name in self.journal.machine.names():
            self.news.forget_group(name)
        self._work = None
        self._active.clear()
        self.journal.unload()

    @property
    def work(self) -> ShardWork:
        if self._work is None:
            raise NotLeader("this broker does not lead the shard of that group at present")
        return self._work

    # Finding

    def get(self, name: str) -> ActiveGroup | None:
        group = self.journal.machine.by_name.get(name)
        active = self._active.get(name)
        if group is None:
            return None
        if active is None:
            runtime = GroupRuntime(name, self.news.takers, self.news.wakeups)
            active = self._active[name] = ActiveGroup(self, group, runtime)
        elif active.group is not group:
            active.use(group)
        return active

    def place(self, queue: Queue) -> tuple[Topic, Partition] | None:
        """Where a queue's messages lie; ``None`` if the topic is gone."""
        topic = self.host.topics.by_id.get(queue.topic_id)
        return None if topic is None else (topic, topic.partitions[queue.partition])

    # Changing

    def change(self, name: str, events: Sequence[GroupsEvent], cause: str = "") -> None:
        """Append and apply. No answer may leave before the journal has ``settled``.

        ``cause`` is what traces show as the reason for a retry or a dead letter.
        """
        work, notes = self.work, self.host.notes
        queues = self.journal.machine.by_key
        effects = {
            index: foreseen(queue, event)
            for index, event in enumerate(events)
            if isinstance(event, _RANGE_EVENTS) and (queue := queues.get(event.q)) is not None
        }
        self.journal.propose(events)
        touched: dict[str, Queue] = {}
        for index, event in enumerate(events):
            if not isinstance(event, QueueEvent):
                self._group_changed(name, event)
                continue
            queue = queues.get(event.q)
            if queue is None:
                if isinstance(event, QueueClosed):
                    self._queue_closed(name, event.q)
                continue
            touched[event.q] = queue
            if isinstance(event, _RANGE_EVENTS):
                notes.swept(queue, effects.get(index, ()))
            else:
                notes.changed(queue, event, cause)
            if not isinstance(event, Acked):
                # An ack makes nothing due earlier.
                self.rearm(queue)
            if isinstance(event, ResetTo):
                self._forget_positions(name, event.q)
            if queue.moving:
                work.begin_moving(queue)
        active = self._active.get(name)
        if active is not None and active.runtime.waiters:
            for queue in touched.values():
                active.offer(queue)

    def _queue_closed(self, name: str, key: QueueKey) -> None:
        active = self._active.get(name)
        if active is not None:
            active.runtime.seals.pop(key, None)
            active.runtime.served.pop(key, None)
            # Members that had messages of it in flight have room again.
            active.runtime.wake_all()

    def _group_changed(self, name: str, event: AnyGroupEvent) -> None:
        group = self.journal.machine.by_name.get(name)
        active = self._active.get(name)
        if group is None:
            self.host.notes.forget_group(name)
            if active is not None:
                del self._active[name]
                active.runtime.end()
            self.news.forget_group(name)
            return
        if active is not None:
            active.use(group)
        if isinstance(event, Rebalanced):
            log.info(
                "a group is rebalanced",
                group=name,
                generation=event.generation,
                members=len(group.state.members),
                partitions=len(event.owners),
                changing_hands=len(event.handovers),
            )
        if isinstance(event, Rebalanced | HandedOver):
            self._owners_changed(group)

    def _owners_changed(self, group: Group) -> None:
        active = self.get(group.name)
        if active is None:
            return
        members, owners = group.state.members, group.state.owners
        sessions = active.runtime.sessions
        for member in [each for each in sessions if each not in members]:
            del sessions[member]
        for member, session in sessions.items():
            for key in list(session.positions):
                if owners.get(split_queue_key(key)[1]) != member:
                    del session.positions[key]
        active.runtime.notify_change()
        for handover in group.state.handovers.values():
            self.group_times.set(group.name, handover.deadline_ns)

    def _forget_positions(self, name: str, key: QueueKey) -> None:
        """Members read on from what is committed."""
        active = self._active.get(name)
        for session in () if active is None else active.runtime.sessions.values():
            session.positions.pop(key, None)

    # Times and news

    def rearm(self, queue: Queue) -> None:
        """Set the timer for the queue's next visibility timeout or retry."""
        self._queue_times.set(queue.key, queue.leases.next_time_ns())

    def look_again(self, queue: Queue, in_ns: int) -> None:
        """What is due in the queue could not be done: try again."""
        self._queue_times.set(queue.key, self.host.clock.now_ns() + in_ns)

    def watch(self, queue: Queue) -> None:
        """Wake polls of the queue's group when its partition has news."""
        place = self.place(queue)
        if place is not None:
            self.news.watch(queue, place[1])

    def _queues_due(self, keys: list[QueueKey]) -> None:
        for key in keys:
            queue = self.journal.machine.by_key.get(key)
            if queue is not None and self._work is not None:
                self._work.queue_due(queue)

    def _groups_due(self, names: list[str]) -> None:
        for name in names:
            if self._work is not None:
                self._work.group_due(name)
