"""The second axis: how many partitions a topic has."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

from bench.growth.backlog import publish_times
from bench.growth.curve import Axis, Curve, Point
from bench.growth.subject import Subject, send_all, subject
from bench.workload import BATCH_MESSAGES, VALUE_BYTES
from goqueue.client.messages.outgoing_message import Outgoing

_TOPIC = "partitioned"
_IN_EACH = 1_000
_CREATED = 5
_READ = 5
_SEED = 13


def _measure(xs: Sequence[int]) -> Iterator[Point]:
    """A fresh broker for each number."""
    for x in xs:
        with subject() as under:
            yield Point("create", x, [seconds / x for seconds in under.run(_create_times(under, x))])
            under.run(send_all(under.client, _TOPIC, _by_partition(x)))
            yield Point("publish", x, publish_times(under, _TOPIC, _spread(x)))
            yield Point("read", x, under.run(_read_times(under, x * _IN_EACH)))
            yield Point("memory", x, under.memory())
            yield Point("restart", x, under.restart_times())


async def _create_times(under: Subject, partitions: int) -> list[float]:
    """The last one stays."""
    found: list[float] = []
    while len(found) < _CREATED:
        if found:
            await under.client.delete_topic(_TOPIC)
        began = time.perf_counter()
        await under.client.create_topic(_TOPIC, partitions=partitions)
        found.append(time.perf_counter() - began)
    return found


def _by_partition(partitions: int) -> Iterator[Sequence[Outgoing]]:
    """As many to each, a batch for one partition at a time."""
    values = _values()
    for number in range(partitions):
        yield [Outgoing(value, partition=number) for value in values]


def _spread(partitions: int) -> Sequence[Outgoing]:
    """One batch whose messages go to all partitions in turn."""
    return [Outgoing(value, partition=place % partitions) for place, value in enumerate(_values())]


def _values() -> list[bytes]:
    chance = random.Random(_SEED)
    return [chance.randbytes(VALUE_BYTES) for _ in range(BATCH_MESSAGES)]


async def _read_times(under: Subject, at_least: int) -> list[float]:
    """Seconds for each message of the whole topic."""
    found = []
    for _ in range(_READ):
        began, taken = time.perf_counter(), 0
        async for _record in under.client.read(_TOPIC):
            taken += 1
        found.append((time.perf_counter() - began) / taken)
        if taken < at_least:
            raise RuntimeError(f"{taken} messages were read of {at_least} that were written, and some more")
    return found


AXIS = Axis(
    key="partitions",
    title="Cost against partitions",
    x_title="partitions of the topic",
    xs=(1, 10, 100, 1_000),
    quick_xs=(1, 10, 100),
    curves=(
        Curve("publish", "publish 1,000 messages, spread over all", expected=1, first=0.5),
        Curve("read", "read everything, per message", expected=0),
        Curve("create", "create, per partition", expected=0),
        Curve("restart", "restart, until ready", expected=0.3),
        Curve("memory", "memory of the broker", expected=0.15, unit="bytes"),
    ),
    measure=_measure,
    remark=(
        "A thousand messages of 100 bytes in each partition. A spread publish becomes a batch for each partition: from "
        "a hundred partitions on there is little in each."
    ),
)
