"""How long a message takes from its publish to a consumer that waits for it, every step durable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping

from bench.client_under_test import TOPIC, ClientUnderTest, measure_figures
from bench.harness import Measured, note, percentile, rounded

P50, P99 = "queue_wakeup_p50", "queue_wakeup_p99"
_MS = 1_000
_WARM_UP = 100
_MESSAGES = 1_000
_RUNS = 5
_PATIENCE_S = 10.0


def measure(_wanted: Collection[str]) -> Mapping[str, Measured]:
    return measure_figures("always", _figures)


async def _figures(under: ClientUnderTest) -> Mapping[str, Measured]:
    found = await _measure(under)
    details: dict[str, object] = {"messages": _MESSAGES, "from": "send() with linger 0", "to": "poll() returns"}
    return {
        P50: Measured([percentile(each, 0.5) for each in found], details),
        P99: Measured([percentile(each, 0.99) for each in found], {**details, "max": rounded(max(map(max, found)))}),
    }


async def _measure(under: ClientUnderTest) -> list[list[float]]:
    found = []
    async with (
        under.client.producer(linger_ms=0) as producer,
        under.client.consumer("waiting", [TOPIC], kind="shared") as consumer,
    ):

        async def one() -> float:
            waiting = asyncio.create_task(consumer.poll(1, timeout=_PATIENCE_S))
            await asyncio.sleep(0)
            started = time.perf_counter()
            await producer.send(TOPIC, b"x" * 100)
            batch = await waiting
            took = (time.perf_counter() - started) * _MS
            if len(batch) != 1:
                raise RuntimeError("the message did not come")
            await consumer.ack(batch)
            return took

        for _ in range(_WARM_UP):
            await one()
        for number in range(_RUNS):
            found.append([await one() for _ in range(_MESSAGES)])
            note(f"{P50}: run {number + 1} of {_RUNS}: {rounded(percentile(found[-1], 0.5)):,}")
    return found
