"""How long it takes until a burst of messages that are due at once is visible, and durable."""

from __future__ import annotations

import asyncio
import time

import uvloop

from bench.harness import Measured, note, repeat, scratch_folder
from bench.in_process_broker import TOPIC, broker_over
from bench.workload import BATCH_MESSAGES, wire_batches
from goqueue.broker.broker import Broker
from goqueue.wire.batch import parse_batch

_MESSAGES = 100_000
_PARTITIONS = 3
_LEAD_NS = 3 * 10**9


def measure() -> Measured:
    runs = repeat("delay_burst_seconds", lambda: uvloop.run(_burst()), times=5, budget_s=40)
    return Measured(runs, {"messages": _MESSAGES, "partitions": _PARTITIONS, "fsync": "always", "due": "all at once"})


async def _burst() -> float:
    with scratch_folder() as folder:
        async with broker_over(folder / "data") as broker:
            await broker.create_topic(TOPIC, {"partitions": _PARTITIONS})
            due_ns = time.time_ns() + _LEAD_NS
            runs = [parse_batch(wire) for wire in wire_batches(due_ns=due_ns)]
            for number in range(_MESSAGES // BATCH_MESSAGES):
                await broker.publish_frames(TOPIC, number % _PARTITIONS, runs[number % len(runs)])
            if time.time_ns() >= due_ns or _visible(broker):
                raise RuntimeError("writing took longer than the delay")
            while _visible(broker) < _MESSAGES:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            seconds = (time.time_ns() - due_ns) / 1e9
            if _visible(broker) != _MESSAGES:
                raise RuntimeError(f"{_visible(broker)} became visible, {_MESSAGES} were due")
            note(f"{_MESSAGES / seconds:,.0f} messages/s")
    return seconds


def _visible(broker: Broker) -> int:
    """What lies behind the originals, below the watermark."""
    partitions = broker.topic(TOPIC).partitions
    return sum(partition.high_watermark for partition in partitions) - _MESSAGES
