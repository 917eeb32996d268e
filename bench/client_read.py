"""How fast a client reads a whole topic over gRPC, from the broker's page cache."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from bench.client_under_test import TOPIC, ClientUnderTest, Work, fill_topic, measure_client
from bench.harness import Measured, note, rounded
from goqueue.client.async_client import AsyncClient

_MESSAGES = 600_000
_RUNS = 5


def measure_messages() -> Measured:
    """Messages, every checksum verified."""

    async def read(client: AsyncClient) -> int:
        count = 0
        async for _ in client.read(TOPIC):
            count += 1
        return count

    return measure_client("interval", lambda under: _measure("client_read_messages", under, read))


def measure_frames() -> Measured:
    """Batches of frames as they come, undecoded."""

    async def read(client: AsyncClient) -> int:
        count = 0
        async for batch in client.read_batches(TOPIC):
            count += len(batch.run)
        return count

    return measure_client("interval", lambda under: _measure("client_read_frames", under, read))


async def _measure(label: str, under: ClientUnderTest, read: Callable[[AsyncClient], Awaitable[int]]) -> Measured:
    await fill_topic(under, _MESSAGES)
    await _read_all(under.client, read)
    work = Work(under.broker)
    runs = []
    for number in range(_RUNS):
        started = time.perf_counter()
        await _read_all(under.client, read)
        runs.append(_MESSAGES / (time.perf_counter() - started))
        note(f"{label}: run {number + 1} of {_RUNS}: {rounded(runs[-1]):,}")
    return Measured(runs, {**work.per_message(_RUNS * _MESSAGES), "topic_messages": _MESSAGES, "page_cache": "warm"})


async def _read_all(client: AsyncClient, read: Callable[[AsyncClient], Awaitable[int]]) -> None:
    count = await read(client)
    if count != _MESSAGES:
        raise RuntimeError(f"read {count} messages, {_MESSAGES} were written")
