"""Dead letters: looking at them, and sending them back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from goqueue.broker.dead_letters.moved_messages import REDRIVE
from goqueue.broker.delays.delayed_messages import due_time
from goqueue.broker.partitions.read import Bounds, read_messages
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.shards.backlog import NORMAL
from goqueue.broker.shards.dead_letter_topics import dead_letter_topic, target_in
from goqueue.broker.shards.shard_directory import Shards
from goqueue.coordination.group import GroupMade
from goqueue.coordination.shard_state import ShardEvent
from goqueue.delivery.dead_letters import decide_redrive
from goqueue.delivery.events import QueueOpened, Target
from goqueue.delivery.queue import Queue
from goqueue.model.errors import GroupNotFound, InvalidRequest, TopicNotFound
from goqueue.model.ids import GroupId, TopicId, queue_key
from goqueue.model.message import Message
from goqueue.model.runs import size_of
from goqueue.wire import internal_headers as system

MAX_AT_ONCE = 10_000
MAX_RATE = 1_000_000
MAX_BROWSED_BYTES = 16 << 20
_CALL_S = 5.0
"""How long one call goes on at most at the rate that was asked for; the caller calls again for the rest."""
_STEP = 100


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter and what it tells of itself."""

    partition: int
    message: Message
    topic: str
    origin_partition: int
    origin_offset: int
    group: str
    error: str
    deliveries: int
    redriven: bool
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters are meant; all of those that nothing here excludes."""

    group: str | None = None
    error: str | None = None
    """Part of the error's text."""
    since_ns: int | None = None
    until_ns: int | None = None
    messages: frozenset[tuple[int, int]] | None = None
    """Partitions and offsets in the dead-letter topic."""

    def fits(self, letter: DeadLetter) -> bool:
        died_ns = letter.message.timestamp_ns
        return (
            (self.group is None or letter.group == self.group)
            and (self.error is None or self.error in letter.error)
            and (self.since_ns is None or died_ns >= self.since_ns)
            and (self.until_ns is None or died_ns < self.until_ns)
            and (self.messages is None or (letter.partition, letter.message.offset) in self.messages)
        )


@dataclass(slots=True)
class Redriven:
    """What a redrive did, or would do."""

    matched: int = 0
    redriven: int = 0
    already: int = 0
    """Dead letters that fit and were redriven before."""
    unreachable: int = 0
    """Dead letters that fit and cannot go back: their topic or their group is gone, or they do not fit its schema."""
    by_topic: dict[str, int] = field(default_factory=dict)
    next: tuple[int, int] | None = None
    """Where the next that fits lies: call again from there."""


class DeadLetters:
    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    def topic_of(self, name: str) -> Topic:
        """The dead-letter topic of a topic, or itself if it is one."""
        host = self._shards.host
        topic = host.topic(name)
        dead = dead_letter_topic(host, topic)
        if dead is None:
            return topic
        try:
            return host.topic(dead)
        except TopicNotFound:
            raise TopicNotFound(
                f"topic {name!r} has no dead letters: {dead!r} is made when the first one comes"
            ) from None

    async def browse(
        self, name: str, wanted: Filter, limit: int, after: tuple[int, int] = (0, 0), max_bytes: int = MAX_BROWSED_BYTES
    ) -> list[DeadLetter]:
        """In the order of partitions and offsets, beginning at ``after``; no more once there are ``max_bytes``."""
        found: list[DeadLetter] = []
        size = 0
        async for letter in self._letters(name, after):
            if wanted.fits(letter):
                found.append(letter)
                size += len(letter.message.value)
                if len(found) >= limit or size >= max_bytes:
                    break
        return found

    async def redrive(
        self,
        name: str,
        wanted: Filter,
        limit: int,
        rate: float | None,
        after: tuple[int, int] = (0, 0),
        *,
        dry_run: bool,
        delay_ms: int | None = None,
    ) -> Redriven:
        """Send dead letters back to the topics they came from, for the groups that they came from.

        As many as ``limit`` allows, or a few seconds' worth of ``rate`` (messages/s), beginning at ``after``. With a
        delay they wait in their topics, like any delayed message.
        """
        due_ns = due_time(self._shards.clock.now_ns(), delay_ms, None) or 0
        if not 1 <= limit <= MAX_AT_ONCE:
            raise InvalidRequest(f"limit is {limit}; 1 to {MAX_AT_ONCE} are allowed")
        if rate is not None and not 0 < rate <= MAX_RATE:
            raise InvalidRequest(f"rate is {rate}; more than 0 and at most {MAX_RATE} messages/s are allowed")
        topic = self.topic_of(name)
        report = Redriven()
        step = _STEP
        if rate is not None and not dry_run:
            limit = min(limit, max(1, int(rate * _CALL_S)))
            step = max(1, min(_STEP, int(rate / 10)))
        some: list[DeadLetter] = []
        async for letter in self._letters(name, after):
            if not wanted.fits(letter):
                continue
            if letter.redriven:
                report.already += 1
            elif self._origin(letter) is None or await self._is_misfit(letter):
                report.unreachable += 1
            elif report.matched == limit:
                report.next = (letter.partition, letter.message.offset)
                break
            else:
                report.matched += 1
                report.by_topic[letter.topic] = report.by_topic.get(letter.topic, 0) + 1
                some.append(letter)
                if len(some) >= step:
                    await self._send(topic, some, rate, report, due_ns, dry_run=dry_run)
                    some = []
        await self._send(topic, some, rate, report, due_ns, dry_run=dry_run)
        return report

    async def _send(
        self,
        topic: Topic,
        letters: list[DeadLetter],
        rate: float | None,
        report: Redriven,
        due_ns: int,
        *,
        dry_run: bool,
    ) -> None:
        if dry_run or not letters:
            return
        report.redriven += await self._send_back(topic, letters, due_ns)
        if rate is not None:
            await asyncio.sleep(len(letters) / rate)

    async def _send_back(self, topic: Topic, letters: list[DeadLetter], due_ns: int) -> int:
        """Decide for some, and wait until they are where they belong."""
        self._shards.host.check_open()
        if self._shards.host.topic_by_id(topic.record.topic_id) is None:
            # Deleted since they were read: what is opened for it now would never be closed.
            raise TopicNotFound(f"topic {topic.name!r} was deleted")
        sent: list[Queue] = []
        count = 0
        for number in sorted({letter.partition for letter in letters}):
            queue = self._queue(topic, number)
            targets = {
                letter.message.offset: replace(target, due_ns=due_ns)
                for letter in letters
                if letter.partition == number and (target := self._origin(letter)) is not None
            }
            events = decide_redrive(queue, targets)
            self._shards.change(REDRIVE, events)
            count += sum(size_of(event.fresh) for event in events)
            sent.append(queue)
        own, shards = self._shards.of(REDRIVE).journal, self._shards.map
        await Journal.all_settled([own, *shards.journals_of_queues(queue.key for queue in sent)])
        for queue in sent:
            await shards.of_queue(queue.key).work.moved(queue)
        return count

    async def _is_misfit(self, letter: DeadLetter) -> bool:
        """Whether a message that was refused at publish does not fit its topic's schema still."""
        return not letter.group and await self._shards.host.is_misfit(letter.topic, letter.message)

    def _origin(self, letter: DeadLetter) -> Target | None:
        """Where a dead letter goes back to; ``None`` if there is no such place, or nobody there to get it.

        A topic that was made again under the name inherits nothing. A group does: it may have been idle for so long
        that it was forgotten, and these are still its own.
        """
        try:
            topic = self._shards.host.topic(letter.topic)
            if letter.group:
                self._shards.find(letter.group)
        except (TopicNotFound, GroupNotFound):
            return None
        if letter.topic_id != topic.record.topic_id:
            return None
        return target_in(topic, letter.origin_partition % len(topic.partitions))

    async def _letters(self, name: str, after: tuple[int, int]) -> AsyncIterator[DeadLetter]:
        """Those that came from the topic ``name``; all, if it is the dead-letter topic itself."""
        topic = self.topic_of(name)
        for number, partition in enumerate(topic.partitions):
            if number < after[0]:
                continue
            queue = self._known(topic, number)
            at = max(partition.log.start_offset, after[1] if number == after[0] else 0)
            # Behind the end there is nothing, which is no mistake of whoever asks.
            while at <= partition.high_watermark:
                read = await read_messages(partition, at, Bounds(1 << 20, _STEP * 10))
                for message in read.messages:
                    letter = _letter(number, message, queue)
                    if letter is not None and name in {topic.name, letter.topic}:
                        yield letter
                if read.next_offset == at:
                    break
                at = read.next_offset
                # What was written lately is read without waiting: others must have their turn.
                await asyncio.sleep(0)

    def _known(self, topic: Topic, partition: int) -> Queue | None:
        group = self._shards.get(REDRIVE)
        return None if group is None else group.queue(topic, partition)

    def _queue(self, topic: Topic, partition: int) -> Queue:
        """Where it is kept what was redriven of a partition; made when it is first needed."""
        shards, topic_id = self._shards, topic.record.topic_id
        shards.map.check_led(topic, partition)
        group = shards.get(REDRIVE)
        known = None if group is None else group.queue(topic, partition)
        if known is not None:
            return known
        identity = GroupId(shards.host.randomness.random_bytes(8).hex()) if group is None else group.identity
        key = queue_key(identity, topic_id, partition)
        opened: list[ShardEvent] = [QueueOpened(key, REDRIVE, topic_id, partition, 0)]
        if group is None:
            opened.insert(0, GroupMade(REDRIVE, identity, {}, shards.clock.now_ns()))
        shards.change(REDRIVE, opened)
        return shards.map.of_partition(topic, partition).state.by_key[key]


def _letter(partition: int, message: Message, queue: Queue | None) -> DeadLetter | None:
    """``None`` for a message that someone published here: it came from nowhere."""
    told = {name: value.decode(errors="replace") for name, value in message.headers}
    try:
        return DeadLetter(
            partition,
            message,
            told[system.ORIGIN_TOPIC],
            int(told[system.ORIGIN_PARTITION]),
            int(told[system.ORIGIN_OFFSET]),
            told[system.GROUP],
            told.get(system.ERROR, ""),
            int(told.get(system.DELIVERIES, "0")),
            redriven=queue is not None and (queue.is_done(message.offset, NORMAL) or message.offset in queue.moving),
            topic_id=TopicId(told[system.COPY_OF].split("/")[1]),
        )
    except (KeyError, IndexError, ValueError):
        return None
