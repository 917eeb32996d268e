"""Clients that do random transactions on a broker that may go away at any moment, and note all that they see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from doubles.transaction_history import Append, History, Notes, Outcome, Place, Read, Transaction, View
from goqueue import AsyncClient, AsyncProducer, AsyncReceivedMessage
from goqueue.client.producer.transaction import AsyncTransaction
from goqueue.model.errors import GoQueueError, ProducerFenced, TransactionAborted, TransactionNotFound
from goqueue.wire.key_hash import partition_of

TOPICS = {"t": 3, "u": 2}
"""Where transactions write, with the number of partitions."""
INPUTS = {"queue": "g", "stream": "s"}
"""Topics that transactions consume, and by which group: one of each kind."""
PLACES: list[Place] = [(topic, f"{topic}{number}") for topic in TOPICS for number in range(5)]
PARTITIONS = [(topic, number) for topic, count in TOPICS.items() for number in range(count)]
NOT_COMMITTED = (TransactionAborted, TransactionNotFound)
"""Answers to a commit after which it is certain that nothing of it will ever be seen."""

Pause = Callable[[], Awaitable[None]]


class Abandoned(Exception):
    """A client has changed its mind."""


def places_in(topic: str, number: int) -> list[Place]:
    return [place for place in PLACES if place[0] == topic and partition_of(place[1].encode(), TOPICS[topic]) == number]


class Reading:
    """Reads partitions to their end, each time from where it was the last time, and now and then all over again."""

    def __init__(self, name: str, client: AsyncClient, notes: Notes, rng: Random) -> None:
        self._name, self._client, self._notes, self._rng = name, client, notes, rng
        self._views: dict[tuple[str, int], View] = {}

    async def read(self) -> list[Read]:
        at = topic, number = self._rng.choice(PARTITIONS)
        if at not in self._views or self._rng.random() < 0.1:
            self._views[at] = View(self._name, places_in(topic, number))
        view = self._views[at]
        began, next_offset = self._notes.now(), view.next_offset
        found: list[tuple[Place, str]] = []
        async for batch in self._client.read_batches(topic, number, next_offset):
            found += [((topic, _text(record.key)), _text(record.value)) for record in batch.records()]
            next_offset = batch.next_offset
        view.next_offset = next_offset
        return view.read(found, began, self._notes.now())


class Client:
    """What all clients that write have in common: transactions of random steps."""

    def __init__(self, name: str, client: AsyncClient, notes: Notes, rng: Random) -> None:
        self.name = name
        self.client = client
        self.notes = notes
        self.rng = rng
        self.ending = False
        self._epochs: set[int] = set()

    async def append(self, tx: AsyncTransaction, noted: Transaction) -> None:
        topic, key = place = self.rng.choice(PLACES)
        append = self.notes.append(noted, place, self.notes.fresh_value())
        delivery = await tx.send(topic, append.value, key=key)
        delivery.add_done_callback(lambda done: self._appended(append, done))

    def _appended(self, append: Append, done: asyncio.Future[Any]) -> None:
        if not done.cancelled() and done.exception() is None:
            append.ended = self.notes.now()

    @asynccontextmanager
    async def noted(self, producer: AsyncProducer) -> AsyncIterator[tuple[AsyncTransaction, Transaction]]:
        """A transaction, and what is noted of it. What goes wrong with it goes no further, but for being fenced."""
        noted: Transaction | None = None
        try:
            async with producer.transaction() as tx:
                noted = self.notes.begin(self.name, self._epoch(tx))
                yield tx, noted
                if self.rng.random() < 0.12:
                    raise Abandoned
                self.notes.commit(noted)
            self.notes.answered(noted, Outcome.COMMITTED)
        except Abandoned:
            assert noted is not None
            self.notes.answered(noted, Outcome.ABORTED)
        except GoQueueError as error:
            # If a commit was asked for, mostly nobody knows.
            if noted is not None and (noted.commit_began is None or isinstance(error, NOT_COMMITTED)):
                self.notes.answered(noted, Outcome.ABORTED)
            if isinstance(error, ProducerFenced) or noted is None:
                raise

    def _epoch(self, tx: AsyncTransaction) -> int:
        epoch = tx.identity.epoch
        if epoch not in self._epochs:
            self._epochs.add(epoch)
            self.notes.took_over(self.name, epoch)
        return epoch


@dataclass(frozen=True, slots=True)
class Life:
    """Of one client with a transactional id."""

    number: int
    has_begun: asyncio.Event = field(default_factory=asyncio.Event)
    has_ended: asyncio.Event = field(default_factory=asyncio.Event)


class Writer(Client):
    """One transactional id. Whoever has it loses it to the next in the middle of a transaction, and goes on with it."""

    def __init__(self, name: str, client: AsyncClient, notes: Notes, rng: Random) -> None:
        super().__init__(name, client, notes, rng)
        self.fenced = 0
        self._lives: asyncio.TaskGroup
        self._born = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._lives:
            self._next_life()

    def _next_life(self) -> Life:
        self._born += 1
        life = Life(self._born)
        self._lives.create_task(self._live(life))
        return life

    async def _live(self, life: Life) -> None:
        reading = Reading(f"{self.name} in its life {life.number}", self.client, self.notes, self.rng)
        async with self.client.producer(transactional_id=self.name) as producer:
            try:
                for _ in range(self.rng.randint(1, 12)):
                    await self._transact(producer, reading)
                    life.has_begun.set()
                    if self.ending:
                        return
                await self._transact(producer, reading, self._be_replaced)
                while True:
                    await self._transact(producer, reading)
            except ProducerFenced:
                assert self._born > life.number, f"{self.name} was fenced and had no successor"
                self.fenced += 1
            finally:
                life.has_begun.set()
                life.has_ended.set()

    async def _be_replaced(self) -> None:
        """Like a process that somebody takes for dead: stands still for a while or for long, or not at all."""
        successor = self._next_life()
        match self.rng.randrange(3):
            case 0:
                await successor.has_begun.wait()
            case 1:
                await successor.has_ended.wait()
            case _:
                await asyncio.sleep(self.rng.random() * 0.004)

    async def _transact(self, producer: AsyncProducer, reading: Reading, pause: Pause | None = None) -> None:
        async with self.noted(producer) as (tx, noted):
            steps = self.rng.randint(2, 6)
            pause_at = self.rng.randrange(1, steps + 1) if pause else -1
            for step in range(steps):
                if pause is not None and step == pause_at:
                    await pause()
                if step and self.rng.random() < 0.15:
                    noted.reads += await reading.read()
                else:
                    await self.append(tx, noted)
            if pause is not None and pause_at == steps:
                await pause()


class Processor(Client):
    """Takes messages of a group, writes what comes of them and acks them, all in one transaction."""

    async def run(self) -> None:
        async with (
            self.client.consumer(INPUTS["queue"], "queue", kind="shared", max_in_flight=20) as consumer,
            self.client.producer(transactional_id=self.name) as producer,
        ):
            while not self.ending:
                messages = await consumer.poll(self.rng.randint(1, 4), timeout=0.1)
                if messages:
                    await self._process(producer, messages)

    async def _process(self, producer: AsyncProducer, messages: list[AsyncReceivedMessage]) -> None:
        async with self.noted(producer) as (tx, noted):
            noted.inputs = [_text(message.value) for message in messages]
            for message in messages:
                await self.append(tx, noted)
                await tx.ack(message)
        for message in messages:
            # Those that had not been acked when something went wrong are still here.
            if not message.settled:
                message.nack(0)


class StreamProcessor(Client):
    """The same with a stream: the group's offsets are committed in the transaction."""

    async def run(self) -> None:
        async with (
            self.client.consumer(INPUTS["stream"], "stream", mode="stream", auto_commit=False) as consumer,
            self.client.producer(transactional_id=self.name) as producer,
        ):
            while not self.ending:
                records = await consumer.poll(self.rng.randint(1, 4), timeout=0.1)
                if not records:
                    continue
                async with self.noted(producer) as (tx, noted):
                    noted.inputs = [_text(record.value) for record in records]
                    await tx.commit_offsets(consumer)
                    for _ in records:
                        await self.append(tx, noted)


class Feeder(Client):
    """Publishes what processors consume, without a transaction: each must be there once, whatever is tried again."""

    async def run(self) -> None:
        async with self.client.producer() as producer:
            for number in range(1 << 30):
                if self.ending:
                    return
                topic = self.rng.choice(list(INPUTS))
                value = f"{topic} {number}"
                self.notes.history.inputs.add(value)
                await (await producer.send(topic, value))
                await asyncio.sleep(self.rng.random() * 0.02)


class Reader(Client):
    """Reads by offset, again and again."""

    async def run(self) -> None:
        reading = Reading(self.name, self.client, self.notes, self.rng)
        while not self.ending:
            self.notes.history.reads += await reading.read()
            await asyncio.sleep(self.rng.random() * 0.01)


class Follower(Client):
    """Follows one topic from its beginning."""

    def __init__(self, topic: str, client: AsyncClient, notes: Notes, rng: Random) -> None:
        super().__init__(f"follower of {topic}", client, notes, rng)
        self._topic = topic
        self.seen = 0

    async def run(self) -> None:
        began = self.notes.now()
        views = {number: View(self.name, places_in(self._topic, number)) for number in range(TOPICS[self._topic])}
        async for record in self.client.read(self._topic, follow=True):
            found: list[tuple[Place, str]] = [((self._topic, _text(record.key)), _text(record.value))]
            reads = views[record.partition].read(found, began, self.notes.now(), to_end=False)
            self.notes.history.reads += [read for read in reads if read.values]
            self.seen += 1


async def end_what_is_open(client: AsyncClient, producers: Iterable[str]) -> None:
    """Take over every transactional id: that ends what its last client left."""
    for name in producers:
        async with client.producer(transactional_id=name) as producer, producer.transaction():
            pass


async def read_everything(client: AsyncClient, history: History) -> None:
    for topic in TOPICS:
        async for record in client.read(topic):
            history.log[topic, _text(record.key)].append(_text(record.value))


async def read_inputs(client: AsyncClient) -> list[str]:
    return [_text(record.value) for topic in INPUTS async for record in client.read(topic)]


def _text(given: bytes | None) -> str:
    return (given or b"").decode()
