"""Delayed messages: what waits, looking at it, taking it back, putting it off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import merge
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from goqueue.broker.delays.firing import DelayTally, Firing, Waiting
from goqueue.broker.events.event_recorder import Notes
from goqueue.broker.partitions.delayed_records import read_originals
from goqueue.broker.partitions.derived_files import SAVE_BEHIND
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.partition_delays import PartitionDelays
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.timer_service import Clockwork
from goqueue.model.errors import DelayedNotFound, GoQueueError, InvalidMessage, InvalidRequest, TooManyDelayed
from goqueue.model.fields import shown
from goqueue.model.message import Message
from goqueue.model.ports import NANOS_PER_MS, Clock
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.files.files import Files
from goqueue.wire.batch import CheckedBatch, FrameRun, join_frames
from goqueue.wire.decoding import decode_run
from goqueue.wire.delayed import cancel_frame, reschedule_frame, settle_delays
from goqueue.wire.delayed_single import settle_single

MAX_PAGE = 1_000
LATEST_NS = 7_258_118_400 * 10**9
"""The year 2200: what is due later does not fit into the arithmetic of a wheel for long."""
_MAX_DELAY_MS = LATEST_NS // NANOS_PER_MS
_PAGE_BYTES = 16 << 20
_FIRST = np.zeros(1, np.intp)
_FIRST.flags.writeable = False
"""The place of a message that is alone in its batch."""


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """One that waits. ``message`` is as its producer gave it; ``None`` if it is too much for one page."""

    topic: str
    partition: int
    offset: int
    deliver_at_ns: int
    message: Message | None


@dataclass(frozen=True, slots=True)
class DelayedPage:
    """Ordered by time. ``next`` leads to what follows, if anything does."""

    messages: list[DelayedMessage]
    next: str | None
    total: int


@dataclass(frozen=True, slots=True)
class DelayStats:
    pending: int
    tally: DelayTally
    next_due_ns: int | None


class Delays:
    def __init__(
        self,
        clockwork: Clockwork,
        clock: Clock,
        files: Files,
        check_disk: Callable[[], None],
        find_topic: Callable[[str], Topic],
        max_delayed: int,
        notes: Notes,
    ) -> None:
        self._clock = clock
        self._files = files
        self._find_topic = find_topic
        self._max_delayed = max_delayed
        self._notes = notes
        self._firing = Firing(clockwork, clock, check_disk, notes)
        self._waiting: dict[Partition, Waiting] = {}
        self._known: dict[Partition, PartitionDelays] = {}
        self._at_most = 0
        """How many may wait: all that did when they were last counted, and all that came since."""

    # Life

    def opened(self, partition: Partition, point: RecoveryPoint | None) -> None:
        """Learn what waits in a partition that was just opened."""
        partition.delays.recover(self._files, point)
        self._known[partition] = partition.delays

    def start(self) -> None:
        """From here on what is due becomes visible."""
        for partition, delays in self._known.items():
            # A transfer that went on may have brought some already.
            if len(delays):
                self._watched(partition)

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Their topic was deleted."""
        for partition in partitions:
            self._known.pop(partition, None)
            waiting = self._waiting.pop(partition, None)
            if waiting is not None:
                self._firing.forget(waiting)

    async def stop(self) -> None:
        await self._firing.stop()

    async def save(self, *, everything: bool = False) -> None:
        """Write the files of partitions where much happened since, or cleaning up waits for it, or all that changed."""
        for partition, delays in list(self._known.items()):
            behind = delays.log.end_offset - delays.saved_at
            is_due = len(delays.pending) > 0 and behind > SAVE_BEHIND
            is_due = is_due or delays.holds_up_files() or delays.holds_up_compaction()
            if (is_due or (everything and delays.changes)) and await partition.derived.save_delays():
                delays.log.drop_what_nothing_holds()

    # Publishing

    @property
    def pending(self) -> int:
        return sum(len(each.delays) for each in self._waiting.values())

    def check_room(self, more: int, pending: int | None = None) -> None:
        """``pending`` spares counting what waits again and again."""
        if self._at_most + more <= self._max_delayed:
            # There may be thousands of partitions to count in, and it is only a matter of how many there are at most.
            return
        if pending is None:
            pending = self._at_most = self.pending
        if pending + more > self._max_delayed:
            raise TooManyDelayed(f"{pending} delayed messages wait, and limits.max_delayed is {self._max_delayed}")

    def _watched(self, partition: Partition) -> Waiting:
        waiting = self._waiting.get(partition)
        if waiting is None:
            waiting = self._waiting[partition] = self._firing.watch(partition, self._known[partition])
            self._at_most += len(waiting.delays)
        return waiting

    def append(
        self, partition: Partition, batch: CheckedBatch, *, is_new: bool = True, in_transaction: bool = False
    ) -> int:
        """Write a batch of which some may be delayed; return the first offset. What is due already is not delayed.

        ``is_new``: it comes from a producer, and not from another partition. In a transaction times do not count
        before it is committed.
        """
        now_ns = self._clock.now_ns()
        # What is due by the time of the commit is seen then; until then it is one of the delayed.
        due_ns = settle_single(batch, now_ns, LATEST_NS)
        if due_ns is not None:
            places, dues = _FIRST, np.array([due_ns], np.int64)
        else:
            batch, places, dues = settle_delays(batch, now_ns, LATEST_NS)
        if len(places):
            self.check_room(len(places))
        first = partition.append(batch)
        stamp = batch.producer
        if stamp is not None:
            partition.producers.stored(stamp, first, batch, now_ns, is_open=in_transaction)
        if is_new:
            self._notes.published(partition, first, len(batch))
        if len(places):
            waiting = self._watched(partition)
            self._at_most += len(places)
            if in_transaction and stamp is not None:
                waiting.delays.hold(stamp.producer_id, first + places, dues)
            else:
                waiting.delays.added(first + places, dues)
                self._schedule(waiting, first + places, dues)
        return first

    def transaction_ended(self, partition: Partition, producer_id: int, *, is_commit: bool) -> None:
        """What a transaction has delayed is scheduled, or never seen."""
        offsets, dues = self._known[partition].end_hold(producer_id, is_commit=is_commit)
        if is_commit and len(offsets):
            self._schedule(self._watched(partition), offsets, dues)

    def _schedule(self, waiting: Waiting, offsets: NDArray[np.int64], dues: NDArray[np.int64]) -> None:
        self._notes.delayed(waiting.partition, offsets, dues)
        self._firing.schedule(waiting, offsets, dues)

    def overdue(self, before_ns: int) -> list[Waiting]:
        """Partitions where something was due before that instant and still waits."""
        return self._firing.overdue(before_ns)

    def waiting_in(self, partition: Partition) -> int:
        """How many messages wait in a partition, those of open transactions included."""
        delays = self._known.get(partition)
        return 0 if delays is None else len(delays)

    def is_pending(self, partition: Partition, offset: int) -> bool:
        """Whether compaction must keep a delayed record."""
        delays = self._known.get(partition)
        return delays is None or delays.is_wanted(offset)

    # Looking

    async def page(self, name: str, limit: int, after: str | None = None) -> DelayedPage:
        """What waits in a topic, the next due first."""
        if not 1 <= limit <= MAX_PAGE:
            raise InvalidRequest(f"limit is {shown(limit)}; 1 to {MAX_PAGE} are allowed")
        topic = self._find_topic(name)
        place = None if after is None else _parse_place(after)
        found = []
        for number, partition in enumerate(topic.partitions):
            waiting = self._waiting.get(partition)
            if waiting is not None:
                behind = None if place is None else (place[0], _offset_behind(place, number))
                found.append([(due, number, at) for due, at in waiting.delays.pending.earliest(limit + 1, behind)])
                # Each may have a million to look through.
                await asyncio.sleep(0)
        chosen = list(islice(merge(*found), limit + 1))
        page = chosen[:limit]
        total = sum(len(each.delays.pending) for each in map(self._waiting.get, topic.partitions) if each is not None)
        messages = await self._describe(topic, page)
        return DelayedPage(messages, _place(page[-1]) if len(chosen) > limit else None, total)

    async def get(self, name: str, number: int, offset: int) -> DelayedMessage:
        topic = self._find_topic(name)
        due_ns = self._due(topic, number, offset)
        return (await self._describe(topic, [(due_ns, number, offset)]))[0]

    def partitions_of(self, name: str, offset: int) -> list[int]:
        """In which partitions a message waits at this offset."""
        topic = self._find_topic(name)
        return [
            number
            for number, partition in enumerate(topic.partitions)
            if (waiting := self._waiting.get(partition)) is not None and waiting.delays.pending.due(offset) is not None
        ]

    @property
    def tally(self) -> DelayTally:
        return self._firing.tally

    def stats(self) -> DelayStats:
        dues = [each.delays.pending.next_due_ns() for each in self._waiting.values()]
        return DelayStats(self.pending, self._firing.tally, min((due for due in dues if due is not None), default=None))

    def due(self, partition: Partition, offset: int) -> int | None:
        """When the message that waits there is due, be it in a transaction that is open; ``None`` if none does."""
        waiting = self._waiting.get(partition)
        return None if waiting is None else waiting.delays.due(offset)

    def _due(self, topic: Topic, number: int, offset: int) -> int:
        waiting = self._waiting.get(topic.partition(number))
        due_ns = None if waiting is None else waiting.delays.pending.due(offset)
        if due_ns is None:
            raise DelayedNotFound(
                f"no message waits at offset {shown(offset)} of partition {number} of {topic.name!r}: "
                "it was delivered or cancelled, or never delayed"
            )
        return due_ns

    async def _describe(self, topic: Topic, places: list[tuple[int, int, int]]) -> list[DelayedMessage]:
        frames: dict[tuple[int, int], memoryview] = {}
        left = _PAGE_BYTES
        for number in {number for _, number, _ in places}:
            offsets = sorted(offset for _, of, offset in places if of == number)
            while offsets and left > 0:
                found, looked = await read_originals(topic.partitions[number], offsets, min(left, 1 << 20))
                frames |= {(number, offset): frame for offset, frame in found.items()}
                left -= sum(len(frame) for frame in found.values())
                offsets = offsets[looked:]
        return [
            DelayedMessage(topic.name, number, offset, due_ns, _decode(frames.get((number, offset))))
            for due_ns, number, offset in places
        ]

    # Changing

    async def cancel(self, name: str, number: int, offset: int) -> None:
        """It will never be seen; durable when this returns."""
        topic = self._find_topic(name)
        self._due(topic, number, offset)
        partition = topic.partition(number)
        now_ns = self._clock.now_ns()
        acknowledged = self._write(partition, cancel_frame(offset, now_ns), now_ns)
        self._known[partition].ended(np.array([offset], np.int64))
        self._firing.tally.cancelled += 1
        self._notes.delay_changed(partition, offset, None)
        await self._settled(partition, acknowledged)

    async def reschedule(
        self, name: str, number: int, offset: int, *, delay_ms: int | None = None, deliver_at_ns: int | None = None
    ) -> DelayedMessage:
        """It becomes visible at another time; durable when this returns."""
        topic = self._find_topic(name)
        now_ns = self._clock.now_ns()
        due_ns = due_time(now_ns, delay_ms, deliver_at_ns)
        if due_ns is None:
            raise InvalidRequest("say when: delay or deliver_at")
        self._due(topic, number, offset)
        partition = topic.partition(number)
        acknowledged = self._write(partition, reschedule_frame(offset, due_ns, now_ns), now_ns)
        self._known[partition].rescheduled(offset, due_ns)
        self._firing.schedule(self._waiting[partition], np.array([offset], np.int64), np.array([due_ns], np.int64))
        self._firing.tally.rescheduled += 1
        self._notes.delay_changed(partition, offset, due_ns)
        described = (await self._describe(topic, [(due_ns, number, offset)]))[0]
        await self._settled(partition, acknowledged)
        return described

    def _write(self, partition: Partition, frame: bytes, now_ns: int) -> asyncio.Future[None]:
        try:
            first = partition.append(join_frames([frame], now_ns))
        except GoQueueError as error:
            raise partition.reason(error) from None
        return partition.acknowledge(first + 1)

    async def _settled(self, partition: Partition, acknowledged: asyncio.Future[None]) -> None:
        try:
            await acknowledged
        except GoQueueError as error:
            raise partition.reason(error) from None


def due_time(now_ns: int, delay_ms: int | None, deliver_at_ns: int | None) -> int | None:
    """When a message is to be seen, by the broker's clock; ``None`` if nothing was said."""
    if delay_ms is not None and deliver_at_ns is not None:
        raise InvalidMessage("a message has a delay or a time to be delivered at, not both")
    if delay_ms is not None:
        if not 0 <= delay_ms <= _MAX_DELAY_MS:
            raise InvalidMessage(f"the delay is {shown(delay_ms)} ms; it cannot be negative or reach beyond 2200")
        deliver_at_ns = now_ns + delay_ms * NANOS_PER_MS
    if deliver_at_ns is not None and not 0 <= deliver_at_ns <= LATEST_NS:
        raise InvalidMessage("the time to be delivered at must lie between 1970 and 2200")
    return deliver_at_ns


def _place(entry: tuple[int, int, int]) -> str:
    due_ns, number, offset = entry
    return f"{due_ns}-{number}-{offset}"


def _parse_place(text: str) -> tuple[int, int, int]:
    parts = text.split("-")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 20 for part in parts):
        raise InvalidRequest(f"after is {shown(text)}; take it from 'next' of the page before")
    due_ns, number, offset = map(int, parts)
    return due_ns, number, offset


def _offset_behind(place: tuple[int, int, int], number: int) -> int:
    """Of those due at the very time at which the page before ended, where a partition goes on."""
    _, last, offset = place
    if number == last:
        return offset
    return (1 << 62) if number < last else -1


def _decode(frame: memoryview | None) -> Message | None:
    if frame is None:
        return None
    messages, _ = decode_run(FrameRun(frame, np.zeros(1, np.uint32)), verify=False)
    # The last header tells when it is due.
    only = messages[0]
    return Message(
        only.offset, only.timestamp_ns, only.key, only.value, only.headers[:-1], only.priority, only.tombstone,
        only.compressed,
    )  # fmt: skip
