"""Shards of consumer groups: their journals, and what must happen when a group has changed.

A group belongs to one shard of ``__groups``, by its name. All changes of a group go through ``change``: events are
appended and applied, timers are set and waiting polls are woken, in one step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Protocol

from goqueue.broker.coordinator.backlog import has_new, is_plain
from goqueue.broker.coordinator.group_runtime import GroupRuntime, Share
from goqueue.broker.events.event_recorder import INTERNAL, EventRecorder
from goqueue.broker.events.range_effects import foreseen
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.runtime.named_timers import NamedTimers
from goqueue.broker.runtime.spread_calls import SpreadCalls, wake
from goqueue.broker.runtime.timer_service import TimerService
from goqueue.coordination.group import AnyGroupEvent, Group, HandedOver, Rebalanced
from goqueue.coordination.groups import Groups, GroupsEvent
from goqueue.delivery.events import Committed, CutTo, Dropped, QueueClosed, QueueEvent, ResetTo
from goqueue.delivery.queue import Queue
from goqueue.delivery.receipts import Seal
from goqueue.model.clock import Clock, Randomness
from goqueue.model.config import Config
from goqueue.model.errors import GroupNotFound
from goqueue.model.fields import shown
from goqueue.model.group_settings import GroupSettings
from goqueue.model.ids import PartitionKey, QueueKey, TopicId, partition_key, queue_key, queue_key_of, split_queue_key
from goqueue.model.logging import get_logger
from goqueue.model.message import Message
from goqueue.model.names import check_group_name
from goqueue.wire.routing import partition_of

log = get_logger(__name__)

_SHARDS_KNOWN = 10_000
"""So many names of groups are hashed once."""
_SWEEPING = (Committed, Dropped, CutTo, ResetTo)
"""Events that do not name the messages one by one that they are about."""


class Host(Protocol):
    """What groups need of a broker."""

    config: Config
    clock: Clock

    @property
    def randomness(self) -> Randomness: ...

    @property
    def notes(self) -> EventRecorder: ...

    def topic(self, name: str) -> Topic: ...

    async def is_misfit(self, name: str, message: Message) -> bool: ...

    def topic_by_id(self, topic_id: TopicId) -> Topic | None: ...

    def running_topics(self) -> Iterable[Topic]: ...

    @property
    def is_stopping(self) -> bool: ...

    def check_open(self) -> None: ...


class GroupShards:
    """Every group of this broker."""

    def __init__(
        self, host: Host, journals: Sequence[Journal[Groups]], receipt_key: bytes, clockwork: TimerService
    ) -> None:
        self.host = host
        self.journals = journals
        self.clock = host.clock
        self.notes = host.notes
        # A request asks for its group's shard many times.
        self._shard_of = lru_cache(_SHARDS_KNOWN)(lambda name: partition_of(name.encode(), len(journals)))
        self._receipt_key = receipt_key
        self._runtimes: dict[str, GroupRuntime] = {}
        self._takers: dict[str, GroupRuntime] = {}
        """Groups with a waiting poll that has room."""
        self._waking: SpreadCalls[asyncio.Future[None]] = SpreadCalls(wake)
        self._news_rounds: SpreadCalls[tuple[str, PartitionKey]] = SpreadCalls(self._pass_news)
        """Groups that are to hear of the news of a partition."""
        self._watched: set[Partition] = set()
        self._special: set[PartitionKey] = set()
        """Partitions that have, or may have, messages outside of lane normal."""
        self._groups_on: dict[PartitionKey, set[str]] = {}
        """Groups that want to hear of a partition's news."""
        self.on_due: Callable[[str, Queue], None] = _nothing
        self.on_group_due: Callable[[str], None] = _nothing
        self.on_moving: Callable[[Queue], None] = _nothing
        self._queue_times = NamedTimers[tuple[str, QueueKey]](clockwork, self._ring_queues)
        self.group_times = NamedTimers[str](clockwork, self._ring_groups)

    # Finding

    def journal(self, name: str) -> Journal[Groups]:
        return self.journals[self._shard_of(name)]

    def find(self, name: str) -> Group:
        """A user's group, not one of the broker's own."""
        found = self.journal(name).machine.get(name)
        if found is None or name.startswith(INTERNAL):
            check_group_name(name)
            raise GroupNotFound(f"group {shown(name)} does not exist")
        return found

    def names(self) -> list[str]:
        """Users' groups, not the broker's own."""
        found = [name for journal in self.journals for name in journal.machine.names()]
        return sorted(name for name in found if not name.startswith(INTERNAL))

    def count(self) -> int:
        return sum(len(journal.machine) for journal in self.journals)

    def settings(self, group: Group) -> GroupSettings:
        overrides = group.state.overrides
        runtime = self._runtimes.get(group.name)
        if runtime is not None and runtime.settings is not None and runtime.settings[0] is overrides:
            return runtime.settings[1]
        found = self.host.config.group.with_overrides(group.state.fixed | overrides)
        if runtime is not None:
            runtime.settings = overrides, found
        return found

    def runtime(self, name: str) -> GroupRuntime:
        """Raises ``GroupNotFound`` for a name without a group, so that requests for any name use no memory."""
        found = self._runtimes.get(name)
        if found is None:
            self.journal(name).machine.find(name)
            found = self._runtimes[name] = GroupRuntime(name, self._takers, self._waking)
        return found

    def queue(self, group: Group, topic_id: TopicId, partition: int) -> Queue | None:
        return self.journal(group.name).machine.queue(queue_key(group.state.identity, topic_id, partition))

    def queues_of(self, group: Group) -> list[Queue]:
        return self.journal(group.name).machine.queues_of(group)

    def groups_on(self, topic_id: TopicId, partition: int) -> set[str]:
        """The groups that read a partition, the broker's own not among them."""
        found = self._groups_on.get(partition_key(topic_id, partition), set())
        return {name for name in found if not name.startswith(INTERNAL)}

    def place(self, queue: Queue) -> tuple[Topic, Partition] | None:
        """Where a queue's messages lie; ``None`` if the topic is gone."""
        topic = self.host.topic_by_id(queue.topic_id)
        return None if topic is None else (topic, topic.partitions[queue.partition])

    def may_scan(self, queue: Queue, partition: Partition) -> bool:
        """Whether there is something new, and room to deliver it."""
        limits = self.host.config.limits
        is_full = queue.leases.outstanding + len(queue.moving) >= limits.max_outstanding
        return not is_full and has_new(queue, partition)

    def is_mixed(self, group: Group, share: Share) -> bool:
        """Whether a member has anything to take outside of lane normal."""
        identity = group.state.identity
        machine = self.journal(group.name).machine
        for name in share.partitions & self._special:
            queue = machine.queue(queue_key_of(identity, name))
            place = None if queue is None else self.place(queue)
            if queue is not None and place is not None and not is_plain(queue, place[1]):
                return True
        return False

    def has_something(self, group: Group, queue: Queue) -> bool:
        """Whether a poll of a queue would find something to do; not while another poll reads it."""
        place = self.place(queue)
        if place is None or queue.key in self.runtime(group.name).reading:
            return False
        return queue.has_ready or self.may_scan(queue, place[1]) or self.must_learn_keys(group, queue)

    def must_learn_keys(self, group: Group, queue: Queue) -> bool:
        """Whether key order has to be read from the log: after a start the keys of parked messages are not known."""
        return queue.keys is None and self.settings(group).ordering == "key" and queue.parked > 0

    def seal(self, group: Group, queue: Queue) -> Seal | None:
        """What proves this queue's receipts."""
        seals = self.runtime(group.name).seals
        seal = seals.get(queue.key)
        if seal is None:
            topic = self.host.topic_by_id(queue.topic_id)
            if topic is None:
                return None
            seal = seals[queue.key] = Seal(self._receipt_key, topic.name, queue.partition, group.name, queue.key)
        return seal

    # Changing

    def change(self, name: str, events: Sequence[GroupsEvent], cause: str = "") -> None:
        """Append and apply. No answer may leave before the journal has ``settled``.

        ``cause`` is what traces show as the reason for a retry or a dead letter.
        """
        journal = self.journal(name)
        machine = journal.machine
        to_come = {
            place: foreseen(queue, event)
            for place, event in enumerate(events)
            if isinstance(event, _SWEEPING) and (queue := machine.queue(event.q)) is not None
        }
        journal.propose(events)
        machine = journal.machine
        touched: dict[str, Queue] = {}
        for place, event in enumerate(events):
            if isinstance(event, QueueEvent):
                queue = machine.queue(event.q)
                if queue is None:
                    if isinstance(event, QueueClosed):
                        self._forget_queue(name, event.q)
                    continue
                touched[event.q] = queue
                if isinstance(event, _SWEEPING):
                    self.notes.swept(queue, to_come.get(place, ()))
                else:
                    self.notes.changed(queue, event, cause)
                self._queue_times.set((name, event.q), queue.leases.next_time_ns())
                if isinstance(event, ResetTo):
                    self.forget_positions(name, event.q)
                if queue.moving:
                    self.on_moving(queue)
            else:
                self._note_group_change(name, event)
        for queue in touched.values():
            self.offer(name, queue)

    def offer(self, name: str, queue: Queue) -> None:
        """If there is something in a queue to fetch, wake the poll that has waited longest for it."""
        runtime = self._runtimes.get(name)
        if runtime is None or not runtime.waiters:
            return
        group = self.journal(name).machine.get(name)
        if group is not None and self.settings(group).mode == "queue" and self.has_something(group, queue):
            runtime.wake_one(partition_key(queue.topic_id, queue.partition))

    def offer_all(self, name: str, queues: Iterable[Queue]) -> None:
        """The same for several queues, as long as a poll waits that has room."""
        runtime = self._runtimes.get(name)
        for queue in queues:
            if runtime is None or not runtime.has_takers:
                return
            self.offer(name, queue)

    def _forget_queue(self, name: str, key: QueueKey) -> None:
        runtime = self._runtimes.get(name)
        if runtime is not None:
            runtime.seals.pop(key, None)
            runtime.served.pop(key, None)
            # Members that had messages of it in flight have room again.
            runtime.wake_all()

    def _note_group_change(self, name: str, event: AnyGroupEvent) -> None:
        group = self.journal(name).machine.get(name)
        if group is None:
            self.notes.forget_group(name)
            gone = self._runtimes.pop(name, None)
            if gone is not None:
                gone.end()
            for watching in self._groups_on.values():
                watching.discard(name)
            return
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
            runtime = self.runtime(name)
            members = group.state.members
            for member in [each for each in runtime.sessions if each not in members]:
                del runtime.sessions[member]
            self._prune_positions(group, runtime)
            runtime.notify_change()
            for handover in group.state.handovers.values():
                self.group_times.set(name, handover.deadline_ns)

    def _prune_positions(self, group: Group, runtime: GroupRuntime) -> None:
        owners = group.state.owners
        for member, session in runtime.sessions.items():
            if not session.positions:
                continue
            for key in [each for each in session.positions if owners.get(split_queue_key(each)[1]) != member]:
                del session.positions[key]

    def forget_positions(self, name: str, key: QueueKey) -> None:
        """Members read on from what is committed."""
        runtime = self._runtimes.get(name)
        for session in () if runtime is None else runtime.sessions.values():
            session.positions.pop(key, None)

    def rearm(self, queue: Queue) -> None:
        self._queue_times.set((queue.group, queue.key), queue.leases.next_time_ns())

    def look_again(self, queue: Queue, in_ns: int) -> None:
        """Something of the queue's is due and could not be seen to."""
        self._queue_times.set((queue.group, queue.key), self.clock.now_ns() + in_ns)

    # Times

    def _ring_queues(self, keys: list[tuple[str, QueueKey]]) -> None:
        for name, key in keys:
            queue = self.journal(name).machine.queue(key)
            if queue is not None:
                self.on_due(name, queue)

    def _ring_groups(self, names: list[str]) -> None:
        for name in names:
            self.on_group_due(name)

    def stop(self) -> None:
        for runtime in self._runtimes.values():
            runtime.end()

    # News from partitions

    def watch(self, queue: Queue) -> None:
        """Polls of the queue's group are woken when its partition has news."""
        place = self.place(queue)
        if place is None:
            return
        name = partition_key(queue.topic_id, queue.partition)
        self._groups_on.setdefault(name, set()).add(queue.group)
        partition = place[1]
        if not is_plain(queue, partition):
            # The log may have nothing special any more, and the queue not have come to that yet.
            self._special.add(name)
        if partition not in self._watched:
            self._watched.add(partition)
            partition.watcher = lambda: self._news(name, partition)
            self._news(name, partition)

    def forget_topic(self, topic: Topic) -> None:
        self.notes.topic_deleted(topic)
        for number, partition in enumerate(topic.partitions):
            self._watched.discard(partition)
            name = partition_key(topic.record.topic_id, number)
            self._groups_on.pop(name, None)
            self._special.discard(name)

    def _news(self, name: PartitionKey, partition: Partition) -> None:
        if partition.log.special_end and name not in self._special:
            self._special.add(name)
        # As many steps as the fewer of the two have: groups that only exist cost a publish nothing.
        self._news_rounds.add([(group, name) for group in self._groups_on.get(name, set()) & self._takers.keys()])

    def _pass_news(self, group_and_partition: tuple[str, PartitionKey]) -> None:
        group, name = group_and_partition
        taker = self._takers.get(group)
        if taker is not None:
            taker.wake_one(name)


def _nothing(*_: object) -> None:
    pass
