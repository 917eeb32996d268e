"""Reads ranges of partitions, merged by timestamp, or follows them."""

from __future__ import annotations

import queue
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from threading import Event, Thread
from typing import Any

import msgspec
import numpy as np

from goqueue.cli.commands.consume.consume_range import OffsetRange
from goqueue.cli.commands.consume.message_filter import Filter
from goqueue.client.consumer.reader import Batch, Isolation, Record
from goqueue.client.sync import Client
from goqueue.model.errors import ClientClosed, CorruptData, GoQueueError
from goqueue.wire.batch import FrameRun, keep_frames
from goqueue.wire.frame import Flag

MOST_MERGED = 64
"""The most partitions merged. Each one's reader buffers several batches, so more partitions are read one after
another."""
_CHECK_EVERY_S = 0.2
_BATCHES_WAITING = 8
_FOREVER = float("inf")
Decode = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class RecordSlice:
    """Some messages, and the next offset of each partition after them."""

    records: Sequence[Record]
    positions: dict[int, int]


@dataclass(frozen=True, slots=True)
class RangeReader:
    """What to read, and how."""

    client: Client
    topic: str
    ranges: Sequence[OffsetRange]
    wanted: Filter
    """Used to skip messages that frame columns alone rule out; the caller filters the rest."""
    decode: Decode | None = None
    isolation: Isolation = "read_committed"

    def read_to_end(self) -> Iterator[RecordSlice]:
        """Read up to the end of each range, ordered by timestamp as far as each partition's order of offsets allows."""
        open_ranges = [each for each in self.ranges if each.start < each.end]
        if len(open_ranges) > MOST_MERGED:
            for each in open_ranges:
                yield from self._read_one(each)
        elif len(open_ranges) == 1:
            yield from self._read_one(open_ranges[0])
        elif open_ranges:
            yield from self._read_merged(open_ranges)

    def follow(self, stop: Event) -> Iterator[RecordSlice]:
        """Read messages as they come, until ``stop`` is set."""
        arrived: queue.Queue[Batch | GoQueueError] = queue.Queue(_BATCHES_WAITING)
        done = Event()

        def follow(range: OffsetRange) -> None:
            try:
                for batch in self._batches(range, follow=True):
                    if not _put(arrived, batch, done):
                        break
            except ClientClosed:
                # Closing the client ends readers that wait for messages.
                pass
            except GoQueueError as error:
                _put(arrived, error, done)

        for each in self.ranges:
            Thread(target=follow, args=(each,), daemon=True).start()
        try:
            while not stop.is_set():
                try:
                    batch = arrived.get(timeout=_CHECK_EVERY_S)
                except queue.Empty:
                    continue
                if isinstance(batch, GoQueueError):
                    raise batch
                records, damage = self._decode(batch, None)
                yield RecordSlice(records, {batch.partition: _next_offset(batch, records, damage)})
                if damage is not None:
                    raise damage
        finally:
            done.set()

    def _batches(self, range: OffsetRange, *, follow: bool = False) -> Generator[Batch, None, None]:
        return self.client.read_batches(
            self.topic, range.partition, range.start, follow=follow, isolation=self.isolation
        )

    def _read_one(self, range: OffsetRange) -> Iterator[RecordSlice]:
        batches = self._batches(range)
        for batch in batches:
            records, damage = self._decode(batch, range.end)
            yield RecordSlice(records, {range.partition: min(_next_offset(batch, records, damage), range.end)})
            if damage is not None:
                raise damage
            if batch.next_offset >= range.end:
                break
        batches.close()

    def _read_merged(self, ranges: Sequence[OffsetRange]) -> Iterator[RecordSlice]:
        partitions = [_PartitionBuffer(self, range) for range in ranges]
        while True:
            for partition in partitions:
                partition.fill()
            # All partitions have delivered everything up to this timestamp.
            horizon = min((partition.horizon for partition in partitions), default=_FOREVER)
            taken = [partition.take(horizon) for partition in partitions]
            positions = {partition.range.partition: partition.position for partition in partitions}
            if sum(map(bool, taken)) > 1:
                pairs = [pair for part in taken for pair in part]
                pairs.sort(key=_sort_key)
                yield RecordSlice([record for _, record in pairs], positions)
            elif any(taken) or horizon == _FOREVER:
                yield RecordSlice([record for part in taken for _, record in part], positions)
            for partition in partitions:
                if partition.damage is not None and partition.is_empty:
                    raise partition.damage
            if horizon == _FOREVER:
                return

    def _decode(self, batch: Batch, end: int | None) -> tuple[list[Record], CorruptData | None]:
        """Records of a batch that may match, up to a damaged one, whose error is returned."""
        run = _prefilter(batch.run, self.wanted, end)
        records: list[Record] = []
        if run is None:
            return records, None
        try:
            # Records decoded before the damage stay in the list.
            records.extend(msgspec.structs.replace(batch, run=run).records(self.decode))
        except CorruptData as error:
            return records, error
        return records, None


@dataclass(slots=True)
class _PartitionBuffer:
    """Records of a partition that were read and not handed on yet."""

    reader: RangeReader
    range: OffsetRange
    position: int = -1
    damage: CorruptData | None = None
    _batches: Generator[Batch, None, None] | None = None
    _records: list[Record] = field(default_factory=list)
    _instants: list[int] = field(default_factory=list)
    """The running maximum of timestamps up to each record: the order of offsets takes precedence over timestamps."""
    _latest: int = 0
    _behind: int = 0
    _is_over: bool = False

    def __post_init__(self) -> None:
        self.position = self._behind = self.range.start
        self._batches = self.reader._batches(self.range)

    @property
    def is_empty(self) -> bool:
        return not self._records

    @property
    def horizon(self) -> float:
        """No later record of this partition sorts before this timestamp."""
        if self._is_over or not self._instants:
            return _FOREVER
        return self._instants[-1]

    def fill(self) -> None:
        """Read the next non-empty batch, if no records are left."""
        while not self._records and not self._is_over and self._batches is not None:
            batch = next(self._batches, None)
            if batch is None:
                self._is_over = True
                break
            self._records, self.damage = self.reader._decode(batch, self.range.end)
            self._behind = min(_next_offset(batch, self._records, self.damage), self.range.end)
            self._is_over = self.damage is not None or batch.next_offset >= self.range.end
            stamps = (each.timestamp_ns for each in self._records)
            self._instants = list(accumulate(stamps, max, initial=self._latest))[1:]
            self._latest = self._instants[-1] if self._instants else self._latest
        if self._is_over and self._batches is not None:
            self._batches.close()
            self._batches = None
        if not self._records:
            self.position = self._behind

    def take(self, horizon: float) -> list[tuple[int, Record]]:
        count = bisect_right(self._instants, horizon)
        taken = list(zip(self._instants[:count], self._records[:count], strict=True))
        self._records, self._instants = self._records[count:], self._instants[count:]
        self.position = self._records[0].offset if self._records else self._behind
        return taken


def _put(arrived: queue.Queue[Batch | GoQueueError], item: Batch | GoQueueError, done: Event) -> bool:
    """Put an item, waiting for room; False if the consumer has ended."""
    while not done.is_set():
        try:
            arrived.put(item, timeout=_CHECK_EVERY_S)
            return True
        except queue.Full:
            continue
    return False


def _sort_key(pair: tuple[int, Record]) -> int:
    return pair[0]


def _next_offset(batch: Batch, records: Sequence[Record], damage: CorruptData | None) -> int:
    if damage is None:
        return batch.next_offset
    return records[-1].offset + 1 if records else batch.run.offset_at(0)


def _prefilter(run: FrameRun, wanted: Filter, end: int | None) -> FrameRun | None:
    """The run without frames that the columns alone rule out; ``None`` if nothing is left."""
    if not len(run):
        return None
    cut = end is not None and run.offset_at(len(run) - 1) >= end
    if wanted.text and wanted.text not in bytes(run.frames) and not (run.flags() & np.uint8(Flag.COMPRESSED)).any():
        return None
    if not (cut or wanted.keys or wanted.key_prefix or wanted.priority is not None):
        return run
    columns = run.columns()
    keep = np.ones(len(run), np.bool_)
    if cut:
        keep &= columns["offset"] < end
    if wanted.priority is not None:
        keep &= columns["priority"] == wanted.priority
    if wanted.keys:
        keep &= np.isin(columns["key_length"], [len(key) for key in wanted.keys])
    if wanted.key_prefix:
        keep &= columns["key_length"] >= len(wanted.key_prefix)
    return keep_frames(run, keep) if keep.any() else None
