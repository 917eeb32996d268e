"""The work through quorum queues with pika, over AMQP.

pika with callbacks, not aio-pika: what that stands on makes a task and a future for every message, and takes 4 to 10
times the processor time of this. Confirms are counted: the server says up to which message it has everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pika
import uvloop
from pika.adapters.asyncio_connection import AsyncioConnection

from bench.peers.work import ACK_EVERY, Durability, Pacer, awaited_waits_of

_UNCONFIRMED = 8_000
"""How many messages may wait for their confirm at a time."""
_PREFETCH = 1_000
_PATIENCE_S = 120.0
_QUORUM = {"x-queue-type": "quorum"}


class _Confirms:
    """How far the server confirmed what one channel published. Single confirms may come out of order."""

    def __init__(self) -> None:
        self.published = 0
        self._confirmed = 0
        self._single: set[int] = set()
        self._most = 0
        self._reached: asyncio.Future[None] | None = None

    @property
    def unconfirmed(self) -> int:
        return self.published - self._confirmed

    def note(self, number: int, multiple: bool) -> None:
        """The server has this message, or all up to it."""
        if multiple:
            self._confirmed = max(self._confirmed, number)
            self._single = {each for each in self._single if each > number}
        else:
            self._single.add(number)
        while self._confirmed + 1 in self._single:
            self._confirmed += 1
            self._single.remove(self._confirmed)
        if self._reached is not None and self.unconfirmed <= self._most:
            self._reached.set_result(None)
            self._reached = None

    def when(self, unconfirmed: int) -> asyncio.Future[None]:
        """Done when at most so many are unconfirmed. One may wait at a time."""
        self._most = unconfirmed
        self._reached = asyncio.get_running_loop().create_future()
        return self._reached


class _Seen:
    """Messages as they arrive, until there are enough."""

    def __init__(self, count: int) -> None:
        self.total = 0
        self.all: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = count

    def note(self, value: bytes) -> bool:
        """Whether this was the last."""
        self.total += len(value)
        self._left -= 1
        if self._left == 0:
            self.all.set_result(None)
        return self._left == 0


class QuorumClient:
    """One connection on an event loop that is driven from outside; one channel to publish, one for each consumer."""

    def __init__(self, port: int) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._runner.run(self._connect(port))

    async def _connect(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        self._broken: asyncio.Future[None] = loop.create_future()
        self._closed: asyncio.Future[None] = loop.create_future()
        opened: asyncio.Future[Any] = loop.create_future()
        self._connection = AsyncioConnection(
            pika.ConnectionParameters("127.0.0.1", port),
            on_open_callback=opened.set_result,
            on_open_error_callback=lambda _connection, error: self._fail(f"no connection: {error}"),
            on_close_callback=lambda _connection, reason: self._ended(reason),
            custom_ioloop=loop,
        )
        await self._until(opened)
        self._publishing = await self._channel()
        self._confirms = _Confirms()
        self._publishing.add_on_return_callback(lambda *_: self._fail("a message came back: it has no queue"))
        await self._answer(lambda done: self._publishing.confirm_delivery(self._confirmed, callback=done))
        self._properties = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent.value)

    def _confirmed(self, frame: Any) -> None:
        if isinstance(frame.method, pika.spec.Basic.Ack):
            self._confirms.note(frame.method.delivery_tag, frame.method.multiple)
        else:
            self._fail(f"the server refused message {frame.method.delivery_tag}")

    def _fail(self, why: str) -> None:
        if not self._broken.done():
            self._broken.set_exception(RuntimeError(why))

    def _ended(self, reason: object) -> None:
        self._fail(f"the connection ended: {reason}")
        self._closed.set_result(None)

    async def _until(self, awaited: asyncio.Future[Any]) -> Any:
        """What it gives, unless the connection or a channel breaks meanwhile."""
        await asyncio.wait({awaited, self._broken}, timeout=_PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        if self._broken.done():
            self._broken.result()
        if not awaited.done():
            raise TimeoutError(f"the server took longer than {_PATIENCE_S:.0f} s")
        return awaited.result()

    async def _answer(self, ask: Callable[[Callable[[Any], None]], object]) -> Any:
        """Ask the server something whose answer goes to a callback, and wait for it."""
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        ask(answered.set_result)
        return await self._until(answered)

    async def _channel(self) -> Any:
        channel = await self._answer(lambda done: self._connection.channel(on_open_callback=done))
        channel.add_on_close_callback(self._channel_ended)
        return channel

    def _channel_ended(self, _channel: Any, reason: Any) -> None:
        if not isinstance(reason, pika.exceptions.ChannelClosedByClient):
            self._fail(f"a channel ended: {reason}")

    def create(self, topic: str) -> None:
        self._runner.run(self._declare(topic, _QUORUM))

    async def _declare(self, queue: str, arguments: dict[str, str]) -> None:
        await self._answer(
            lambda done: self._publishing.queue_declare(queue, durable=True, arguments=arguments, callback=done)
        )

    def publish(self, topic: str, batches: Iterator[Sequence[bytes]]) -> None:
        self._runner.run(self._publish(topic, batches))

    async def _publish(self, topic: str, batches: Iterator[Sequence[bytes]]) -> None:
        for batch in batches:
            await self._confirmed_up_to(_UNCONFIRMED - len(batch))
            for value in batch:
                self._send(topic, value, self._properties)
        await self._confirmed_up_to(0)

    def _send(self, queue: str, value: bytes, properties: Any) -> None:
        self._confirms.published += 1
        self._publishing.basic_publish("", queue, value, properties, mandatory=True)

    async def _confirmed_up_to(self, unconfirmed: int) -> None:
        """Wait until at most so many messages are unconfirmed."""
        if self._broken.done():
            self._broken.result()
        if self._confirms.unconfirmed > unconfirmed:
            await self._until(self._confirms.when(unconfirmed))

    def singles(self, topic: str, value: bytes, seconds: float) -> list[float]:
        return self._runner.run(self._singles(topic, value, seconds))

    async def _singles(self, topic: str, value: bytes, seconds: float) -> list[float]:
        async def send() -> None:
            self._send(topic, value, self._properties)
            await self._confirmed_up_to(0)

        return await awaited_waits_of(send, seconds)

    def consume(self, topic: str, count: int) -> int:
        return self._runner.run(self._consume(topic, count))

    async def _consume(self, topic: str, count: int) -> int:
        """A queue has no beginning to come back to: what is read is gone, and nobody says that it is done with it."""
        seen = _Seen(count)
        channel = await self._channel()
        await self._answer(
            lambda done: channel.basic_consume(
                topic, lambda _channel, _method, _properties, value: seen.note(value), auto_ack=True, callback=done
            )
        )
        await self._until(seen.all)
        await self._close(channel)
        return seen.total

    def take(self, topic: str, count: int) -> int:
        return self._runner.run(self._take(topic, count))

    async def _take(self, topic: str, count: int) -> int:
        seen = _Seen(count)
        channel = await self._worker(topic, seen.note)
        await self._until(seen.all)
        await self._close(channel)
        await self._expect_empty(topic)
        return seen.total

    async def _worker(self, queue: str, note: Callable[[bytes], bool]) -> Any:
        """A consumer whose messages go to ``note``; they are acknowledged a hundred at a time, and those that are left
        when it says that it has all of them."""
        channel = await self._channel()
        unacknowledged = 0

        def arrived(_channel: Any, method: Any, _properties: Any, value: bytes) -> None:
            nonlocal unacknowledged
            unacknowledged += 1
            if note(value) or unacknowledged >= ACK_EVERY:
                channel.basic_ack(method.delivery_tag, multiple=True)
                unacknowledged = 0

        await self._answer(lambda done: channel.basic_qos(prefetch_count=_PREFETCH, callback=done))
        await self._answer(lambda done: channel.basic_consume(queue, arrived, callback=done))
        return channel

    async def _close(self, channel: Any) -> None:
        """Acknowledgements went before this on the same channel; what has none goes back to its queue."""
        closed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        channel.add_on_close_callback(lambda *_: closed.set_result(None))
        channel.close()
        await self._until(closed)

    async def _expect_empty(self, queue: str) -> None:
        """Asking for one more goes through the queue's log, behind the acknowledgements."""
        channel = await self._channel()
        answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        channel.add_callback(lambda _frame: answered.set_result(True), [pika.spec.Basic.GetEmpty])
        channel.basic_get(queue, lambda *_: answered.set_result(False))
        if not await self._until(answered):
            raise RuntimeError(f"messages of {queue} came back: not every acknowledgement took effect")
        await self._close(channel)

    def paced(self, topic: str, pacer: Pacer) -> None:
        self._runner.run(self._paced(topic, pacer))

    async def _paced(self, topic: str, pacer: Pacer) -> None:
        queue, properties = topic, self._properties
        if pacer.delay_ms:
            queue = await self._waiting_queue(topic)
            properties = pika.BasicProperties(
                delivery_mode=pika.DeliveryMode.Persistent.value, expiration=str(pacer.delay_ms)
            )
        everything: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def note(value: bytes) -> bool:
            complete = pacer.arrived(value)
            if complete and not everything.done():
                everything.set_result(None)
            return complete

        channel = await self._worker(topic, note)
        pacer.begin()
        for wait_s, value in pacer.sends():
            if wait_s > 0:
                await pacer.sleep(wait_s)
            self._send(queue, value, properties)
        await self._until(everything)
        await self._confirmed_up_to(0)
        await self._close(channel)

    async def _waiting_queue(self, topic: str) -> str:
        """Where messages wait until they expire, and go to ``topic`` then; none gets lost on that way."""
        queue = f"{topic}-waiting"
        await self._declare(
            queue,
            {
                **_QUORUM,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": topic,
                "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish",
            },
        )
        return queue

    def close(self) -> None:
        self._runner.run(self._disconnect())
        self._runner.close()

    async def _disconnect(self) -> None:
        if not self._closed.done():
            self._connection.close()
            await asyncio.wait_for(self._closed, _PATIENCE_S)
        if self._broken.done():
            self._broken.exception()


def connect(address: str, durability: Durability) -> QuorumClient:
    return QuorumClient(int(address))
