"""The fifth axis: how many members a group has."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence

from bench.growth.backlog import publish_times
from bench.growth.curve import Axis, Curve, Point
from bench.growth.subject import Subject, subject
from bench.workload import byte_batches
from goqueue.client.consumer.consumer import AsyncConsumer

_TOPIC = "shared-out"
_PARTITIONS = 100
_JOINING = 20
_GROUPS = 3
_JOINED_S = 0.01
_ONE = 1
_TOLD_S = 0.005


def _measure(xs: Sequence[int]) -> Iterator[Point]:
    """A fresh broker for each number, and groups that are filled one after the other; the last one stays."""
    batch = byte_batches()[0][:_ONE]
    for x in xs:
        with subject() as under:
            under.run(under.client.create_topic(_TOPIC, partitions=_PARTITIONS))
            join_s, members = [], list[AsyncConsumer]()
            for number in range(_GROUPS):
                under.run(_leave(members))
                began = under.broker.cpu_s()
                members = under.run(_join(under, f"group-{number}", x))
                join_s.append((under.broker.cpu_s() - began) / x)
            yield Point("join", x, join_s)
            # Members of a large group are told of the last changes with a pause.
            time.sleep(x * _TOLD_S)
            yield Point("publish", x, publish_times(under, _TOPIC, batch))
            under.run(_leave(members))


async def _join(under: Subject, group: str, members: int) -> list[AsyncConsumer]:
    turns = asyncio.Semaphore(_JOINING)

    async def join() -> AsyncConsumer:
        consumer = under.client.consumer(group, _TOPIC, kind="range")
        async with turns:
            # Nothing is there; asked for messages it joins.
            await consumer.poll(1, timeout=_JOINED_S)
        return consumer

    return await asyncio.gather(*(join() for _ in range(members)))


async def _leave(members: Sequence[AsyncConsumer]) -> None:
    await asyncio.gather(*(member.close() for member in members))


AXIS = Axis(
    key="members",
    title="Cost against members",
    x_title="members of the group",
    xs=(10, 100, 1_000),
    quick_xs=(10, 100),
    curves=(
        Curve("join", "join, processor time of the broker per member", expected=0.3),
        Curve("publish", "publish a message that one of them gets", expected=0.15),
    ),
    measure=_measure,
    remark="A topic of a hundred partitions. All members have a stream open, and are told of every change.",
)
