"""How fast a group of one member consumes a topic as a stream, committing its offsets."""

from __future__ import annotations

import time

from bench.client_under_test import TOPIC, ClientUnderTest, Work, fill_topic, measure_client
from bench.harness import Measured, note, rounded

_MESSAGES = 600_000
_COMMIT_EVERY = 10_000
_RUNS = 5


def measure() -> Measured:
    return measure_client("interval", _measure)


async def _measure(under: ClientUnderTest) -> Measured:
    await fill_topic(under, _MESSAGES)
    await _consume(under, "warm-up")
    work = Work(under.broker)
    runs = []
    for number in range(_RUNS):
        runs.append(_MESSAGES / await _consume(under, f"group-{number}"))
        note(f"group_stream: run {number + 1} of {_RUNS}: {rounded(runs[-1]):,}")
    return Measured(runs, {**work.per_message(_RUNS * _MESSAGES), "commit_every": _COMMIT_EVERY, "page_cache": "warm"})


async def _consume(under: ClientUnderTest, group: str) -> float:
    """Seconds for every message, decoded and handed out one by one, to the last commit's answer."""
    async with under.client.consumer(group, [TOPIC], mode="stream", auto_commit=False) as consumer:
        count = 0
        started = time.perf_counter()
        async for _ in consumer:
            count += 1
            if count % _COMMIT_EVERY == 0:
                await consumer.commit()
            if count == _MESSAGES:
                break
        await consumer.commit()
        took = time.perf_counter() - started
    committed = sum(each.committed for each in (await under.client.describe_group(group)).partitions)
    if committed != _MESSAGES:
        raise RuntimeError(f"{committed} messages are committed, {_MESSAGES} were read")
    return took
