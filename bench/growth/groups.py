"""The third axis: how many groups consume a topic."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import cycle, islice

from bench.growth.backlog import POLL, poll_times, publish_times
from bench.growth.curve import Axis, Curve, Point
from bench.growth.subject import Subject, send_all, subject
from bench.workload import byte_batches
from goqueue.client.consumer.consumer import AsyncConsumer

_TOPIC = "shared"
_BACKLOG_BATCHES = 100
_JOINING = 20
_PATIENCE_S = 120.0
_WORKING = "working"
_LEASE = "12h"


def _measure(xs: Sequence[int]) -> Iterator[Point]:
    """A fresh broker for each number. One group works; the others are there, first with a member each, then without."""
    batches = byte_batches()
    for x in xs:
        with subject() as under:
            under.run(under.client.create_topic(_TOPIC, partitions=1))
            under.run(send_all(under.client, _TOPIC, islice(cycle(batches), _BACKLOG_BATCHES)))
            poll_times(under, _WORKING, _TOPIC)
            members = under.run(_join(under, range(1, x)))
            yield Point("memory", x, under.memory())
            yield Point("publish_members", x, publish_times(under, _TOPIC, batches[0]))
            yield Point("poll_members", x, poll_times(under, _WORKING, _TOPIC))
            under.run(_leave(members))
            yield Point("publish", x, publish_times(under, _TOPIC, batches[0]))
            yield Point("poll", x, poll_times(under, _WORKING, _TOPIC))
            yield Point("restart", x, under.restart_times())


async def _join(under: Subject, numbers: Sequence[int]) -> list[AsyncConsumer]:
    """A member for each group, which has taken one message and may not have a second one: it is there, and idle."""
    turns = asyncio.Semaphore(_JOINING)

    async def join(number: int) -> AsyncConsumer:
        consumer = under.client.consumer(
            f"idle-{number}", _TOPIC, kind="shared", max_in_flight=1, visibility_timeout_ms=_LEASE
        )
        async with turns:
            if not await consumer.poll(1, timeout=_PATIENCE_S):
                raise RuntimeError(f"the member of group idle-{number} got nothing for {_PATIENCE_S:.0f} s")
        return consumer

    return await asyncio.gather(*map(join, numbers))


async def _leave(members: Sequence[AsyncConsumer]) -> None:
    for first in range(0, len(members), _JOINING):
        await asyncio.gather(*(member.close() for member in members[first : first + _JOINING]))


AXIS = Axis(
    key="groups",
    title="Cost against groups",
    x_title="groups of the topic",
    xs=(1, 10, 100, 1_000),
    quick_xs=(1, 10, 100),
    curves=(
        Curve("publish", "publish 1,000 messages", expected=0),
        Curve("publish_members", "publish, each group with an idle member", expected=0),
        Curve("poll", f"poll and ack {POLL} in one group", expected=0),
        Curve("poll_members", "poll and ack, each group with an idle member", expected=0),
        Curve("restart", "restart, until ready", expected=0.3),
        Curve("memory", "memory of the broker, with members", expected=0.15, unit="bytes"),
    ),
    measure=_measure,
    remark=(
        "One partition with a hundred thousand messages of 100 bytes. One group works. The others have taken a message "
        "each: an idle member holds it and may have no second one, or has left."
    ),
)
