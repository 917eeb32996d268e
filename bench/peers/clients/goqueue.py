"""The work through GoQueue's own client, over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import cast

import uvloop

from bench.peers.work import ACK_EVERY, Durability, Pacer, awaited_waits_of
from goqueue.client.async_client import AsyncClient

_UNDER_WAY = 16
_IN_HAND = 5_000
_PATIENCE_S = 60.0


class GoQueueClient:
    """One event loop, driven from outside."""

    def __init__(self, address: str) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._client = self._runner.run(self._connect(address))

    async def _connect(self, address: str) -> AsyncClient:
        return await AsyncClient(address).__aenter__()

    def create(self, topic: str) -> None:
        self._runner.run(self._create(topic))

    async def _create(self, topic: str) -> None:
        await self._client.create_topic(topic, partitions=1)
        await self._client.configure_group("workers", kind="shared", max_in_flight=_IN_HAND)

    def publish(self, topic: str, batches: Iterator[Sequence[bytes]]) -> None:
        self._runner.run(self._publish(topic, batches))

    async def _publish(self, topic: str, batches: Iterator[Sequence[bytes]]) -> None:
        async with self._client.producer(acks="leader") as producer:

            async def write() -> None:
                for batch in batches:
                    await producer.send_many(topic, batch)

            await asyncio.gather(*(write() for _ in range(_UNDER_WAY)))

    def singles(self, topic: str, value: bytes, seconds: float) -> list[float]:
        return self._runner.run(self._singles(topic, value, seconds))

    async def _singles(self, topic: str, value: bytes, seconds: float) -> list[float]:
        async with self._client.producer(acks="leader", linger_ms=0) as producer:

            async def send() -> None:
                await (await producer.send(topic, value))

            return await awaited_waits_of(send, seconds)

    def consume(self, topic: str, count: int) -> int:
        return self._runner.run(self._consume(topic))

    async def _consume(self, topic: str) -> int:
        total = 0
        async for batch in self._client.read_batches(topic):
            total += sum(map(len, cast(Iterator[bytes], batch.values())))
        return total

    def take(self, topic: str, count: int) -> int:
        return self._runner.run(self._take(topic, count))

    async def _take(self, topic: str, count: int) -> int:
        total = taken = 0
        acks: set[asyncio.Future[None]] = set()
        async with self._client.consumer("workers", [topic], kind="shared", max_in_flight=_IN_HAND) as consumer:
            while taken < count:
                messages = await consumer.poll(ACK_EVERY, timeout=_PATIENCE_S)
                if not messages:
                    raise RuntimeError(f"took {taken} of {count} messages, then nothing came")
                taken += len(messages)
                total += sum(len(message.value or b"") for message in messages)
                acks.add(consumer.ack(messages))
                for done in [ack for ack in acks if ack.done()]:
                    done.result()
                    acks.remove(done)
            await asyncio.gather(*acks)
        return total

    def paced(self, topic: str, pacer: Pacer) -> None:
        self._runner.run(self._paced(topic, pacer))

    async def _paced(self, topic: str, pacer: Pacer) -> None:
        # The topic is empty: its beginning is its end, and whoever reads on from there misses nothing.
        watching = asyncio.create_task(self._watch_queue(topic, pacer) if pacer.delay_ms else self._watch(topic, pacer))
        async with self._client.producer(acks="leader", linger_ms=0) as producer:
            delay = pacer.delay_ms / 1_000 if pacer.delay_ms else None
            pacer.begin()
            for wait_s, value in pacer.sends():
                if wait_s > 0:
                    await pacer.sleep(wait_s)
                await producer.send(topic, value, delay=delay)
            await watching

    async def _watch(self, topic: str, pacer: Pacer) -> None:
        async for record in self._client.read(topic, follow=True):
            if pacer.arrived(record.value or b""):
                return

    async def _watch_queue(self, topic: str, pacer: Pacer) -> None:
        """What is delayed appears in queues when it is due. Acks are on their way while the next messages come."""
        acks: list[asyncio.Future[None]] = []
        async with self._client.consumer("watchers", [topic], kind="shared") as consumer:
            async for message in consumer:
                is_last = pacer.arrived(message.value or b"")
                acks.append(message.ack())
                if is_last:
                    break
            await asyncio.gather(*acks)

    def close(self) -> None:
        self._runner.run(self._client.__aexit__(None, None, None))
        self._runner.close()


def connect(address: str, durability: Durability) -> GoQueueClient:
    return GoQueueClient(address)
