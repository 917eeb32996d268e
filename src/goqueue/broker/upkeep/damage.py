"""What partitions have lost, and that a person accepts it.

A loss is noted durably when it is found. Until it is acknowledged the broker is degraded, and whoever reads over it
finds damage there; afterwards readers step over it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.file_freeze import FileFreeze
from goqueue.model.clock import Clock
from goqueue.model.logging import get_logger
from goqueue.storage.files.disk_errors import told
from goqueue.storage.log.log import Log
from goqueue.storage.log.lost import LostRange

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Loss:
    """A range of offsets that one partition has lost."""

    topic: str
    partition: int
    range: LostRange


class Host(Protocol):
    """What is needed of a broker."""

    clock: Clock

    def topic(self, name: str) -> Topic: ...

    def running_topics(self) -> Iterable[Topic]: ...


def told_of_loss(of: Log) -> Iterator[str]:
    """In words, what nobody has acknowledged."""
    if of.lost.is_unreadable:
        yield "the file that tells what was lost is damaged"
    for each in of.lost.open:
        yield f"{each.shown()} gone"
    if of.missing is not None and not of.lost.open:
        yield of.missing


def losses(host: Host, name: str | None, number: int | None) -> list[Loss]:
    """Those of one topic or partition, or of all, in order; those that were acknowledged included."""
    return [
        Loss(topic.name, at, each)
        for topic in _topics(host, name)
        for at in _numbers(topic, number)
        for each in topic.partitions[at].log.lost.ranges
    ]


async def acknowledge(host: Host, stillness: FileFreeze, name: str, number: int | None) -> list[Loss]:
    """Accept what a topic, or one partition of it, has lost; return what that was. Durable when this returns."""
    topic = host.topic(name)
    accepted: list[Loss] = []
    for at in _numbers(topic, number):
        kept = topic.partitions[at].log
        if not kept.lost.open and not kept.lost.is_unreadable and kept.missing is None:
            continue
        async with stillness.changing():
            now_ns = host.clock.now_ns()
            while True:
                before = kept.lost.ranges
                ranges = kept.lost.acknowledged(now_ns)
                try:
                    await asyncio.to_thread(kept.lost.save, ranges)
                except OSError as error:
                    raise told(error, "writing what is acknowledged") from error
                # Else more was found to be lost meanwhile, and the file may tell of the one or the other.
                if kept.lost.ranges is before:
                    break
        kept.lost.saved(ranges)
        kept.missing = None
        accepted += [Loss(name, at, each) for each in ranges if each.acknowledged_ns == now_ns]
        log.warning("a loss of messages was acknowledged", topic=name, partition=at)
        topic.partitions[at].wake()
    return accepted


def _topics(host: Host, name: str | None) -> list[Topic]:
    if name is not None:
        return [host.topic(name)]
    return sorted(host.running_topics(), key=lambda topic: topic.name)


def _numbers(topic: Topic, number: int | None) -> Iterable[int]:
    if number is None:
        return range(len(topic.partitions))
    topic.partition(number)
    return (number,)
