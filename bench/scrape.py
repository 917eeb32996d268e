"""How long ``/metrics`` takes to make with 1,000 partitions, and how long others wait meanwhile."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import uvloop

from bench.harness import Measured, rounded, scratch_folder
from bench.in_process_broker import TOPIC, broker_over
from bench.queue_under_test import fill, join, poll
from bench.workload import BATCH_MESSAGES
from goqueue.broker.broker import Broker

_PARTITIONS = 1_000
_TIMES = 20


def measure() -> Measured:
    """One group reads all partitions, and has some messages in flight. The first scrape is not counted."""
    with scratch_folder() as folder:
        runs, details = uvloop.run(_measure(str(folder)))
    return Measured(runs, details)


async def _measure(folder: str) -> tuple[list[float], dict[str, object]]:
    async with broker_over(Path(folder) / "data") as broker:
        await broker.create_topic(TOPIC, {"partitions": _PARTITIONS, "fsync": "interval"})
        await fill(broker, _PARTITIONS * BATCH_MESSAGES, _PARTITIONS)
        member = await join(broker, "group")
        for _ in range(_PARTITIONS // 10):
            await poll(broker, "group", member, 100)
        first_ms, _, _ = await _scrape(broker)
        found = [await _scrape(broker) for _ in range(_TIMES)]
        return [took_ms for took_ms, _, _ in found], {
            "partitions": _PARTITIONS,
            "groups": 1,
            "first_ms": rounded(first_ms),
            "longest_stall_ms": rounded(max(stall_ms for _, stall_ms, _ in found)),
            "lines": found[-1][2].count(b"\n"),
            "bytes": len(found[-1][2]),
        }


async def _scrape(broker: Broker) -> tuple[float, float, bytes]:
    """How long it took, the longest that a task waited that only wanted its next turn, and the text."""
    stop = asyncio.Event()
    watching = asyncio.create_task(_longest_turn_ms(stop))
    await asyncio.sleep(0)
    started = time.perf_counter()
    text = await broker.metrics.scrape(openmetrics=True)
    took_ms = (time.perf_counter() - started) * 1_000
    stop.set()
    return took_ms, await watching, text


async def _longest_turn_ms(stop: asyncio.Event) -> float:
    longest = 0.0
    while not stop.is_set():
        began = time.perf_counter()
        await asyncio.sleep(0)
        longest = max(longest, time.perf_counter() - began)
    return longest * 1_000
