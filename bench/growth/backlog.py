"""The first axis: how many messages lie in a partition."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from itertools import count, cycle, islice

from bench.growth.curve import Axis, Curve, Point
from bench.growth.subject import Subject, send_all, subject
from bench.workload import BATCH_MESSAGES, byte_batches
from goqueue.client.async_client import AsyncClient
from goqueue.client.consumer.consumer import AsyncConsumer

_TOPIC = "backlog"
_GROUP = "workers"
_READ = 1_000
POLL = 100
_SEED = 11
_PATIENCE_S = 60.0


def _measure(xs: Sequence[int]) -> Iterator[Point]:
    """One topic that grows; what is measured adds little to it."""
    with subject() as under:
        under.run(under.client.create_topic(_TOPIC, partitions=1))
        batches = byte_batches()
        names = map("new-{}".format, count())
        for x in xs:
            missing = max(0, x - under.run(_end(under)))
            under.run(send_all(under.client, _TOPIC, islice(cycle(batches), missing // BATCH_MESSAGES)))
            yield Point("memory", x, under.memory())
            yield Point("publish", x, publish_times(under, _TOPIC, batches[0]))
            yield Point("read", x, _read_times(under, x))
            yield Point("poll", x, poll_times(under, _GROUP, _TOPIC))
            yield Point("new_group", x, under.times(lambda: _first_message(under.client, next(names))))
            yield Point("restart", x, under.restart_times())


async def _end(under: Subject) -> int:
    return (await under.client.describe_topic(_TOPIC)).partitions[0].latest_offset


def publish_times(under: Subject, topic: str, batch: Sequence[object]) -> list[float]:
    """Of one ``send_many``, until all of it is acknowledged."""
    producer = under.client.producer(acks="leader", linger_ms=0)
    try:
        return under.times(lambda: producer.send_many(topic, batch))
    finally:
        under.run(producer.close())


def poll_times(under: Subject, group: str, topic: str) -> list[float]:
    """Of a round of a queue: a hundred messages come and are acked. The next ones come when these are done."""
    consumer = under.client.consumer(group, topic, kind="shared", max_in_flight=POLL)
    try:
        return under.times(lambda: _round(consumer))
    finally:
        under.run(consumer.close())


async def _round(consumer: AsyncConsumer) -> None:
    taken = 0
    while taken < POLL:
        messages = await consumer.poll(POLL - taken, timeout=_PATIENCE_S)
        if not messages:
            raise RuntimeError(f"{taken} of {POLL} messages came, then none for {_PATIENCE_S:.0f} s")
        taken += len(messages)
        await consumer.ack(messages)


def _read_times(under: Subject, messages: int) -> list[float]:
    """Of a thousand messages, from offsets by chance."""
    chance = random.Random(_SEED)
    return under.times(lambda: _read(under.client, chance.randrange(messages - _READ)))


async def _read(client: AsyncClient, offset: int) -> None:
    """A thousand messages from there on, decoded."""
    taken = 0
    async with aclosing(client.read(_TOPIC, 0, offset)) as records:
        async for _ in records:
            taken += 1
            if taken == _READ:
                return
    raise RuntimeError(f"{taken} messages lie behind offset {offset}, {_READ} were expected")


async def _first_message(client: AsyncClient, group: str) -> None:
    """A group that did not exist is made and joined, gets a message, and is left."""
    async with client.consumer(group, _TOPIC, kind="shared", max_in_flight=1) as consumer:
        if not await consumer.poll(1, timeout=_PATIENCE_S):
            raise RuntimeError(f"group {group} got nothing for {_PATIENCE_S:.0f} s")


AXIS = Axis(
    key="backlog",
    title="Cost against backlog",
    x_title="messages in the partition",
    xs=(10_000, 100_000, 1_000_000, 10_000_000),
    quick_xs=(10_000, 100_000),
    curves=(
        Curve("publish", "publish 1,000 messages", expected=0),
        Curve("read", "read 1,000 at a random offset", expected=0),
        Curve("poll", "poll and ack 100", expected=0),
        Curve("new_group", "open a new group, get a message, leave", expected=0),
        Curve("restart", "restart, until ready", expected=0),
        Curve("memory", "memory of the broker", expected=0, unit="bytes"),
    ),
    measure=_measure,
    remark="One partition with messages of 100 bytes. The queue has nearly all of them ready.",
)
