"""The sixth axis: how many groups wait for the same message."""

from __future__ import annotations

import asyncio
import http.client
import time
from collections.abc import Iterator, Sequence

from bench.growth.curve import Axis, Curve, Point
from bench.growth.subject import Subject, subject
from goqueue.client.consumer.consumer import AsyncConsumer

_TOPIC = "news"
_JOINING = 20
_SAMPLES = 9
_PATIENCE_S = 120.0
_JOINED_S = 0.01
_VALUE = b"x" * 100


def _measure(xs: Sequence[int]) -> Iterator[Point]:
    """A fresh broker for each number."""
    for x in xs:
        with subject() as under:
            under.run(under.client.create_topic(_TOPIC, partitions=1))
            members = under.run(_join(under, x))
            published_s, delivered_s = under.run(_times(under, members))
            yield Point("publish", x, published_s)
            yield Point("deliver", x, [seconds / x for seconds in delivered_s])
            scraped = [_scrape(under) for _ in range(_SAMPLES)]
            yield Point("scrape", x, [seconds for seconds, _ in scraped])
            yield Point("scraped", x, [float(size) for _, size in scraped])
            under.run(_leave(members))


async def _join(under: Subject, groups: int) -> list[AsyncConsumer]:
    turns = asyncio.Semaphore(_JOINING)

    async def join(number: int) -> AsyncConsumer:
        consumer = under.client.consumer(f"group-{number}", _TOPIC, kind="shared")
        async with turns:
            await consumer.poll(1, timeout=_JOINED_S)
        return consumer

    return await asyncio.gather(*map(join, range(groups)))


async def _times(under: Subject, members: Sequence[AsyncConsumer]) -> tuple[list[float], list[float]]:
    """Of a message that all of them get: until it is acknowledged, and until all have it."""
    published, delivered = [], []
    async with under.client.producer(acks="all", linger_ms=0) as producer:
        for _ in range(_SAMPLES):
            began = time.perf_counter()
            waiting = asyncio.gather(*(_take(member) for member in members))
            await producer.send_many(_TOPIC, [_VALUE])
            published.append(time.perf_counter() - began)
            await waiting
            delivered.append(time.perf_counter() - began)
    return published, delivered


async def _take(member: AsyncConsumer) -> None:
    messages = await member.poll(1, timeout=_PATIENCE_S)
    if not messages:
        raise RuntimeError(f"a message did not come within {_PATIENCE_S:.0f} s")
    await member.ack(messages)


def _scrape(under: Subject) -> tuple[float, int]:
    """Processor time of the broker, and bytes."""
    began = under.broker.cpu_s()
    connection = http.client.HTTPConnection(under.broker.host, under.broker.port, timeout=_PATIENCE_S)
    try:
        size = 0
        # One takes less than the kernel counts.
        for _ in range(_SAMPLES):
            connection.request("GET", "/metrics")
            size = len(connection.getresponse().read())
    finally:
        connection.close()
    return (under.broker.cpu_s() - began) / _SAMPLES, size


async def _leave(members: Sequence[AsyncConsumer]) -> None:
    for first in range(0, len(members), _JOINING):
        await asyncio.gather(*(member.close() for member in members[first : first + _JOINING]))


AXIS = Axis(
    key="waiting",
    title="Cost against groups that wait",
    x_title="groups that wait for a message",
    xs=(1, 10, 100, 1_000),
    quick_xs=(1, 10, 100),
    curves=(
        Curve("publish", "publish a message that all of them get", expected=0.5),
        Curve("deliver", "until all have acked it, per group", expected=0),
        Curve("scrape", "scrape /metrics, processor time of the broker", expected=1, first=0.5),
        Curve("scraped", "size of /metrics", expected=1, first=0.5, unit="bytes"),
    ),
    measure=_measure,
    remark=(
        "One partition. Each group has a member that waits, all in the process that publishes. A publish is "
        "acknowledged when it is on the disk."
    ),
)
