"""The eighth axis: how many partitions a start has to open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.growth.curve import Axis, Curve, Point
from bench.growth.subject import Subject, send_all, subject
from goqueue.client.messages.outgoing_message import Outgoing

_IN_A_TOPIC = 1_000
_TIMES = 3


def _measure(xs: Sequence[int]) -> Iterator[Point]:
    """One broker whose topics become more."""
    with subject() as under:
        there = 0
        for x in xs:
            while there < x:
                there += _add_topic(under, f"topic-{there}", min(_IN_A_TOPIC, x - there))
            yield Point("memory", x, under.memory())
            yield Point("restart", x, [_restart(under) for _ in range(_TIMES)])


def _restart(under: Subject) -> float:
    """Processor time of the broker until it is ready."""
    under.restart_times(1)
    return under.broker.cpu_s()


def _add_topic(under: Subject, name: str, partitions: int) -> int:
    """A message in each, so that none is without files."""
    under.run(under.client.create_topic(name, partitions=partitions))
    under.run(send_all(under.client, name, iter([[Outgoing(b"x", partition=place) for place in range(partitions)]])))
    return partitions


AXIS = Axis(
    key="starts",
    title="Cost of a start against partitions",
    x_title="partitions of all topics",
    xs=(10, 100, 1_000, 10_000),
    quick_xs=(10, 100, 1_000),
    curves=(
        Curve("restart", "start after a clean stop, processor time until ready", expected=1, first=0.2),
        Curve("memory", "memory of the broker", expected=0.6, unit="bytes"),
    ),
    measure=_measure,
    remark="Topics of up to a thousand partitions with a message in each.",
)
