"""Looking through messages for a few bytes: whole batches are searched as they lie, only what fits is decoded."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable

import numpy as np

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.shards.host import Host
from goqueue.model.errors import GoQueueError
from goqueue.model.runs import pairs
from goqueue.observe.trace import Place
from goqueue.observe.trace_event import TraceEvent, runs_of, split_place
from goqueue.observe.trace_files import Budget
from goqueue.wire.batch import FrameRun
from goqueue.wire.frame import HEADER_SIZE

_PIECE_BYTES = 512 << 10
"""Searched at a stretch: no other thread runs meanwhile."""
_CLOSE = 16
"""Ranges that lie no further apart are read as one: to read a few messages more costs less than to read twice."""
_MOST_TOGETHER = 10_000
"""Offsets of ranges that are read as one: what was published last is looked through first."""
_Range = tuple[str, int, int]
"""A place, the first offset there, and the end behind the last."""


class MessageSearch:
    def __init__(self, host: Host, budget: Budget) -> None:
        self._host = host
        self._budget = budget

    async def holding(self, needle: bytes, published: Iterable[TraceEvent]) -> AsyncIterator[Place]:
        """Places of messages that have the bytes somewhere in them, among those that the events are of, or close by."""
        for place, first, end in await asyncio.to_thread(_ranges, published):
            topic, number = split_place(place)
            try:
                partition = self._host.topic(topic).partition(number)
            except GoQueueError:
                continue
            async for offset in self.in_range(partition, first, end, needle):
                yield Place(topic, number, offset)
            if self._budget.is_spent:
                return

    async def with_key(self, key: bytes, place: str, first: int, end: int) -> list[int]:
        """Offsets of the messages in a range that have this key."""
        topic, number = split_place(place)
        try:
            partition = self._host.topic(topic).partition(number)
        except GoQueueError:
            return []
        found = [offset async for offset in self._found(partition, first, end, lambda run: _offsets_with_key(run, key))]
        return sorted(found)

    def in_range(self, partition: Partition, first: int, end: int, needle: bytes) -> AsyncIterator[int]:
        """Offsets of messages that have the bytes somewhere in them."""
        pattern = re.compile(re.escape(needle))
        return self._found(partition, first, end, lambda run: _offsets_holding(run, pattern))

    async def _found(
        self, partition: Partition, first: int, end: int, offsets_in: Callable[[FrameRun], list[int]]
    ) -> AsyncIterator[int]:
        at = max(first, partition.log.start_offset)
        while at < end:
            try:
                run, following = await partition.read(at, _PIECE_BYTES, end - at, _limit(partition))
            except GoQueueError:
                return
            if run is None or not self._budget.take(len(run.frames)):
                return
            for offset in await asyncio.to_thread(offsets_in, run):
                yield offset
            at = following


def _limit(partition: Partition) -> int:
    """Also what a transaction has written that has not ended is looked through, though it need not be durable yet."""
    return partition.high_watermark if partition.producers.first_open is None else partition.log.end_offset


def _ranges(published: Iterable[TraceEvent]) -> list[_Range]:
    """Where the messages of the events lie, neighbours together, those with the latest event first."""
    by_place: dict[str, list[tuple[int, int, int]]] = {}
    for event in published:
        by_place.setdefault(event.place, []).extend(
            (first, end, event.at) for first, end in pairs(runs_of(event.offsets))
        )
    found: list[tuple[int, _Range]] = []
    for place, runs in by_place.items():
        runs.sort()
        start, stop, latest_ns = runs[0]
        for first, end, at_ns in runs[1:]:
            if first - stop <= _CLOSE and end - start <= _MOST_TOGETHER:
                stop, latest_ns = max(stop, end), max(latest_ns, at_ns)
            else:
                found.append((latest_ns, (place, start, stop)))
                start, stop, latest_ns = first, end, at_ns
        found.append((latest_ns, (place, start, stop)))
    found.sort(reverse=True)
    return [each for _, each in found]


def _offsets_holding(run: FrameRun, pattern: re.Pattern[bytes]) -> list[int]:
    """Of the frames that the pattern is found in."""
    found = [match.start() for match in pattern.finditer(run.frames)]
    if not found:
        return []
    places = np.unique(np.searchsorted(run.positions, np.array(found), side="right") - 1)
    offsets: list[int] = run.columns()["offset"][places].tolist()
    return offsets


def _offsets_with_key(run: FrameRun, key: bytes) -> list[int]:
    """Of the frames that have this key: those with one of its length are compared, all at once."""
    columns = run.columns()
    places = np.flatnonzero(columns["key_length"] == len(key))
    starts = run.positions[places].astype(np.int64) + HEADER_SIZE
    every_byte = np.frombuffer(run.frames, np.uint8)
    # A damaged header may promise more than there is.
    is_whole = starts + len(key) <= len(every_byte)
    places, starts = places[is_whole], starts[is_whole]
    same = (every_byte[starts[:, None] + np.arange(len(key))] == np.frombuffer(key, np.uint8)).all(axis=1)
    offsets: list[int] = columns["offset"][places[same]].tolist()
    return offsets
