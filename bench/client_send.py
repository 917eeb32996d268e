"""How long one ``send()`` takes until it is acknowledged, every message on the disk before."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from itertools import cycle
from statistics import median

from bench.client_under_test import TOPIC, ClientUnderTest, Work, measure_client
from bench.harness import Measured, note, percentile, rounded
from bench.workload import byte_batches
from goqueue.client.connection.config import ProducerConfig
from goqueue.client.producer.producer import AsyncProducer
from goqueue.model.publish_result import Published

_MS = 1_000
_WARM_UP_MESSAGES = 200
_RUNS = 5
_SINGLE_MESSAGES = 2_000
_LINGERING_MESSAGES = 400
_PACE_PER_S = 10_000
_PACED_S = 2.0
_TICK_S = 0.001
_DEFAULT_LINGER_MS = ProducerConfig().linger_ms


def measure_single() -> Measured:
    """One after the other with ``linger_ms=0``: the path itself. With the default, the linger comes on top."""
    return measure_client("always", _single)


def measure_paced() -> Measured:
    """10,000 calls a second, whatever the answers do.

    A latency counts from when the call was due, not from when it was made: a stall that holds up the caller shows in
    every message that it delays.
    """
    return measure_client("always", _paced)


async def _single(under: ClientUnderTest) -> Measured:
    async with under.client.producer(acks="leader", linger_ms=0) as producer:
        await _one_by_one(producer, _WARM_UP_MESSAGES)
        work = Work(under.broker)
        found = []
        for number in range(_RUNS):
            found.append(await _one_by_one(producer, _SINGLE_MESSAGES))
            note(f"client_send_p99: run {number + 1} of {_RUNS}: {rounded(percentile(found[-1], 0.99)):,}")
        details = work.per_message(_RUNS * _SINGLE_MESSAGES)
    async with under.client.producer(acks="leader") as producer:
        lingering = await _one_by_one(producer, _LINGERING_MESSAGES)
    under.check_stored(_WARM_UP_MESSAGES + _RUNS * _SINGLE_MESSAGES + _LINGERING_MESSAGES)
    return Measured(
        [percentile(each, 0.99) for each in found],
        {
            **_summary(found),
            "linger_ms": 0,
            "default_linger": {**_summary([lingering]), "linger_ms": _DEFAULT_LINGER_MS},
            "acks": "leader",
            **details,
        },
    )


async def _one_by_one(producer: AsyncProducer, messages: int) -> list[float]:
    values = cycle(byte_batches()[0])
    found = []
    for _ in range(messages):
        started = time.perf_counter()
        await (await producer.send(TOPIC, next(values)))
        found.append((time.perf_counter() - started) * _MS)
    return found


async def _paced(under: ClientUnderTest) -> Measured:
    each_run = int(_PACE_PER_S * _PACED_S)
    async with under.client.producer(acks="leader") as producer:
        await _at_pace(producer, _PACE_PER_S)
        work = Work(under.broker)
        found, lateness = [], []
        for number in range(_RUNS):
            latencies, late = await _at_pace(producer, each_run)
            found.append(latencies)
            lateness.append(late)
            note(f"client_paced_p99: run {number + 1} of {_RUNS}: {rounded(percentile(latencies, 0.99)):,}")
        details = work.per_message(_RUNS * each_run)
    async with under.client.producer(acks="leader", linger_ms=0) as producer:
        at_once, _ = await _at_pace(producer, each_run)
    under.check_stored(_PACE_PER_S + (_RUNS + 1) * each_run)
    return Measured(
        [percentile(each, 0.99) for each in found],
        {
            **_summary(found),
            "linger_ms": _DEFAULT_LINGER_MS,
            "no_linger": {**_summary([at_once]), "linger_ms": 0},
            "called_late_by": _summary(lateness),
            "sends_per_s": _PACE_PER_S,
            "acks": "leader",
            **details,
        },
    )


async def _at_pace(producer: AsyncProducer, messages: int) -> tuple[list[float], list[float]]:
    """Send what is due, then sleep until more is.

    Returns how long each message took since it was due, and how much of that went by before ``send()`` was called: the
    timer's share, and that of whatever held up this loop.
    """
    values = cycle(byte_batches()[0])
    found: list[float] = []
    late: list[float] = []
    all_settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    started = time.perf_counter()

    def note_arrival(due: float, delivery: asyncio.Future[Published]) -> None:
        found.append((time.perf_counter() - due) * _MS)
        if all_settled.done():
            return
        if (error := delivery.exception()) is not None:
            all_settled.set_exception(error)
        elif len(found) == messages:
            all_settled.set_result(None)

    while len(late) < messages:
        now = time.perf_counter()
        for number in range(len(late), min(messages, int((now - started) * _PACE_PER_S) + 1)):
            due = started + number / _PACE_PER_S
            late.append((time.perf_counter() - due) * _MS)
            (await producer.send(TOPIC, next(values))).add_done_callback(partial(note_arrival, due))
        await asyncio.sleep(_TICK_S)
    await all_settled
    return found, late


def _summary(found: list[list[float]]) -> dict[str, object]:
    return {
        "p50": rounded(median(percentile(each, 0.5) for each in found)),
        "p99": rounded(median(percentile(each, 0.99) for each in found)),
        "max": rounded(max(max(each) for each in found)),
    }
