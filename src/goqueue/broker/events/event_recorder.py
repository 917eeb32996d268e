"""What is noted of every batch as it goes its way: counted for metrics, and remembered for traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from goqueue.broker.events.range_effects import RangeEffects
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.topic import Topic
from goqueue.delivery.events import (
    Acked,
    Delivered,
    Extended,
    Moving,
    Parts,
    QueueEvent,
    Redelivered,
    Released,
    Returned,
)
from goqueue.delivery.queue import Queue
from goqueue.model.clock import Clock
from goqueue.model.errors import GoQueueError
from goqueue.model.ids import TopicId
from goqueue.model.producer_sequences import OpenRecords
from goqueue.model.runs import Offsets, Runs, ascending_to_runs, pairs, size_of, to_runs
from goqueue.observe import trace_event as kinds
from goqueue.observe.trace_event import TraceEvent, joined
from goqueue.observe.tracer import Tracer
from goqueue.storage.log import lanes

INTERNAL = "__"
_SWEPT = {
    kinds.LOST: "retention removed it before the group was done with it",
    kinds.CUT: "a crash took it from the end of the log",
    kinds.RESET: "the group's offsets were reset",
    kinds.SKIPPED: "the group's offsets were reset",
}
"""Why it happened."""


@dataclass(slots=True)
class GroupCounts:
    """Of a group in a topic, since the start."""

    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    nacked: int = 0
    rejected: int = 0
    visibility_timeouts: int = 0
    dead_lettered: int = 0
    discarded: int = 0
    expired: int = 0
    lost: int = 0


class EventRecorder:
    """Everything is called by the event loop, right after it happened."""

    def __init__(self, tracer: Tracer, clock: Clock, topic_by_id: Callable[[TopicId], Topic | None]) -> None:
        self.tracer = tracer
        self.counts: dict[tuple[str, str], GroupCounts] = {}
        """By the names of group and topic."""
        self.redriven: dict[str, int] = {}
        """By the topic that dead letters went back to."""
        self.refused: dict[str, int] = {}
        """By the topic whose schema messages did not fit."""
        self._clock = clock
        self._topic_by_id = topic_by_id

    def forget_group(self, name: str) -> None:
        for key in [key for key in self.counts if key[0] == name]:
            del self.counts[key]

    def topic_deleted(self, topic: Topic) -> None:
        """Its name may be used again: what was noted until now is about this one."""
        name = topic.name
        for key in [key for key in self.counts if key[1] == name]:
            del self.counts[key]
        self.redriven.pop(name, None)
        self.refused.pop(name, None)
        if self.tracer.is_on:
            now_ns = self._clock.now_ns()
            for partition in topic.partitions:
                if partition.log.end_offset:
                    self.tracer.note(TraceEvent(partition.place, now_ns, kinds.DELETED, [0, partition.log.end_offset]))

    # Publishing

    def published(self, partition: Partition, first: int, count: int, at_ns: int) -> None:
        if self.tracer.is_on:
            end = first + count
            reason = _of_transaction(partition, end)
            self.tracer.note(TraceEvent(partition.place, at_ns, kinds.PUBLISH, [first, end], reason=reason))

    def transaction_ended(
        self, partition: Partition, records: OpenRecords, at_ns: int, *, is_commit: bool, reason: str = ""
    ) -> None:
        """What a transaction has written to a partition is seen from now on, or never; ``reason``: why never."""
        if self.tracer.is_on:
            is_one_run = len(records.seen) == 2 and not records.delayed
            offsets = records.seen if is_one_run else joined([records.seen, records.delayed])
            kind = kinds.COMMITTED if is_commit else kinds.ABORTED
            if not is_commit:
                reason = f"{kinds.NEVER_SEEN}: {reason}" if reason else kinds.NEVER_SEEN
            self.tracer.note(TraceEvent(partition.place, at_ns, kind, offsets, reason=reason))

    # Delays

    def delayed(self, partition: Partition, offsets: NDArray[np.int64], dues: NDArray[np.int64], at_ns: int) -> None:
        if self.tracer.is_on:
            first_due = int(dues[0])
            # If their due times differ, each record states its own.
            until_ns = first_due if (dues == first_due).all() else 0
            runs = _ascending_runs(offsets.tolist())
            self.tracer.note(TraceEvent(partition.place, at_ns, kinds.DELAY, runs, until=until_ns))

    def fired(self, partition: Partition, originals: list[int], first_copy: int, at_ns: int) -> None:
        """``originals`` are in the order of their copies."""
        if self.tracer.is_on:
            ascending = sorted(originals)
            runs, order = _ascending_runs(ascending), originals if originals != ascending else []
            place = partition.place
            self.tracer.note(TraceEvent(place, at_ns, kinds.FIRED, runs, to=place, first_copy=first_copy, order=order))

    def delay_changed(self, partition: Partition, offset: int, due_ns: int | None, at_ns: int) -> None:
        """Cancelled, or due at another time."""
        if self.tracer.is_on:
            kind = kinds.CANCELLED if due_ns is None else kinds.RESCHEDULED
            self.tracer.note(TraceEvent(partition.place, at_ns, kind, [offset, offset + 1], until=due_ns or 0))

    # Delivering

    def changed(self, queue: Queue, event: QueueEvent, cause: str) -> None:
        """A queue's event was applied. ``cause`` tells why messages came back or went to the dead letters."""
        topic = self._topic_by_id(queue.topic_id)
        if topic is None or queue.group.startswith(INTERNAL):
            return
        counts = self._counts(queue.group, topic.record.name)
        match event:
            case Delivered(runs=runs) if runs:
                counts.delivered += size_of(runs)
                self._note(topic, queue, kinds.CONSUME, runs, member=event.member, until=event.until_ns)
            case Redelivered():
                counts.redelivered += self._note_parts(
                    topic, queue, kinds.REDELIVERED, event.parts, member=event.member, until=event.until_ns
                )
            case Acked() if event.error:
                self._discarded(topic, queue, event, cause, counts)
            case Acked():
                _count(counts, kind := cause or kinds.ACK, self._note_parts(topic, queue, kind, event.parts))
            case Returned():
                kind = cause or kinds.RELEASED
                size = self._note_parts(topic, queue, kind, event.parts, reason=event.error, until=event.at_ns)
                _count(counts, kind, size)
            case Moving() if cause and event.parts:
                _count(counts, cause, self._note_parts(topic, queue, cause, event.parts, reason=event.reason))
            case Released():
                self._note_parts(topic, queue, kinds.RELEASED, event.parts, reason="it was not seen by its consumer")
            case Extended():
                self._note_parts(topic, queue, kinds.EXTENDED, event.parts, until=event.until_ns)

    def streamed(self, queue: Queue, offsets: Offsets, member: str) -> None:
        """A stream's member got messages; its journal does not know of that."""
        topic = self._topic_by_id(queue.topic_id)
        if topic is not None:
            self._counts(queue.group, topic.name).delivered += size_of(offsets)
            self._note(topic, queue, kinds.CONSUME, offsets, member=member)

    def _discarded(self, topic: Topic, queue: Queue, event: Acked, cause: str, counts: GroupCounts) -> None:
        """Dead letters were tried often enough; what led to it is told first."""
        if not event.parts:
            return
        if cause:
            _count(counts, cause, self._note_parts(topic, queue, cause, event.parts, reason=event.error))
        counts.discarded += self._note_parts(topic, queue, kinds.DISCARDED, event.parts, reason=event.error)

    def swept(self, queue: Queue, foreseen: Iterable[RangeEffects]) -> None:
        """An event was applied that does not name its messages."""
        topic = self._topic_by_id(queue.topic_id)
        if topic is None or queue.group.startswith(INTERNAL):
            return
        counts = self._counts(queue.group, topic.name)
        for each in foreseen:
            if not size_of(each.runs):
                continue
            counts.lost += each.lost
            if each.kind == kinds.COMMITTED:
                counts.acked += _visible(topic.partitions[queue.partition], *each.runs)
            # Many gaps take less room in the other form.
            offsets = joined([[first, end] for first, end in pairs(each.runs)])
            self._note(topic, queue, each.kind, offsets, reason=_SWEPT.get(each.kind, ""))

    def lost(self, queue: Queue, offsets: Runs, reason: str) -> None:
        """The log does not have them any more, and the group was not done with them."""
        topic = self._topic_by_id(queue.topic_id)
        if topic is not None and not queue.group.startswith(INTERNAL):
            self._counts(queue.group, topic.name).lost += size_of(offsets)
            self._note(topic, queue, kinds.LOST, offsets, reason=reason)

    def expired(self, queue: Queue, offsets: Sequence[int], reason: str) -> None:
        """Their time to live was over before anyone got them."""
        topic = self._topic_by_id(queue.topic_id)
        if topic is not None and offsets:
            self._counts(queue.group, topic.name).expired += len(offsets)
            self._note(topic, queue, kinds.EXPIRED, to_runs(sorted(offsets)), reason=reason)

    def moved(
        self,
        queue: Queue,
        target: Topic,
        partition: Partition,
        offsets: list[int],
        first_copy: int,
        reason: str,
        at_ns: int,
    ) -> None:
        """Copies are where they belong. ``offsets`` ascend, and the copies are in their order."""
        topic = self._topic_by_id(queue.topic_id)
        if topic is None:
            return
        kind, group = kinds.DLQ, queue.group
        if group.startswith(INTERNAL):
            kind, group, reason = kinds.REDRIVEN, "", ""
            self.redriven[target.name] = self.redriven.get(target.name, 0) + len(offsets)
        else:
            self._counts(group, topic.name).dead_lettered += len(offsets)
        if self.tracer.is_on:
            self.tracer.note(
                TraceEvent(
                    topic.partitions[queue.partition].place,
                    at_ns,
                    kind,
                    to_runs(offsets),
                    group=group,
                    reason=reason,
                    to=partition.place,
                    first_copy=first_copy,
                )
            )

    def misfits(self, topic: Topic, count: int) -> None:
        """Messages do not fit their topic's schema, whatever becomes of them."""
        if count:
            self.refused[topic.name] = self.refused.get(topic.name, 0) + count

    def buried(self, partition: Partition, grave: Partition, offsets: list[int], first_copy: int, reason: str) -> None:
        """Messages did not fit their topic's schema and went to the dead letters; ``offsets`` ascend."""
        if self.tracer.is_on:
            self.tracer.note(
                TraceEvent(
                    partition.place,
                    self._clock.now_ns(),
                    kinds.DLQ,
                    to_runs(offsets),
                    reason=reason,
                    to=grave.place,
                    first_copy=first_copy,
                )
            )

    def _counts(self, group: str, topic: str) -> GroupCounts:
        found = self.counts.get((group, topic))
        if found is None:
            found = self.counts[group, topic] = GroupCounts()
        return found

    def _note_parts(
        self, topic: Topic, queue: Queue, kind: str, parts: Parts, *, member: str = "", reason: str = "", until: int = 0
    ) -> int:
        """Returns how many messages these are."""
        if parts and self.tracer.is_on:
            offsets = parts[0][1] if len(parts) == 1 else joined([each for _, each in parts])
            self._note(topic, queue, kind, offsets, member=member, reason=reason, until=until)
        return sum([size_of(each) for _, each in parts])

    def _note(
        self,
        topic: Topic,
        queue: Queue,
        kind: str,
        offsets: Offsets,
        *,
        member: str = "",
        reason: str = "",
        until: int = 0,
    ) -> None:
        if self.tracer.is_on:
            place = topic.partitions[queue.partition].place
            self.tracer.note(TraceEvent(place, self._clock.now_ns(), kind, offsets, queue.group, member, reason, until))


def _count(counts: GroupCounts, kind: str, size: int) -> None:
    match kind:
        case kinds.ACK:
            counts.acked += size
        case kinds.NACK:
            counts.nacked += size
        case kinds.REJECT:
            counts.rejected += size
        case kinds.EXPIRED:
            counts.visibility_timeouts += size
        case kinds.LOST:
            counts.lost += size


def _visible(partition: Partition, first: int, end: int) -> int:
    """How many of these offsets are messages that a group sees."""
    aborted = partition.producers.state.aborted.count(first, end)
    if partition.log.special_end <= first:
        return end - first - aborted
    try:
        # What retention took since, nobody can tell any more.
        start = max(first, min(end, partition.log.start_offset))
        return start - first + lanes.visible(partition.log, start, end) - aborted
    except (OSError, GoQueueError):
        # An index that cannot be read is no reason for anyone to wait.
        return end - first


def _ascending_runs(offsets: list[int]) -> Runs:
    """The offsets as runs; mostly they follow one another without a gap."""
    first, last = offsets[0], offsets[-1]
    return [first, last + 1] if last - first == len(offsets) - 1 else ascending_to_runs(offsets)


def _of_transaction(partition: Partition, end: int) -> str:
    """Whether the batch that was appended just now, up to ``end``, is part of a transaction, and whose."""
    state = partition.producers.state
    if state.first_open is None:
        return ""
    # Who has stored something last stands last: there may be thousands to look through.
    producer_id, producer = next(reversed(state.known.items()))
    if producer.open is None or producer.open.end != end:
        return ""
    return f"{kinds.IN_TRANSACTION} of producer {producer_id}"


def common_reason(reasons: Iterable[str]) -> str:
    """The reason of all of them; empty if they differ."""
    found = set(reasons)
    return found.pop() if len(found) == 1 else ""
