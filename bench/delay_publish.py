"""How many delayed messages a second one client gets stored: ``send_many`` over gRPC, durable before the answer."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from bench.client_under_test import TOPIC, ClientUnderTest, Work, measure_client
from bench.harness import Measured, note, rounded
from bench.workload import BATCH_MESSAGES, byte_batches
from goqueue.client.messages.outgoing_message import Outgoing

_DELAY = timedelta(days=1)
_WRITERS = 4
_WARM_UP = 40_000
_MESSAGES = 200_000
_RUNS = 5


def measure() -> Measured:
    return measure_client("always", _publish)


async def _publish(under: ClientUnderTest) -> Measured:
    batches = [[Outgoing(value, delay=_DELAY) for value in batch] for batch in byte_batches()]
    runs = []
    async with under.client.producer(acks="leader") as producer:

        async def write(messages: int) -> None:
            for number in range(messages // BATCH_MESSAGES):
                await producer.send_many(TOPIC, batches[number % len(batches)])

        async def write_all(messages: int) -> None:
            await asyncio.gather(*(write(messages // _WRITERS) for _ in range(_WRITERS)))

        await write_all(_WARM_UP)
        work = Work(under.broker)
        for run in range(_RUNS):
            started = time.perf_counter()
            await write_all(_MESSAGES)
            runs.append(_MESSAGES / (time.perf_counter() - started))
            note(f"delay_publish: run {run + 1} of {_RUNS}: {rounded(runs[-1]):,}")
        details = work.per_message(_RUNS * _MESSAGES)
    stored = _WARM_UP + _RUNS * _MESSAGES
    pending = under.broker.request("GET", "/delay/stats")["pending_count"]
    if pending != stored:
        raise RuntimeError(f"{stored} delayed messages were acknowledged, {pending} wait")
    return Measured(runs, {**details, "writers": _WRITERS, "messages_per_send_many": BATCH_MESSAGES})
