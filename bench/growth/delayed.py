"""The seventh axis: how many delayed messages wait."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from bench.growth.backlog import publish_times
from bench.growth.curve import Axis, Curve, Point
from bench.growth.subject import Subject, send_all, subject
from bench.workload import BATCH_MESSAGES, byte_batches
from goqueue.client.messages.outgoing_message import Outgoing

_TOPIC = "later"
_SEED = 19
_SOONEST_S, _LATEST_S = 12 * 3_600, 36 * 3_600
_DUE_WITHIN_S = 3.0
_DUE_SOON = 20_000


def _measure(xs: Sequence[int]) -> Iterator[Point]:
    """One topic that grows; what is measured adds little to it."""
    chance = random.Random(_SEED)
    there = 0
    with subject() as under:
        under.run(under.client.create_topic(_TOPIC, partitions=1))
        plain = byte_batches()[0]
        for x in xs:
            under.run(send_all(under.client, _TOPIC, _batches(chance, x - there, _SOONEST_S, _LATEST_S)))
            there = x
            yield Point("memory", x, under.memory())
            yield Point("publish", x, publish_times(under, _TOPIC, plain))
            yield Point("due", x, _times_while_some_are_due(under, chance, plain))
            yield Point("restart", x, under.restart_times())


def _batches(chance: random.Random, count: int, soonest_s: float, latest_s: float) -> Iterator[Sequence[Outgoing]]:
    """Due at any time between."""
    for _ in range(0, count, BATCH_MESSAGES):
        yield [Outgoing(b"x" * 100, delay=chance.uniform(soonest_s, latest_s)) for _ in range(BATCH_MESSAGES)]


def _times_while_some_are_due(under: Subject, chance: random.Random, plain: Sequence[object]) -> list[float]:
    """Of publishes while as many become visible as the broker can make."""
    under.run(send_all(under.client, _TOPIC, _batches(chance, _DUE_SOON, 0.5, _DUE_WITHIN_S)))
    return publish_times(under, _TOPIC, plain)


AXIS = Axis(
    key="delayed",
    title="Cost against delayed messages",
    x_title="delayed messages that wait",
    xs=(1_000, 10_000, 100_000, 1_000_000),
    quick_xs=(1_000, 10_000, 100_000),
    curves=(
        Curve("publish", "publish 1,000 messages", expected=0),
        Curve("due", "publish, while delayed ones become visible", expected=0.15),
        Curve("restart", "restart, until ready", expected=0.3),
        Curve("memory", "memory of the broker", expected=0.15, unit="bytes"),
    ),
    measure=_measure,
    remark=(
        "One partition; times are by chance between half a day and one and a half ahead, so that originals are read "
        "from all over the log when they are due. Twenty thousand more become due within three seconds."
    ),
)
