"""How many messages a second one client gets stored: ``send_many`` over gRPC, acknowledged by the leader."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from bench.client_under_test import TOPIC, ClientUnderTest, Work, measure_client
from bench.harness import Measured, note, rounded
from bench.workload import BATCH_MESSAGES, byte_batches
from goqueue.client.producer.producer import AsyncProducer

_WRITERS = 4
_WARM_UP_S = 1.0
_ROUNDS = 5
_ROUND_S = 2.0


def measure_interval() -> Measured:
    """The broker answers when it has written; the disk follows within a second."""
    return measure_client("interval", partial(_publish, "client_publish_interval"))


def measure_always() -> Measured:
    """The broker answers when the messages are on the disk."""
    return measure_client("always", partial(_publish, "client_publish_always"))


async def _publish(label: str, under: ClientUnderTest) -> Measured:
    runs = []
    async with under.client.producer(acks="leader") as producer:
        acknowledged = await _round(producer, _WARM_UP_S)
        work = Work(under.broker)
        counted = 0
        for number in range(_ROUNDS):
            started = time.perf_counter()
            count = await _round(producer, _ROUND_S)
            runs.append(count / (time.perf_counter() - started))
            note(f"{label}: run {number + 1} of {_ROUNDS}: {rounded(runs[-1]):,}")
            counted += count
        details = work.per_message(counted)
    under.check_stored(acknowledged + counted)
    return Measured(runs, {**details, "writers": _WRITERS, "messages_per_send_many": BATCH_MESSAGES, "acks": "leader"})


async def _round(producer: AsyncProducer, seconds: float) -> int:
    """Every writer has one ``send_many`` under way at a time; the number of acknowledged messages."""
    until = time.perf_counter() + seconds

    async def write(batches: list[list[bytes]]) -> int:
        count = 0
        while time.perf_counter() < until:
            for batch in batches:
                count += len(await producer.send_many(TOPIC, batch))
        return count

    batches = byte_batches()
    return sum(await asyncio.gather(*(write(batches[number:] + batches[:number]) for number in range(_WRITERS))))
