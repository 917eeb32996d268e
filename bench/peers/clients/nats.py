"""The work through nats-py.

It goes past two conveniences of that package which are far from what the server can do: ``publish_async`` (an
acknowledgement for each message, and with fsync a wait for the disk for each) and ``fetch`` (a task for each message).
The server's batch publishing and its pull requests are used instead, through the package's own connection.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import nats
import uvloop
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StorageType, StreamConfig

from bench.peers.work import ACK_EVERY, Durability, Pacer, awaited_waits_of

_UNDER_WAY = 4
"""Batches that wait for their acknowledgement. The server buffers up to 10,000 messages of a stream."""
_READ_AT_ONCE = 5_000
_READS_UNDER_WAY = 2
_TAKES_UNDER_WAY = 10
_MOST_UNACKED = 100_000
_PATIENCE_S = 240.0
_START, _APPEND, _COMMIT = 0, 1, 2
"""What the server is to do with a message of a fast batch."""


class NatsClient:
    """One event loop, driven from outside. A topic is a stream with a subject of the same name."""

    def __init__(self, address: str, durability: Durability) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._nats = self._runner.run(self._connect(address))
        self._js = self._nats.jetstream(timeout=_PATIENCE_S)
        self._publish_batch = self._atomic_batch if durability is Durability.FSYNC else self._fast_batch
        self._batches = 0
        self._inbox = ""
        self._waiting: dict[str, asyncio.Future[None]] = {}

    async def _connect(self, address: str) -> Any:
        return await nats.connect(address, allow_reconnect=False, skip_subject_validation=True)

    def create(self, topic: str) -> None:
        self._runner.run(
            self._js.add_stream(
                StreamConfig(
                    name=topic,
                    subjects=[topic, f"{topic}.later.*"],
                    storage=StorageType.FILE,
                    num_replicas=1,
                    allow_atomic=True,
                    allow_batched=True,
                    allow_msg_schedules=True,
                )
            )
        )

    def publish(self, topic: str, batches: Iterator[Sequence[bytes]]) -> None:
        self._runner.run(self._publish(topic, batches))

    async def _publish(self, topic: str, batches: Iterator[Sequence[bytes]]) -> None:
        async def write() -> None:
            for batch in batches:
                self._batches += 1
                await self._publish_batch(topic, batch, f"batch{self._batches}-{time.time_ns()}")

        await asyncio.gather(*(write() for _ in range(_UNDER_WAY)))

    async def _atomic_batch(self, topic: str, batch: Sequence[bytes], name: str) -> None:
        """All or nothing, and with fsync one wait for the disk; at most 1,000 messages."""
        for number, value in enumerate(batch[:-1], 1):
            headers = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(number)}
            await self._nats.publish(topic, value, headers=headers)
        headers = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(len(batch)), "Nats-Batch-Commit": "1"}
        answer = await self._nats.request(topic, batch[-1], timeout=_PATIENCE_S, headers=headers)
        _check_batch(json.loads(answer.data), len(batch))

    async def _fast_batch(self, topic: str, batch: Sequence[bytes], name: str) -> None:
        """Each message is stored as it comes; one that is missing fails the batch. What the server needs to know
        stands in the subject for its answers."""
        if not self._inbox:
            self._inbox = self._nats.new_inbox()
            await self._nats.subscribe(f"{self._inbox}.>", cb=self._batch_answered)
        committed = self._waiting[name] = asyncio.get_running_loop().create_future()
        count = len(batch)
        replies = f"{self._inbox}.{name}.{count}.fail"
        publish = self._nats.publish
        for number, value in enumerate(batch, 1):
            doing = _COMMIT if number == count else _START if number == 1 else _APPEND
            await publish(topic, value, reply=f"{replies}.{number}.{doing}.$FI")
        try:
            async with asyncio.timeout(_PATIENCE_S):
                _check_batch(await committed, count)
        finally:
            del self._waiting[name]

    async def _batch_answered(self, message: Msg) -> None:
        answer = json.loads(message.data or b'{"error": "no stream has this subject"}')
        waiting = self._waiting.get(message.subject[len(self._inbox) + 1 :].partition(".")[0])
        # Answers of the type "ack" tell how far it is; the last one has none.
        if answer.get("type") != "ack" and waiting and not waiting.done():
            waiting.set_result(answer)

    def singles(self, topic: str, value: bytes, seconds: float) -> list[float]:
        return self._runner.run(self._singles(topic, value, seconds))

    async def _singles(self, topic: str, value: bytes, seconds: float) -> list[float]:
        return await awaited_waits_of(lambda: self._js.publish(topic, value), seconds)

    def consume(self, topic: str, count: int) -> int:
        return self._runner.run(self._consume(topic, count))

    async def _consume(self, topic: str, count: int) -> int:
        config = ConsumerConfig(
            ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL, inactive_threshold=_PATIENCE_S
        )
        consumer = await self._js.add_consumer(topic, config)
        done = asyncio.get_running_loop().create_future()
        total = read = 0

        async def note(message: Msg) -> None:
            nonlocal total, read
            total += len(message.data)
            read += 1
            if read == count:
                done.set_result(None)

        await self._pull(topic, consumer.name, note, done, at_once=_READ_AT_ONCE, under_way=_READS_UNDER_WAY)
        return total

    def take(self, topic: str, count: int) -> int:
        return self._runner.run(self._take(topic, count))

    async def _take(self, topic: str, count: int) -> int:
        config = ConsumerConfig(
            durable_name="workers",
            ack_policy=AckPolicy.EXPLICIT,
            deliver_policy=DeliverPolicy.ALL,
            max_ack_pending=_MOST_UNACKED,
        )
        await self._js.add_consumer(topic, config)
        done = asyncio.get_running_loop().create_future()
        total = taken = 0

        async def work(message: Msg) -> None:
            nonlocal total, taken
            total += len(message.data)
            taken += 1
            if taken < count:
                await message.ack()
            else:
                # Acks are worked on in their order: once this one is confirmed, all are.
                await message.ack_sync(timeout=_PATIENCE_S)
                done.set_result(None)

        await self._pull(topic, "workers", work, done, at_once=ACK_EVERY, under_way=_TAKES_UNDER_WAY)
        info = await self._js.consumer_info(topic, "workers")
        if info.ack_floor.consumer_seq != count or info.num_ack_pending or info.num_pending or info.num_redelivered:
            raise RuntimeError(f"{count} messages were taken and acknowledged, but the consumer says {info}")
        return total

    async def _pull(
        self,
        topic: str,
        consumer: str,
        callback: Callable[[Msg], Awaitable[None]],
        done: asyncio.Future[None],
        *,
        at_once: int,
        under_way: int,
    ) -> None:
        """Give messages to the callback until ``done``: some requests lie at the server, and each that is answered is
        followed by another."""
        ask = f"$JS.API.CONSUMER.MSG.NEXT.{topic}.{consumer}"
        request = json.dumps({"batch": at_once, "expires": int(_PATIENCE_S * 1e9)}).encode()
        inbox = self._nats.new_inbox()
        left = at_once

        async def arrived(message: Msg) -> None:
            nonlocal left
            if not message.reply:
                # Only what the server says about a request has nowhere to be acknowledged.
                if not done.done():
                    done.set_exception(RuntimeError(f"a request of {consumer} ended with {message.headers}"))
                return
            left -= 1
            if not left:
                left = at_once
                await self._nats.publish(ask, request, reply=inbox)
            await callback(message)

        subscription = await self._nats.subscribe(inbox, cb=arrived)
        for _ in range(under_way):
            await self._nats.publish(ask, request, reply=inbox)
        async with asyncio.timeout(_PATIENCE_S):
            await done
        await subscription.unsubscribe()

    def paced(self, topic: str, pacer: Pacer) -> None:
        self._runner.run(self._paced(topic, pacer))

    async def _paced(self, topic: str, pacer: Pacer) -> None:
        done = asyncio.get_running_loop().create_future()

        async def arrived(message: Msg) -> None:
            if pacer.arrived(message.data) and not done.done():
                done.set_result(None)

        config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.NEW)
        subscription = await self._js.subscribe(topic, stream=topic, cb=arrived, manual_ack=True, config=config)
        pacer.begin()
        acks: list[asyncio.Future[Any]] = []
        for number, (wait_s, value) in enumerate(pacer.sends()):
            if wait_s > 0:
                await pacer.sleep(wait_s)
            if pacer.delay_ms:
                # A schedule has a subject for itself.
                subject, headers = f"{topic}.later.{number}", _schedule(topic, time.time() + pacer.delay_ms / 1_000)
                acks.append(await self._js.publish_async(subject, value, headers=headers))
            else:
                acks.append(await self._js.publish_async(topic, value))
        async with asyncio.timeout(_PATIENCE_S):
            await asyncio.gather(*acks)
            await done
        await subscription.unsubscribe()

    def close(self) -> None:
        self._runner.run(self._nats.close())
        self._runner.close()


def _schedule(topic: str, at: float) -> dict[str, str]:
    due = datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat()
    return {"Nats-Schedule": f"@at {due}", "Nats-Schedule-Target": topic}


def _check_batch(answer: dict[str, Any], count: int) -> None:
    if answer.get("error") or answer.get("count") != count:
        raise RuntimeError(f"a batch of {count} messages was answered with {answer}")


def connect(address: str, durability: Durability) -> NatsClient:
    return NatsClient(address, durability)
