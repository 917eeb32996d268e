"""Peek: the messages that a group is not done with, and the state of each, without delivering any."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Literal, get_args

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.read import Bounds, read_messages
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.shards.active_group import ActiveGroup
from goqueue.broker.shards.message_status import standings_in
from goqueue.broker.shards.shard_directory import Shards
from goqueue.delivery.queue import Queue
from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import shown
from goqueue.model.message import Message
from goqueue.model.runs import Runs, ascending_to_runs, pairs
from goqueue.observe.trace import GroupStanding, Place, Standing

PeekState = Literal["waiting", "in-flight", "retry", "moving", "in-transaction"]
STATES: tuple[PeekState, ...] = get_args(PeekState)
_STATES: dict[Standing, PeekState] = {
    "waiting": "waiting",
    "in flight": "in-flight",
    "retry": "retry",
    "moving": "moving",
    "acked in a transaction": "in-transaction",
}
"""All others mean that the group is done with the message."""

MAX_LIMIT = 1_000
MOST_LOOKED_AT = 20_000
"""Messages that one look may read and find to be others than those that are wanted."""
MOST_READS = 100
"""Each goes through all that the partition has in flight."""
MOST_BYTES = 64 << 20
_READ_BYTES = 1 << 20
_READ_AT_ONCE = 1_000
_CLOSE = 64
"""Runs that lie so near to each other are read together."""
_PLACE = re.compile(r"([A-Za-z0-9._-]{1,200})/([0-9]{1,9})/([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Peek:
    """Which of a group's messages are meant; all of those that nothing here excludes."""

    topic: str | None = None
    partition: int | None = None
    state: PeekState | None = None
    limit: int = 100
    after: str | None = None
    """``next`` of the page before."""
    max_bytes: int = _READ_BYTES
    """Of one page's messages; one always fits."""

    def check(self) -> None:
        if not 1 <= self.limit <= MAX_LIMIT:
            raise InvalidRequest(f"limit is {shown(self.limit)}; 1 to {MAX_LIMIT} are allowed")
        if self.state is not None and self.state not in STATES:
            raise InvalidRequest(f"state is {shown(self.state)}; use one of {', '.join(STATES)}")
        if self.partition is not None and self.topic is None:
            raise InvalidRequest("a partition is asked for, but no topic")

    def begins_at(self) -> tuple[str, int, int]:
        """By topic, partition and offset."""
        if self.after is None:
            return "", 0, 0
        found = _PLACE.fullmatch(self.after)
        if found is None:
            raise InvalidRequest(f"after is {shown(self.after)}; take it from 'next' of the page before")
        return found[1], int(found[2]), int(found[3])


@dataclass(frozen=True, slots=True)
class Peeked:
    """A message, and where the group is with it."""

    topic: str
    partition: int
    message: Message
    state: PeekState
    deliveries: int
    member: str
    until_ns: int
    """In flight: until when. To be tried again: when; 0 is now."""
    error: str
    """Reason of the last nack or timeout, if there was one."""


@dataclass(slots=True)
class PeekPage:
    """By topic, partition and offset."""

    messages: list[Peeked] = field(default_factory=list)
    next: str | None = None
    """Where to go on; ``None``: there is nothing more."""
    is_complete: bool = True
    """False: it stopped looking before the page was full, because it had looked at enough."""


class Peeking:
    """Reads what groups know and what logs have. Nothing is changed by it."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def page(self, name: str, wanted: Peek) -> PeekPage:
        """Bounded work: as much as is wanted, or until enough was looked at."""
        wanted.check()
        begin = wanted.begins_at()
        group = self._shards.find(name)
        is_stream = group.settings.mode == "stream"
        page, budget, size = PeekPage(), _Budget(), 0
        for topic, partition, queue in self._queues(group, wanted):
            here = topic.name, queue.partition
            if here < begin[:2]:
                continue
            start = begin[2] if here == begin[:2] else 0
            async for at, messages in _stretches(queue, partition, start, wanted.state, is_stream, budget):
                if at is not None:
                    page.next, page.is_complete = str(Place(*here, at)), False
                    return page
                for standing in await standings_in(queue, topic.name, messages, is_stream=is_stream):
                    peeked = _peeked(standing, messages[standing.place.offset], wanted.state)
                    if peeked is None:
                        continue
                    length = _size(peeked.message)
                    if len(page.messages) == wanted.limit or (page.messages and size + length > wanted.max_bytes):
                        page.next = str(standing.place)
                        return page
                    page.messages.append(peeked)
                    size += length
        return page

    def _queues(self, group: ActiveGroup, wanted: Peek) -> list[tuple[Topic, Partition, Queue]]:
        found = []
        if wanted.topic is not None:
            topic = self._shards.host.topic(wanted.topic)
            if wanted.partition is not None:
                topic.partition(wanted.partition)
        for queue in group.queues():
            place = group.shards.place(queue)
            if place is not None and wanted.topic in (None, place[0].name):
                found.append((*place, queue))
        if wanted.topic is not None and not found:
            raise InvalidRequest(f"group {group.name!r} does not read topic {wanted.topic!r}")
        return sorted(
            (each for each in found if wanted.partition in (None, each[2].partition)),
            key=lambda each: (each[0].name, each[2].partition),
        )


@dataclass(slots=True)
class _Budget:
    """How much one look may still read."""

    messages: int = MOST_LOOKED_AT
    reads: int = MOST_READS
    size_bytes: int = MOST_BYTES

    @property
    def is_spent(self) -> bool:
        return self.messages <= 0 or self.reads <= 0 or self.size_bytes <= 0


async def _stretches(
    queue: Queue, partition: Partition, start: int, state: PeekState | None, is_stream: bool, budget: _Budget
) -> AsyncIterator[tuple[int | None, dict[int, Message]]]:
    """Messages that the group may not be done with, by offset. If the budget is spent: where to go on."""
    for first, end in _candidates(queue, partition, start, state, is_stream):
        at = first
        while at < end:
            if budget.is_spent:
                yield at, {}
                return
            # Retention may take what was there a moment ago.
            at = max(at, partition.log.start_offset)
            if at >= end:
                break
            read = await read_messages(partition, at, Bounds(_READ_BYTES, min(_READ_AT_ONCE, end - at)))
            budget.reads -= 1
            budget.messages -= len(read.messages)
            budget.size_bytes -= read.size_bytes
            yield None, {message.offset: message for message in read.messages if message.offset < end}
            if read.next_offset <= at:
                break
            at = read.next_offset
            # What was written lately is read without waiting: others must have their turn.
            await asyncio.sleep(0)


def _candidates(
    queue: Queue, partition: Partition, start: int, state: PeekState | None, is_stream: bool
) -> list[tuple[int, int]]:
    """Runs of offsets outside of which there is nothing to find, neighbours together."""
    end = partition.stable_end
    if is_stream:
        runs = [(queue.committed, end)] if state in (None, "waiting") else []
    elif state in (None, "waiting"):
        runs = sorted(_not_done(queue, end))
    else:
        held: Runs = ascending_to_runs(sorted(queue.held()))
        runs = list(pairs(held))
    together: list[tuple[int, int]] = []
    for first, stop in runs:
        first, stop = max(first, start), min(stop, end)
        if first >= stop:
            continue
        if together and first - together[-1][1] <= _CLOSE:
            together[-1] = together[-1][0], max(stop, together[-1][1])
        else:
            together.append((first, stop))
    return together


def _not_done(queue: Queue, end: int) -> Iterator[tuple[int, int]]:
    """Where one lane has come further than another, the log must say whose the messages between are."""
    for lane in queue.lanes.values():
        yield from lane.acked.gaps(lane.cursor)
        yield lane.cursor, max(lane.cursor, queue.front)
    yield from ((offset, offset + 1) for offset in queue.moving)
    yield queue.front, max(queue.front, end)


def _peeked(standing: GroupStanding, message: Message, wanted: PeekState | None) -> Peeked | None:
    state = _STATES.get(standing.standing)
    if state is None or wanted not in (None, state):
        return None
    return Peeked(
        standing.place.topic,
        standing.place.partition,
        message,
        state,
        standing.deliveries,
        standing.member,
        standing.until_ns,
        standing.reason,
    )


def _size(message: Message) -> int:
    headers = sum(len(name) + len(value) for name, value in message.headers)
    return len(message.value) + len(message.key or b"") + headers
