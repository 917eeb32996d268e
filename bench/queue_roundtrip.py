"""How fast one consumer polls and acks a queue over gRPC, in batches of a hundred."""

from __future__ import annotations

import asyncio
import time

from bench.client_under_test import TOPIC, ClientUnderTest, Work, fill_topic, measure_client
from bench.harness import Measured, note, rounded

_BATCH = 100
_MESSAGES = 200_000
_RUNS = 5
_PATIENCE_S = 30.0


def measure_interval() -> Measured:
    return measure_client("interval", lambda under: _measure("queue_roundtrip_interval", under))


def measure_always() -> Measured:
    """Messages are made durable one by one batch; acks and deliveries always are."""
    return measure_client("always", lambda under: _measure("queue_roundtrip_always", under))


async def _measure(label: str, under: ClientUnderTest) -> Measured:
    await fill_topic(under, _MESSAGES)
    await consume(under, "warm-up", _MESSAGES)
    work = Work(under.broker)
    runs = []
    for number in range(_RUNS):
        runs.append(_MESSAGES / await consume(under, f"group-{number}", _MESSAGES))
        note(f"{label}: run {number + 1} of {_RUNS}: {rounded(runs[-1]):,}")
    return Measured(
        runs, {**work.per_message(_RUNS * _MESSAGES), "kind": "shared", "consumers": 1, "batch_messages": _BATCH}
    )


async def consume(under: ClientUnderTest, group: str, messages: int, topic: str = TOPIC) -> float:
    """Seconds from the first poll to the last acknowledged ack, everything that lies in the topic."""
    async with under.client.consumer(group, [topic], kind="shared") as consumer:
        count = 0
        acks: set[asyncio.Future[None]] = set()
        started = time.perf_counter()
        while count < messages:
            batch = await consumer.poll(_BATCH, timeout=_PATIENCE_S)
            if not batch:
                raise RuntimeError(f"only {count} of {messages} messages came")
            count += len(batch)
            ack = consumer.ack(batch)
            acks.add(ack)
            ack.add_done_callback(acks.discard)
        await asyncio.gather(*acks)
        took = time.perf_counter() - started
    lag = sum(each.lag for each in (await under.client.describe_group(group)).partitions)
    if lag:
        raise RuntimeError(f"{lag} messages are not done although every ack was answered")
    return took
