"""The work through streams with rstream, over RabbitMQ's own protocol for streams.

Not over AMQP: with pika each message took several times the processor time of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import rstream
import rstream.connection
import uvloop

from bench.peers.work import Durability, Pacer, awaited_waits_of

_SUB_ENTRY_MESSAGES = 100
"""So many messages go as one entry of the stream, without compression: that is its way to batch."""
_UNCONFIRMED_ENTRIES = 400
_CREDIT_CHUNKS = 50
_PATIENCE_S = 120.0

# It reads from its socket in pieces of 256 bytes as it comes; that alone halves the rate of messages of 1,000 bytes.
rstream.connection.CHUNK_SIZE = 256 * 1_024


class _Confirms:
    """How much is sent and not confirmed yet, and how much the server refused."""

    def __init__(self) -> None:
        self._open = 0
        self._refused = 0
        self._moved = asyncio.Event()

    def sent(self) -> None:
        self._open += 1

    def note(self, status: Any) -> None:
        self._open -= 1
        self._refused += not status.is_confirmed
        self._moved.set()

    async def until(self, most: int) -> None:
        """Wait until at most so many are open; raise if the server refused any."""
        while self._open > most:
            self._moved.clear()
            await asyncio.wait_for(self._moved.wait(), _PATIENCE_S)
        if self._refused:
            raise RuntimeError(f"the server refused {self._refused} of what was sent")


class StreamClient:
    """One event loop, driven from outside. Consumers stay until the end: to let go of one takes its time."""

    def __init__(self, port: int) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._runner.run(self._connect(port))

    async def _connect(self, port: int) -> None:
        self._producer = rstream.Producer("127.0.0.1", port, username="guest", password="guest")
        self._consumer = rstream.Consumer("127.0.0.1", port, username="guest", password="guest")
        await self._producer.start()
        await self._consumer.start()

    def create(self, topic: str) -> None:
        self._runner.run(self._producer.create_stream(topic))

    def publish(self, topic: str, batches: Iterator[Sequence[bytes]]) -> None:
        self._runner.run(self._publish(topic, batches))

    async def _publish(self, topic: str, batches: Iterator[Sequence[bytes]]) -> None:
        confirms = _Confirms()
        for batch in batches:
            for start in range(0, len(batch), _SUB_ENTRY_MESSAGES):
                confirms.sent()
                await self._producer.send_sub_entry(
                    topic,
                    batch[start : start + _SUB_ENTRY_MESSAGES],
                    rstream.CompressionType.No,
                    on_publish_confirm=confirms.note,
                )
            await self._flush(topic)
            await confirms.until(_UNCONFIRMED_ENTRIES)
        await confirms.until(0)

    async def _flush(self, topic: str) -> None:
        # What it does of its own every half second, which is how long the last of a batch would lie there.
        await self._producer._publish_buffered_messages(topic)

    def singles(self, topic: str, value: bytes, seconds: float) -> list[float]:
        return self._runner.run(self._singles(topic, value, seconds))

    async def _singles(self, topic: str, value: bytes, seconds: float) -> list[float]:
        return await awaited_waits_of(lambda: self._producer.send_wait(topic, value), seconds)

    def consume(self, topic: str, count: int) -> int:
        return self._runner.run(self._consume(topic, count))

    async def _consume(self, topic: str, count: int) -> int:
        everything: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        left, total = count, 0

        def arrived(value: bytes, _context: Any) -> None:
            nonlocal left, total
            total += len(value)
            left -= 1
            if left == 0:
                everything.set_result(None)

        await self._subscribe(topic, arrived)
        await asyncio.wait_for(everything, _PATIENCE_S)
        return total

    async def _subscribe(self, topic: str, arrived: Callable[[bytes, Any], None]) -> None:
        await self._consumer.subscribe(
            topic,
            arrived,
            decoder=_as_it_is,
            offset_specification=rstream.ConsumerOffsetSpecification(rstream.OffsetType.FIRST),
            initial_credit=_CREDIT_CHUNKS,
        )

    def take(self, topic: str, count: int) -> int:
        raise NotImplementedError("a stream is no queue: nothing is acknowledged one by one")

    def paced(self, topic: str, pacer: Pacer) -> None:
        self._runner.run(self._paced(topic, pacer))

    async def _paced(self, topic: str, pacer: Pacer) -> None:
        everything: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        confirms = _Confirms()

        def arrived(value: bytes, _context: Any) -> None:
            if pacer.arrived(value) and not everything.done():
                everything.set_result(None)

        # The stream is empty: its beginning is its end, and whoever reads on from there misses nothing.
        await self._subscribe(topic, arrived)
        pacer.begin()
        for wait_s, value in pacer.sends():
            if wait_s > 0:
                await pacer.sleep(wait_s)
            confirms.sent()
            await self._producer.send_batch(topic, [value], on_publish_confirm=confirms.note)
        await asyncio.wait_for(everything, _PATIENCE_S)
        await confirms.until(0)

    def close(self) -> None:
        self._runner.run(self._disconnect())
        self._runner.close()

    async def _disconnect(self) -> None:
        await self._consumer.close()
        await self._producer.close()


def _as_it_is(value: bytes) -> bytes:
    return value


def connect(address: str, durability: Durability) -> StreamClient:
    return StreamClient(int(address))
