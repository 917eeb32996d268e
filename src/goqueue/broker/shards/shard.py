"""One shard: its journal, the groups whose coordinator it is, the queues of its partitions with what it was shown of
their groups, and the work due for them.

A shard is loaded from its journal, leads, and can be let go and loaded again while other shards serve. Its state
changes by ``append``: events are appended and applied, and timers are set, in one step without an ``await``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from goqueue.broker.events.range_effects import foreseen
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.runtime.named_timers import NamedTimers
from goqueue.broker.shards.host import Host
from goqueue.broker.shards.partition_news import PartitionNews
from goqueue.broker.shards.shard_work import ShardWork
from goqueue.coordination.group_view import AnyViewEvent, GroupForgotten
from goqueue.coordination.partition_starts import AnyStartEvent, StartForgotten, StartMoved
from goqueue.coordination.shard_state import ShardEvent, ShardState
from goqueue.delivery.committed_offsets import decide_cut
from goqueue.delivery.events import Acked, Committed, CutTo, Dropped, QueueEvent, QueueOpened, ResetTo
from goqueue.delivery.queue import Queue
from goqueue.model.errors import NotLeader
from goqueue.model.ids import QueueKey, partition_key, split_partition_key
from goqueue.model.logging import get_logger

log = get_logger(__name__)

_RANGE_EVENTS = (Committed, Dropped, CutTo, ResetTo)
"""Events that do not name the messages one by one that they are about."""


@dataclass(frozen=True, slots=True)
class Times:
    """When something is due in queues and in groups, of all shards."""

    queues: NamedTimers[QueueKey]
    groups: NamedTimers[str]


class Shard:
    """``journal.machine`` has the durable state, and only ``append`` changes it."""

    def __init__(
        self, number: int, journal: Journal[ShardState], host: Host, times: Times, news: PartitionNews
    ) -> None:
        self.number = number
        self.journal = journal
        self.host = host
        self.is_leading = False
        self._news = news
        self._work: ShardWork | None = None
        self._queue_times = times.queues
        self.group_times = times.groups

    @property
    def state(self) -> ShardState:
        return self.journal.machine

    # Load, lead, let go

    def load(self) -> None:
        """Make the state from the journal."""
        if self._work is not None:
            raise NotLeader(f"this broker leads shard {self.number}, or is about to let go of it")
        self.journal.load()

    def lead(self, work: ShardWork) -> None:
        """Take up the queues where the journal ends, and serve them from then on.

        What a crash took from a partition's log is taken from its queues as well. That must be ``settled`` before
        anything is published: a second crash must not find a queue ahead of a log that has grown again, or it would
        take new messages for those that are done.
        """
        self._work, self.is_leading = work, True
        self._take_up_starts()
        for queue in self.state.queues():
            self._take_up(queue, work)

    def _take_up_starts(self) -> None:
        """Partitions begin where the journal says, unless their logs are further already."""
        for key, start in list(self.state.starts.items()):
            topic_id, number = split_partition_key(key)
            topic = self.host.topics.by_id.get(topic_id)
            if topic is None:
                self.append([StartForgotten(key)])
                continue
            log_of_it = topic.partitions[number].log
            if start > log_of_it.end_offset:
                log.warning(
                    "a partition was to begin behind the end of its log, of which something is gone; it begins there",
                    topic=topic.name,
                    partition=number,
                    start_offset=start,
                    end_offset=log_of_it.end_offset,
                )
                self.append([StartMoved(key, log_of_it.end_offset)])
            log_of_it.move_start(max(log_of_it.start_offset, min(start, log_of_it.end_offset)))

    def forget_starts(self, topic: Topic) -> None:
        """A topic is gone: there is nothing left of its partitions."""
        keys = [partition_key(topic.record.topic_id, number) for number in range(len(topic.partitions))]
        events = [StartForgotten(key) for key in keys if key in self.state.starts]
        if events:
            self.append(events)

    def _take_up(self, queue: Queue, work: ShardWork) -> None:
        place = place_of(self.host, queue)
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
            self.append(cut)
        self._watch(queue)
        self.rearm(queue)
        work.take_up_queue(queue)

    async def let_go(self) -> None:
        """Stop serving, finish what is under way, and forget the state: the journal has it."""
        if self._work is None:
            return
        self.is_leading = False
        await self._work.stop()
        for name in self.state.names():
            self.group_times.forget(name)
        for queue in self.state.queues():
            self._queue_times.forget(queue.key)
            self._news.unwatch(queue)
        self._work = None
        self.journal.unload()

    @property
    def work(self) -> ShardWork:
        if self._work is None:
            raise NotLeader(f"this broker does not lead shard {self.number} at present")
        return self._work

    # Changing

    def show(self, event: AnyViewEvent) -> None:
        """Append and apply what this shard is shown of a group. Nothing waits for it: a start shows what is missing."""
        self.journal.propose([event], is_needed=False)

    def append(self, events: Sequence[ShardEvent | GroupForgotten | AnyStartEvent], cause: str = "") -> None:
        """Append and apply. No answer may leave before the journal has ``settled``.

        ``cause`` is what traces show as the reason for a retry or a dead letter.
        """
        work, notes, queues = self.work, self.host.notes, self.state.by_key
        effects = {
            index: foreseen(queue, event)
            for index, event in enumerate(events)
            if isinstance(event, _RANGE_EVENTS) and (queue := queues.get(event.q)) is not None
        }
        self.journal.propose(events)
        for index, event in enumerate(events):
            if not isinstance(event, QueueEvent):
                continue
            queue = queues.get(event.q)
            if queue is None:
                continue
            if isinstance(event, _RANGE_EVENTS):
                notes.swept(queue, effects.get(index, ()))
            else:
                notes.changed(queue, event, cause)
            if not isinstance(event, Acked):
                # An ack makes nothing due earlier.
                self.rearm(queue)
                if isinstance(event, QueueOpened):
                    self._watch(queue)
            if queue.moving:
                work.begin_moving(queue)

    def _watch(self, queue: Queue) -> None:
        """Wake polls of the queue's group when its partition has news."""
        place = place_of(self.host, queue)
        if place is not None:
            self._news.watch(queue, place[1])

    # Times

    def rearm(self, queue: Queue) -> None:
        """Set the timer for the queue's next visibility timeout or retry."""
        self._queue_times.set(queue.key, queue.leases.next_time_ns())

    def look_again(self, queue: Queue, in_ns: int) -> None:
        """What is due in the queue could not be done: try again."""
        self._queue_times.set(queue.key, self.host.clock.now_ns() + in_ns)

    def queue_due(self, key: QueueKey) -> None:
        """The time has come that ``rearm`` has set."""
        queue = self.state.by_key.get(key)
        if queue is not None and self._work is not None:
            self._work.queue_due(queue)

    def group_due(self, name: str) -> None:
        """The same for what was set in ``group_times``."""
        if self._work is not None:
            self._work.group_due(name)


def place_of(host: Host, queue: Queue) -> tuple[Topic, Partition] | None:
    """Where a queue's messages lie; ``None`` if the topic is gone."""
    topic = host.topics.by_id.get(queue.topic_id)
    return None if topic is None else (topic, topic.partitions[queue.partition])
