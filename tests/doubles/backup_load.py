"""Clients that do a bit of everything on a broker, and what a copy of it from some instant must then hold."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from goqueue import AsyncClient
from goqueue.model.errors import GoQueueError, StaleReceipt

SMALL = {"segment_bytes": 64 << 10}
TOPICS: dict[str, dict[str, Any]] = {
    "plain": {"partitions": 2},
    "unsynced": {"partitions": 1, "fsync": "never"},
    "clicks": {"partitions": 1, "retention_bytes": 1 << 20, **SMALL},
    "profiles": {"partitions": 1, "cleanup": "compact", **SMALL},
    "later": {"partitions": 1},
    "work": {"partitions": 2},
    "requests": {"partitions": 2},
    "ledger": {"partitions": 3},
}
KEYS = [f"user-{number}" for number in range(10)]
GROUP = {"kind": "shared", "visibility_timeout_ms": 2_000, "session_timeout_ms": 6_000, "max_retries": 1_000_000}
"""Nothing becomes a dead letter, however often it is given up: every request is carried out, or asked for again."""
LONG_DELAY_S = 3_600.0
_PADDING = "x" * 3_000


@dataclass(slots=True)
class Known:
    """What the clients have been told so far."""

    stored: dict[str, int] = field(default_factory=lambda: defaultdict(lambda: -1))
    """By sequence of values (a topic, or one partition of it): up to which number they are acknowledged."""
    versions: dict[str, int] = field(default_factory=dict)
    """Of each key of the compacted topic."""
    delayed: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)
    """Numbers of work that was acked."""
    asked_to_ack: set[int] = field(default_factory=set)
    transferred: set[int] = field(default_factory=set)
    """Transfers whose transaction was committed."""

    def copy(self) -> Known:
        return Known(
            defaultdict(lambda: -1, self.stored),
            dict(self.versions),
            set(self.delayed),
            set(self.acked),
            set(self.asked_to_ack),
            set(self.transferred),
        )


class Load:
    def __init__(self, client: AsyncClient, rng: Random) -> None:
        self._client = client
        self._rng = rng
        self._ending = False
        self.known = Known()
        self.deleted_topics = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        for name, settings in TOPICS.items():
            await self._client.create_topic(name, **settings)
        works: list[Callable[[], Coroutine[Any, Any, None]]] = [
            lambda: self._publish("plain", 0, 1),
            lambda: self._publish("plain", 1, 20),
            lambda: self._publish("unsynced", 0, 5),
            lambda: self._publish("clicks", 0, 30, _PADDING),
            lambda: self._publish("work", 0, 3),
            lambda: self._publish("requests", 0, 2),
            self._update,
            self._delay,
            self._work,
            self._transfer,
            self._come_and_go,
        ]
        async with asyncio.TaskGroup() as tasks:
            for work in works:
                tasks.create_task(work())
            try:
                yield
            finally:
                self._ending = True

    async def _publish(self, topic: str, partition: int, at_once: int, padding: str = "") -> None:
        """Numbers, each behind the one before."""
        number = 0
        async with self._client.producer() as producer:
            while not self._ending:
                sent = [
                    await producer.send(topic, f"{number + each} {padding}", partition=partition)
                    for each in range(at_once)
                ]
                await asyncio.gather(*sent)
                number += at_once
                self.known.stored[f"{topic}/{partition}"] = number - 1
                await asyncio.sleep(self._rng.random() * 0.02)

    async def _update(self) -> None:
        version = 0
        async with self._client.producer() as producer:
            while not self._ending:
                version += 1
                sent = [await producer.send("profiles", f"{version} {_PADDING}", key=key) for key in KEYS]
                await asyncio.gather(*sent)
                self.known.versions = dict.fromkeys(KEYS, version)
                await asyncio.sleep(self._rng.random() * 0.02)

    async def _delay(self) -> None:
        number = 0
        async with self._client.producer() as producer:
            while not self._ending:
                delay_s = LONG_DELAY_S if self._rng.random() < 0.3 else self._rng.random() * 0.3
                await (await producer.send("later", str(number), delay=delay_s))
                self.known.delayed.add(number)
                number += 1
                await asyncio.sleep(self._rng.random() * 0.01)

    async def _work(self) -> None:
        async with self._client.consumer("workers", "work", **GROUP) as consumer:
            while not self._ending:
                messages = await consumer.poll(5, timeout=0.1)
                numbers = {number_of(message.value) for message in messages}
                await asyncio.sleep(self._rng.random() * 0.01)
                if messages:
                    self.known.asked_to_ack |= numbers
                    # On a machine that stands still for seconds some come again: those are not acked by this.
                    with suppress(StaleReceipt):
                        await consumer.ack(messages)
                        self.known.acked |= numbers

    async def _transfer(self) -> None:
        """A request is acked in the transaction that writes its two entries; some are given up, and come again."""
        async with (
            self._client.consumer("tellers", "requests", retry_backoff_ms=0, **GROUP) as consumer,
            self._client.producer(transactional_id="teller") as producer,
        ):
            while not self._ending:
                for message in await consumer.poll(3, timeout=0.1):
                    number = number_of(message.value)
                    try:
                        async with producer.transaction() as tx:
                            await tx.send("ledger", f"{number} -5", key=f"from-{number}")
                            await tx.ack(message)
                            await tx.send("ledger", f"{number} 5", key=f"to-{number}")
                            if self._rng.random() < 0.1:
                                raise GoQueueError("changed its mind")
                    except GoQueueError:
                        continue
                    self.known.transferred.add(number)

    async def _come_and_go(self) -> None:
        """Topics that are made, written to and deleted."""
        while not self._ending:
            name = f"brief-{self.deleted_topics}"
            await self._client.create_topic(name, partitions=2)
            async with self._client.producer() as producer:
                await (await producer.send(name, "here"))
            await self._client.delete_topic(name)
            self.deleted_topics += 1
            await asyncio.sleep(self._rng.random() * 0.05)


def number_of(value: bytes | None) -> int:
    return int((value or b"").split()[0])


class Copy:
    """A broker that was started on a restored backup. Each check says what is wrong."""

    def __init__(self, client: AsyncClient, before: Known, after: Known) -> None:
        """What the clients knew before the backup was asked for, and after it was there."""
        self._client = client
        self._before = before
        self._after = after

    async def check(self) -> None:
        async with asyncio.TaskGroup() as checks:
            checks.create_task(self._check_sequences())
            checks.create_task(self._check_profiles())
            checks.create_task(self._check_delays())
            checks.create_task(self._check_work())
            checks.create_task(self._check_bank())

    async def _numbers(self, topic: str, partition: int | None = None) -> list[int]:
        return [
            number_of(record.value)
            async for record in self._client.read(topic)
            if partition is None or record.partition == partition
        ]

    async def _check_sequences(self) -> None:
        for place, acknowledged in self._before.stored.items():
            topic, _, partition = place.partition("/")
            found = await self._numbers(topic, int(partition))
            last = found[-1] if found else -1
            assert last >= acknowledged, f"{place} ends with {last}; {acknowledged} was acknowledged before"
            first = found[0] if topic == "clicks" and found else 0
            assert found == list(range(first, last + 1)), f"{place} has gaps or repetitions"

    async def _check_profiles(self) -> None:
        latest: dict[str, int] = {}
        async for record in self._client.read("profiles"):
            latest[(record.key or b"").decode()] = number_of(record.value)
        for key, version in self._before.versions.items():
            assert latest.get(key, -1) >= version, f"{key} has version {latest.get(key)}, {version} was acknowledged"

    async def _check_delays(self) -> None:
        """What was due comes, what is not waits; each is there once."""
        while True:
            waiting = [each async for each in self._client.delayed("later")]
            if all(each.deliver_at_ns > time.time_ns() + 60 * 10**9 for each in waiting):
                break
            await asyncio.sleep(0.02)
        there = Counter([*await self._numbers("later"), *(number_of(each.value) for each in waiting)])
        assert all(count == 1 for count in there.values()), f"some are there twice: {there.most_common(3)}"
        missing = self._before.delayed - there.keys()
        assert not missing, f"delayed messages are gone: {sorted(missing)[:5]}"

    async def _drain(self, group: str, topic: str) -> set[int]:
        """Everything that the group has not done."""
        found: set[int] = set()
        async with self._client.consumer(group, topic, **GROUP) as consumer:
            while (await self._client.describe_group(group)).lag:
                messages = await consumer.poll(100, timeout=0.1)
                found |= {number_of(message.value) for message in messages}
                if messages:
                    with suppress(StaleReceipt):
                        await consumer.ack(messages)
        return found

    async def _check_work(self) -> None:
        published = set(await self._numbers("work"))
        left = await self._drain("workers", "work")
        again = left & self._before.acked
        assert not again, f"acked before the backup and delivered again: {sorted(again)[:5]}"
        lost = published - left - self._after.asked_to_ack
        assert not lost, f"never acked and never delivered: {sorted(lost)[:5]}"

    async def _check_bank(self) -> None:
        requested = set(await self._numbers("requests"))
        left = await self._drain("tellers", "requests")
        entries: dict[int, list[int]] = defaultdict(list)
        async for record in self._client.read("ledger"):
            number, amount = (record.value or b"").split()
            entries[int(number)].append(int(amount))
        halves = {number: amounts for number, amounts in entries.items() if sorted(amounts) != [-5, 5]}
        assert not halves, f"transfers that are not whole: {halves}"
        missing = self._before.transferred - entries.keys()
        assert not missing, f"committed before the backup and not there: {sorted(missing)[:5]}"
        both = left & entries.keys()
        assert not both, f"carried out and asked for again: {sorted(both)[:5]}"
        neither = requested - left - entries.keys()
        assert not neither, f"neither carried out nor asked for again: {sorted(neither)[:5]}"
