"""The fourth axis: how large a message is."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from bench.growth.backlog import publish_times
from bench.growth.curve import Axis, Curve, Point
from bench.growth.subject import Subject, subject

_MOST_BYTES = 16 << 20
_MOST_MESSAGES = 5_000
_SEED = 17


def _measure(xs: Sequence[int]) -> Iterator[Point]:
    """A fresh broker for each size."""
    chance = random.Random(_SEED)
    for x in xs:
        count = min(_MOST_MESSAGES, _MOST_BYTES // x)
        batch = [chance.randbytes(x) for _ in range(count)]
        topic = f"size-{x}"
        with subject() as under:
            under.run(under.client.create_topic(topic, partitions=1))
            yield Point("publish", x, [seconds / count for seconds in publish_times(under, topic, batch)])
            yield Point("read", x, [seconds / count for seconds in _read_times(under, topic, count)])


def _read_times(under: Subject, topic: str, count: int) -> list[float]:
    """Of the last messages, as many as a batch had."""

    async def read() -> None:
        end = (await under.client.describe_topic(topic)).partitions[0].latest_offset
        taken = 0
        async for _record in under.client.read(topic, 0, end - count):
            taken += 1
        if taken != count:
            raise RuntimeError(f"{taken} of {count} messages were read")

    return under.times(read)


AXIS = Axis(
    key="size",
    title="Cost against message size",
    x_title="bytes in a message",
    xs=(10, 100, 1_000, 10_000, 100_000, 1_000_000),
    quick_xs=(10, 100, 1_000, 10_000, 100_000),
    curves=(
        Curve("publish", "publish, per message", expected=1, first=0.2, of_x=True),
        Curve("read", "read, per message", expected=1, first=0.2, of_x=True),
    ),
    measure=_measure,
    remark="Batches of up to 5,000 messages and 16 MB. Small messages cost by the message, large ones by the byte.",
)
