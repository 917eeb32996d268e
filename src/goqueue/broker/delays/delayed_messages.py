"""Delayed messages of all topics: listing, cancelling and rescheduling them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from heapq import merge
from itertools import islice

import numpy as np

from goqueue.broker.delays.firing import DelayTally, Firing, Waiting
from goqueue.broker.partitions.delayed_records import read_delayed_records
from goqueue.broker.partitions.derived_files import SAVE_BEHIND
from goqueue.broker.partitions.partition import LATEST_DUE_NS, Partition
from goqueue.broker.partitions.running_topics import RunningTopics
from goqueue.broker.partitions.topic import Topic
from goqueue.model.clock import NANOS_PER_MS, Clock
from goqueue.model.errors import DelayedNotFound, GoQueueError, InvalidMessage, InvalidRequest
from goqueue.model.fields import shown
from goqueue.model.message import Message
from goqueue.wire.batch import FrameRun
from goqueue.wire.decoding import decode_run

MAX_PAGE = 1_000
_MAX_DELAY_MS = LATEST_DUE_NS // NANOS_PER_MS
_PAGE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A message that waits. ``message`` is as its producer sent it; ``None`` if it did not fit into the page."""

    topic: str
    partition: int
    offset: int
    deliver_at_ns: int
    message: Message | None


@dataclass(frozen=True, slots=True)
class DelayedPage:
    """Delayed messages in the order of their due times; ``next`` continues the list, if there are more."""

    messages: list[DelayedMessage]
    next: str | None
    total: int


@dataclass(frozen=True, slots=True)
class DelayStats:
    pending: int
    tally: DelayTally
    next_due_ns: int | None


class Delays:
    """The delayed messages of all partitions."""

    def __init__(self, firing: Firing, clock: Clock, topics: RunningTopics) -> None:
        self._clock = clock
        self._topics = topics
        self._firing = firing

    # Life

    def start(self) -> None:
        """From here on messages become visible when they are due."""
        self._firing.timers.start(self._partitions())

    def _partitions(self) -> list[Partition]:
        return [partition for topic in self._topics.by_name.values() for partition in topic.partitions]

    async def stop(self) -> None:
        await self._firing.stop()

    async def save(self, *, everything: bool = False) -> None:
        """Write the files of partitions where much happened since, or cleaning up waits for it, or all that changed."""
        for partition in self._partitions():
            delays = partition.delays
            behind = delays.log.end_offset - delays.saved_at
            is_due = len(delays.pending) > 0 and behind > SAVE_BEHIND
            is_due = is_due or delays.holds_up_files() or delays.holds_up_compaction()
            if (is_due or (everything and delays.changes)) and await partition.derived.save_delays():
                partition.derived.drop_unneeded()

    # Looking

    @property
    def pending(self) -> int:
        """How many messages wait, those of open transactions included.

        A message that was due waits until its append is durable. Before that it counts in no group's lag, so it would
        be missing from both numbers.
        """
        return self._firing.timers.pending + self._firing.not_durable

    def overdue(self, before_ns: int) -> list[Waiting]:
        """Partitions where something was due before that instant and still waits."""
        return self._firing.overdue(before_ns)

    async def page(self, name: str, limit: int, after: str | None = None) -> DelayedPage:
        """What waits in a topic, the next due first."""
        if not 1 <= limit <= MAX_PAGE:
            raise InvalidRequest(f"limit is {shown(limit)}; 1 to {MAX_PAGE} are allowed")
        topic = self._topics.find(name)
        place = None if after is None else _parse_place(after)
        found = []
        for number, partition in enumerate(topic.partitions):
            if len(partition.delays.pending):
                behind = None if place is None else (place[0], _offset_behind(place, number))
                found.append([(due, number, at) for due, at in partition.delays.pending.earliest(limit + 1, behind)])
                # Each may have a million to look through.
                await asyncio.sleep(0)
        chosen = list(islice(merge(*found), limit + 1))
        page = chosen[:limit]
        total = sum(len(each.delays.pending) for each in topic.partitions)
        messages = await self._describe(topic, page)
        return DelayedPage(messages, _place(page[-1]) if len(chosen) > limit else None, total)

    async def get(self, name: str, number: int, offset: int) -> DelayedMessage:
        topic = self._topics.find(name)
        due_ns = self._due(topic, number, offset)
        return (await self._describe(topic, [(due_ns, number, offset)]))[0]

    def partitions_of(self, name: str, offset: int) -> list[int]:
        """In which partitions a message waits at this offset."""
        topic = self._topics.find(name)
        return [
            number
            for number, partition in enumerate(topic.partitions)
            if partition.delays.pending.due(offset) is not None
        ]

    @property
    def tally(self) -> DelayTally:
        return self._firing.tally

    def stats(self) -> DelayStats:
        return DelayStats(self.pending, self._firing.tally, self._firing.timers.next_due_ns())

    def _due(self, topic: Topic, number: int, offset: int) -> int:
        due_ns = topic.partition(number).delays.pending.due(offset)
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
                found, looked = await read_delayed_records(topic.partitions[number], offsets, min(left, 1 << 20))
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
        topic = self._topics.find(name)
        self._due(topic, number, offset)
        partition = topic.partition(number)
        acknowledged = self._write(partition, partial(partition.append_cancel, offset))
        self._firing.tally.cancelled += 1
        await self._settled(partition, acknowledged)

    async def reschedule(
        self, name: str, number: int, offset: int, *, delay_ms: int | None = None, deliver_at_ns: int | None = None
    ) -> DelayedMessage:
        """It becomes visible at another time; durable when this returns."""
        topic = self._topics.find(name)
        now_ns = self._clock.now_ns()
        due_ns = due_time(now_ns, delay_ms, deliver_at_ns)
        if due_ns is None:
            raise InvalidRequest("say when: delay or deliver_at")
        self._due(topic, number, offset)
        partition = topic.partition(number)
        acknowledged = self._write(partition, partial(partition.append_reschedule, offset, due_ns))
        self._firing.tally.rescheduled += 1
        described = (await self._describe(topic, [(due_ns, number, offset)]))[0]
        await self._settled(partition, acknowledged)
        return described

    def _write(self, partition: Partition, append: Callable[[], int]) -> asyncio.Future[None]:
        """``append`` returns the offset behind what it has written."""
        try:
            end = append()
        except GoQueueError as error:
            raise partition.reason(error) from None
        return partition.acknowledge(end)

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
    if deliver_at_ns is not None and not 0 <= deliver_at_ns <= LATEST_DUE_NS:
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
