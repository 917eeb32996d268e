"""Sending messages: encode, route, gather into batches, deliver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from goqueue.client.accumulator import Parcel, PartitionQueue, Stored
from goqueue.client.buffer import Buffer
from goqueue.client.config import ProducerConfig
from goqueue.client.directory import Directory, error_no_partition
from goqueue.client.instants import Instant, Span
from goqueue.client.outgoing import Encoder, HeadersGiven, Outgoing, Sent, key_bytes, traced
from goqueue.client.send_many import SendMany
from goqueue.client.serializers import Serializer, to_bytes
from goqueue.client.tracing import current_trace
from goqueue.model.errors import ClientClosed, GoQueueError
from goqueue.model.logging import get_logger
from goqueue.model.message import NO_HEADERS, Headers, Priority
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.routing import partition_of

log = get_logger(__name__)

_ACKS = {"none": pb.ACKS_NONE, "leader": pb.ACKS_LEADER, "all": pb.ACKS_ALL}


class AsyncProducer:
    """Made by ``AsyncClient.producer``. Leaving its context waits for everything that was sent."""

    def __init__(
        self,
        directory: Directory,
        config: ProducerConfig,
        serializer: Serializer = to_bytes,
        *,
        key_serializer: Serializer | None = None,
        closed: Callable[[AsyncProducer], None] = lambda _: None,
    ) -> None:
        self._directory = directory
        self._config = config
        self._encoder = Encoder(serializer, directory.config.max_message_bytes, key_serializer)
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._sticky: dict[str, int] = {}
        self._buffer = Buffer(config.buffer_bytes, block=config.block)
        self._closing: asyncio.Task[None] | None = None
        self._when_closed = closed

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def buffered_bytes(self) -> int:
        """How many bytes of messages wait for their acknowledgement."""
        return self._buffer.used_bytes

    @property
    def unsettled_messages(self) -> int:
        """How many messages were taken and neither acknowledged nor failed."""
        return sum(queue.unsettled_messages for queue in self._queues.values())

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: HeadersGiven | None = None,
        partition: int | None = None,
        priority: Priority | str | int = Priority.NORMAL,
        timestamp: Instant | None = None,
        delay: Span | None = None,
        deliver_at: Instant | None = None,
        ttl: timedelta | None = None,
    ) -> asyncio.Future[Sent]:
        """Hand a message over. Waits only for room in the buffer; the future tells where the message is stored.

        With a ``delay``, or before ``deliver_at``, nobody sees it yet; by its place it can be cancelled until then.
        """
        self._check_open()
        message = Outgoing(value, key, headers, partition, priority, timestamp, delay, ttl, deliver_at)
        encoder = self._encoder if self._encoder.is_bound else await self._encoder.bound(topic)
        message, trace = traced(encoder.keyed(message), self._trace())
        frame, lane = encoder.encode(message)
        number = self._route(topic, message, await self._directory.partitions(topic))
        delivery: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()

        def settle(done: asyncio.Future[Stored]) -> None:
            error = done.exception()
            if delivery.done():
                return
            if error is None:
                stored = done.result()
                delivery.set_result(Sent(number, stored.offsets[0], lane, stored.due(0), False, topic, trace))
            else:
                delivery.set_exception(error)
                # Seen here, so that a message nobody asked about does not fail without a word.
                delivery.exception()
                log.warning("message not delivered", topic=topic, partition=number, error=str(error))

        (await self._enqueue(topic, number, [frame], len(frame))).add_done_callback(settle)
        return delivery

    async def send_many(self, topic: str, messages: Iterable[Any]) -> list[Sent]:
        """Send values or ``Outgoing`` messages and wait for all of them; the answer is in the same order.

        If some cannot be delivered, the others are; when every message is settled, ``NotAllStored`` tells what became
        of each. If all have failed for one reason, that is raised instead.
        """
        self._check_open()
        encoder = self._encoder if self._encoder.is_bound else await self._encoder.bound(topic)
        partitions = await self._directory.partitions(topic)
        sending = SendMany(self, encoder, topic, partitions, self._trace())
        await sending.take_in(messages)
        for (name, _), queue in self._queues.items():
            if name == topic:
                queue.hurry()
        return await sending.results()

    async def flush(self) -> None:
        """Let everything leave now; return when what was sent so far is settled, one way or the other."""
        if last := [done for queue in self._queues.values() if (done := queue.hurry()) is not None]:
            await asyncio.wait(last)

    async def close(self) -> None:
        """``flush``, then take nothing more. Bounded by the delivery timeout; everyone who asks waits for the end."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        # Who loses patience does not take the messages with him: the client waits for this task as well.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(self._config.delivery_timeout_ms / 1_000):
                await self.flush()
        except TimeoutError:
            pass
        finally:
            for queue in self._queues.values():
                await queue.close()
            self._when_closed(self)

    def _check_open(self) -> None:
        if self._closing is not None:
            raise ClientClosed("the producer is closed")

    def _trace(self) -> Headers:
        """The headers of the span that the caller is in, if messages are to carry it."""
        return current_trace() if self._config.inject_trace_context else NO_HEADERS

    def _route(self, topic: str, message: Outgoing, partitions: int) -> int:
        if message.partition is not None:
            if not 0 <= message.partition < partitions:
                raise error_no_partition(topic, message.partition, partitions)
            return message.partition
        if message.key:
            return partition_of(key_bytes(message.key), partitions)
        current = self._sticky.get(topic)
        if current is not None and current < partitions:
            queue = self._queues.get((topic, current))
            if queue is not None and queue.is_sticky():
                return current
        return self._next_keyless(topic, partitions)

    def _next_keyless(self, topic: str, partitions: int) -> int:
        """Messages without a key fill one batch, then the next partition has its turn."""
        chosen = (self._sticky.get(topic, -1) + 1) % partitions
        self._sticky[topic] = chosen
        return chosen

    # Handing over

    async def _enqueue(self, topic: str, number: int, frames: list[bytes], size: int) -> asyncio.Future[Stored]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.delivery_timeout_ms / 1_000
        await self._buffer.take(size, deadline)
        if self._closing is not None:
            self._buffer.give_back(size)
            self._check_open()
        queue = self._queues.get((topic, number))
        if queue is None:
            queue = self._queues[topic, number] = self._make_queue(topic, number)
        parcel = Parcel(frames, size, deadline, loop.create_future())
        queue.put(parcel)
        return parcel.done

    def _make_queue(self, topic: str, number: int) -> PartitionQueue:
        async def deliver(batch: bytes) -> pb.Stored:
            try:
                leader = await self._directory.leader(topic, number)
                return await leader.publish(topic, number, _ACKS[self._config.acks], batch)
            except GoQueueError as error:
                self._directory.doubt(topic, error)
                raise

        return PartitionQueue(self._config, deliver, self._directory.backoff, self._buffer.give_back)
