"""How long one durable publish takes when writers are spread over many partitions."""

from __future__ import annotations

import asyncio
import random
import time
from statistics import median

import uvloop

from bench.harness import Measured, fsync_ms, note, percentile, rounded, scratch_folder
from bench.in_process_broker import TOPIC, broker_over
from bench.workload import VALUE_BYTES
from goqueue.broker.broker import Broker
from goqueue.model.errors import GoQueueError
from goqueue.model.publishing import NewMessage

_PARTITIONS = 300
_WRITERS = 16
_MESSAGES_EACH = 500
_RUNS = 5
_SEED = 11
_MS = 1_000


def measure() -> Measured:
    with scratch_folder() as folder:
        before_ms = fsync_ms(folder)
        measured = uvloop.run(_measure(broker_over(folder / "data")))
        disk = {"disk_fsync_ms": [rounded(before_ms), rounded(fsync_ms(folder))]}
    return Measured(measured.runs, {**measured.details, **disk})


async def _measure(broker: Broker) -> Measured:
    latencies_ms: list[list[float]] = []
    rates: list[float] = []
    async with broker:
        await broker.create_topic(TOPIC, {"partitions": _PARTITIONS, "fsync": "always"})
        # The first message of a partition makes its files; that is not what is measured.
        await asyncio.gather(*(_publish(broker, partition) for partition in range(_PARTITIONS)))
        for number in range(_RUNS):
            chance = random.Random(_SEED + number)
            started = time.perf_counter()
            latencies_ms.append(await _publish_concurrently(broker, chance))
            rates.append(_WRITERS * _MESSAGES_EACH / (time.perf_counter() - started))
            note(f"publish_always_300_partitions_p99: run {number + 1} of {_RUNS}: {rates[-1]:,.0f} messages/s")
    return Measured(
        [percentile(each, 0.99) for each in latencies_ms],
        {
            "p50": rounded(median(percentile(each, 0.5) for each in latencies_ms)),
            "max": rounded(max(max(each) for each in latencies_ms)),
            "rate": rounded(median(rates)),
            "messages": _RUNS * _WRITERS * _MESSAGES_EACH,
            "partitions": _PARTITIONS,
            "writers": _WRITERS,
            "fsync": "always",
            "value_bytes": VALUE_BYTES,
        },
    )


async def _publish_concurrently(broker: Broker, chance: random.Random) -> list[float]:
    async def write(partitions: list[int]) -> list[float]:
        return [await _publish(broker, partition) for partition in partitions]

    plans = [[chance.randrange(_PARTITIONS) for _ in range(_MESSAGES_EACH)] for _ in range(_WRITERS)]
    return [latency for each in await asyncio.gather(*map(write, plans)) for latency in each]


async def _publish(broker: Broker, partition: int) -> float:
    """Publish one message; return how many milliseconds it took."""
    message = NewMessage(b"x" * VALUE_BYTES, partition=partition)
    started = time.perf_counter()
    (outcome,) = await broker.publish(TOPIC, [message])
    elapsed = time.perf_counter() - started
    if isinstance(outcome, GoQueueError):
        raise outcome
    return elapsed * _MS
