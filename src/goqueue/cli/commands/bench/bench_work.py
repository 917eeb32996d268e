"""The timed work of ``goqueue bench``: publishing, reading, consuming a queue with acks, each also at a fixed rate."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from goqueue.model.errors import BrokerUnavailable

if TYPE_CHECKING:
    from goqueue.cli.commands.bench.bench_stage import Plan, Stage, Timings
    from goqueue.cli.terminal.progress import Bar
    from goqueue.client.async_client import AsyncClient
    from goqueue.client.consumer.consumer import AsyncConsumer
    from goqueue.client.messages.outgoing_message import Sent

LEAST_SIZE = 16
"""A value begins with the run's mark and a number, by which a received message and its due time are identified."""
_MARK = 8
_TICK_S = 0.001
_STALL_AFTER_S = 30.0
_DELIVERY_TIMEOUT_MS = 30_000
_POLL = 100
_ACKNOWLEDGED = "a message, from when it was due until it is acknowledged"
_SEEN = "a message, from when it was due until a reader has it"


class Stalled(BrokerUnavailable):
    """No message came for a long time before the end."""

    remedy = "See what the broker does with 'goqueue top', and what is wrong with it with 'goqueue stats'."


class Values:
    """Message values of one size; random, so that compression does not shrink them."""

    def __init__(self, size_bytes: int) -> None:
        self.mark = os.urandom(_MARK)
        self._rest = os.urandom(size_bytes - LEAST_SIZE)

    def value(self, number: int) -> bytes:
        return self.mark + number.to_bytes(LEAST_SIZE - _MARK, "big") + self._rest

    def number_in(self, value: bytes | None) -> int | None:
        """The number in a value; ``None`` if the message is not of this run."""
        if value is None or value[:_MARK] != self.mark:
            return None
        return int.from_bytes(value[_MARK:LEAST_SIZE], "big")


async def publish(client: AsyncClient, plan: Plan, stage: Stage, bar: Bar) -> None:
    """Publish at full speed: each producer has one batch in flight at a time."""
    values = Values(plan.size_bytes)
    times = stage.timed(f"a batch of {plan.batch:,}, until it is acknowledged")
    until = None if plan.seconds is None else time.perf_counter() + plan.seconds
    taken = 0

    async def write() -> None:
        nonlocal taken
        async with client.producer(delivery_timeout_ms=_DELIVERY_TIMEOUT_MS) as producer:
            while until is None or time.perf_counter() < until:
                count = plan.batch if plan.messages is None else min(plan.batch, plan.messages - taken)
                if count <= 0:
                    return
                batch = [values.value(number) for number in range(taken, taken + count)]
                taken += count
                began = time.perf_counter()
                await producer.send_many(plan.topic, batch)
                times.add(time.perf_counter() - began)
                _count_moved(stage, bar, count, count * plan.size_bytes)

    await run_together(*(write() for _ in range(plan.producers)))


async def publish_at_pace(
    client: AsyncClient, plan: Plan, stage: Stage, bar: Bar, values: Values, due: Schedule
) -> None:
    """Publish each message when it is due, regardless of responses.

    Latency counts from the time a message was due, not from when it was sent: a stall of the broker shows in every
    message that it delays.
    """
    times, late = stage.timed(_ACKNOWLEDGED), 0.0
    failed: list[BaseException] = []
    unsettled: set[asyncio.Future[Sent]] = set()

    def on_sent(due_at: float, delivery: asyncio.Future[Sent]) -> None:
        unsettled.discard(delivery)
        if delivery.cancelled():
            return
        error = delivery.exception()
        if error is not None:
            failed.append(error)
            return
        times.add(time.perf_counter() - due_at)
        _count_moved(stage, bar, 1, plan.size_bytes)

    async with AsyncExitStack() as stack:
        producers = [
            await stack.enter_async_context(
                client.producer(linger_ms=plan.linger_ms, delivery_timeout_ms=_DELIVERY_TIMEOUT_MS)
            )
            for _ in range(plan.producers)
        ]
        number, wanted = 0, plan.paced_messages
        due.begin(plan.rate or 1.0)
        while number < wanted and not failed:
            now = time.perf_counter()
            while number < wanted and due.at(number) <= now and not failed:
                due_at = due.at(number)
                delivery = await producers[number % plan.producers].send(plan.topic, values.value(number))
                unsettled.add(delivery)
                delivery.add_done_callback(partial(on_sent, due_at))
                late = max(late, time.perf_counter() - due_at)
                number += 1
            await asyncio.sleep(max(0.0, min(_TICK_S, due.at(number) - time.perf_counter())))
        for producer in producers:
            await producer.flush()
        await asyncio.gather(*unsettled, return_exceptions=True)
    if failed:
        raise failed[0]
    stage.remarks.append(f"the client itself was late by {late * 1_000:.1f} ms at the worst; that is counted")


class Schedule:
    """The due time of each message."""

    def __init__(self) -> None:
        self.began = 0.0
        self._per_s = 1.0

    def begin(self, per_s: float) -> None:
        self.began, self._per_s = time.perf_counter(), per_s

    def at(self, number: int) -> float:
        return self.began + number / self._per_s


async def consume(client: AsyncClient, plan: Plan, stage: Stage, bar: Bar) -> None:
    """Read by offset from the beginning of the topic to its end, decoding every message."""
    until = None if plan.seconds is None else time.perf_counter() + plan.seconds
    batches = client.read_batches(plan.topic)
    try:
        async for batch in batches:
            records = list(batch.records())
            _count_moved(stage, bar, len(records), sum(len(record.value or b"") for record in records))
            if stage.wanted is not None and stage.messages >= stage.wanted:
                break
            if until is not None and time.perf_counter() >= until:
                break
    finally:
        await batches.aclose()


async def follow(
    client: AsyncClient, plan: Plan, stage: Stage, values: Values, due: Schedule, ready: asyncio.Event
) -> None:
    """Follow the topic, and time each message from when it was due until it was read."""
    stage.timed(_ACKNOWLEDGED)
    times = stage.timed(_SEEN)
    partitions = len((await client.describe_topic(plan.topic)).partitions)
    starts = [await client.find_offset(plan.topic, number, "latest") for number in range(partitions)]
    left = plan.paced_messages
    all_seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def read(partition: int, start: int) -> None:
        nonlocal left
        batches = client.read_batches(plan.topic, partition, start, follow=True)
        try:
            async for batch in batches:
                now = time.perf_counter()
                for record in batch.records():
                    number = values.number_in(record.value)
                    if number is not None:
                        times.add(now - due.at(number))
                        left -= 1
                if left <= 0 and not all_seen.done():
                    all_seen.set_result(None)
        finally:
            await batches.aclose()

    readers = [asyncio.create_task(read(number, start)) for number, start in enumerate(starts)]
    ready.set()
    try:
        await _wait_unless_stalled(readers, all_seen, times, plan.paced_messages)
    finally:
        await _cancel_all(readers)


async def _wait_unless_stalled(
    readers: list[asyncio.Task[None]], all_seen: asyncio.Future[None], times: Timings, wanted: int
) -> None:
    """Wait until all messages were read. A following reader ends only if it fails, so silence is detected by a timeout
    here."""
    while not all_seen.done():
        before = times.count
        waited_for = [*readers, all_seen]
        done, _ = await asyncio.wait(waited_for, timeout=_STALL_AFTER_S, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if not done and times.count == before:
            raise Stalled(f"{before:,} of {wanted:,} messages came, and no more for {_STALL_AFTER_S:g} s")


async def drain(consumer: AsyncConsumer, stage: Stage, bar: Bar, *, due_of: Callable[[bytes], float | None]) -> None:
    """Poll and ack until ``stage.wanted`` messages are acked.

    ``due_of`` returns when a message was due, by its value: it is timed from then to its ack. If it returns ``None``,
    only the ack is timed.
    """
    acks: set[asyncio.Future[None]] = set()
    polled = 0

    def on_acked(ack: asyncio.Future[None], count: int, size: int, dues: list[float], began: float) -> None:
        acks.discard(ack)
        if ack.cancelled() or ack.exception() is not None:
            return
        now = time.perf_counter()
        stage.timed("an ack of what one poll brought, until it is kept").add(now - began)
        if dues:
            end_to_end: Timings = stage.timed("a message, from when it was due until its ack is kept")
            for due_at in dues:
                end_to_end.add(now - due_at)
        _count_moved(stage, bar, count, size)

    while stage.wanted is None or polled < stage.wanted:
        batch = await consumer.poll(_POLL, timeout=_STALL_AFTER_S)
        if not batch:
            raise Stalled(f"{polled:,} of {stage.wanted or 0:,} messages came, and no more for {_STALL_AFTER_S:g} s")
        dues = [due_at for message in batch if (due_at := due_of(message.value or b"")) is not None]
        polled += len(batch)
        size = sum(len(message.value or b"") for message in batch)
        began = time.perf_counter()
        ack = consumer.ack(batch)
        acks.add(ack)
        ack.add_done_callback(partial(on_acked, count=len(batch), size=size, dues=dues, began=began))
    await asyncio.gather(*acks)


def _count_moved(stage: Stage, bar: Bar, count: int, size: int) -> None:
    stage.messages += count
    stage.size_bytes += size
    bar.advance(count)


async def run_together(*work: Coroutine[None, None, None]) -> None:
    """Run all coroutines; the first error cancels the others, and is raised unchanged."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        await _cancel_all(tasks)


async def _cancel_all(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)
