"""How late a delayed message comes to a consumer that waits for it, at light load, every step durable."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Collection, Mapping

from bench.client_under_test import TOPIC, ClientUnderTest, measure_figures
from bench.harness import Measured, note, percentile, rounded

P50, P99 = "delay_error_p50", "delay_error_p99"
_MS = 1_000
_MESSAGES = 200
_APART_S = 0.02
_DELAYS_S = (0.05, 0.5)
_RUNS = 5
_SEED = 7


def measure(_wanted: Collection[str]) -> Mapping[str, Measured]:
    return measure_figures("always", _figures)


async def _figures(under: ClientUnderTest) -> Mapping[str, Measured]:
    found = await _measure(under)
    details: dict[str, object] = {
        "messages": _MESSAGES,
        "delay_s": _DELAYS_S,
        "from": "the due time",
        "to": "poll() returns",
        "earliest_ms": rounded(min(map(min, found))),
        "latest_ms": rounded(max(map(max, found))),
    }
    return {
        P50: Measured([percentile(each, 0.5) for each in found], details),
        P99: Measured([percentile(each, 0.99) for each in found], details),
    }


async def _measure(under: ClientUnderTest) -> list[list[float]]:
    chance = random.Random(_SEED)
    found = []
    async with (
        under.client.producer(linger_ms=0) as producer,
        under.client.consumer("waiting", [TOPIC], kind="shared") as consumer,
    ):

        async def send() -> None:
            for _ in range(_MESSAGES):
                due_ns = time.time_ns() + int(chance.uniform(*_DELAYS_S) * 1e9)
                await producer.send(TOPIC, str(due_ns).encode(), deliver_at=due_ns)
                await asyncio.sleep(_APART_S)

        for number in range(_RUNS):
            late: list[float] = []
            sending = asyncio.create_task(send())
            while len(late) < _MESSAGES:
                batch = await consumer.poll(10, timeout=10)
                now_ns = time.time_ns()
                late += ((now_ns - int(message.value)) / 1e9 * _MS for message in batch)
                await consumer.ack(batch)
            await sending
            if min(late) < 0:
                raise RuntimeError(f"a message came {-min(late)} ms before its time")
            found.append(late)
            note(f"{P50}: run {number + 1} of {_RUNS}: {rounded(percentile(late, 0.5)):,}")
    return found
