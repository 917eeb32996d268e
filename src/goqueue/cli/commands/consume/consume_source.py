"""Reads ranges of partitions: in the order of their timestamps, or as messages come, or what a group gets."""

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

from goqueue.cli.commands.consume.consume_range import Range
from goqueue.cli.commands.consume.message_filter import Filter
from goqueue.client.consumer.reader import Batch, Isolation, Record
from goqueue.client.sync import Client
from goqueue.model.errors import ClientClosed, CorruptData, GoQueueError
from goqueue.wire.batch import FrameRun, keep_frames
from goqueue.wire.frame import Flag

MOST_MERGED = 64
"""A reader of each partition holds some batches: with more of them, one partition is read behind the other."""
_LOOK_EVERY_S = 0.2
_BATCHES_WAITING = 8
_FOREVER = float("inf")
Decode = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class Piece:
    """Some messages, and where each partition goes on behind them."""

    records: Sequence[Record]
    positions: dict[int, int]


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read, and how."""

    client: Client
    topic: str
    ranges: Sequence[Range]
    wanted: Filter
    """Those that it can tell without decoding are left out; the rest is to be filtered by whoever gets it."""
    decode: Decode | None = None
    isolation: Isolation = "read_committed"

    def to_the_end(self) -> Iterator[Piece]:
        """Up to the end of each range: by timestamp, as far as the order of offsets in each partition allows."""
        open_ranges = [each for each in self.ranges if each.start < each.end]
        if len(open_ranges) > MOST_MERGED:
            for each in open_ranges:
                yield from self._one(each)
        elif len(open_ranges) == 1:
            yield from self._one(open_ranges[0])
        elif open_ranges:
            yield from self._merged(open_ranges)

    def following(self, stop: Event) -> Iterator[Piece]:
        """As messages come, until ``stop`` is set."""
        arrived: queue.Queue[Batch | GoQueueError] = queue.Queue(_BATCHES_WAITING)
        done = Event()

        def follow(place: Range) -> None:
            try:
                for batch in self._batches(place, follow=True):
                    if not _put(arrived, batch, done):
                        break
            except ClientClosed:
                # It ends readers that wait for messages.
                pass
            except GoQueueError as error:
                _put(arrived, error, done)

        for each in self.ranges:
            Thread(target=follow, args=(each,), daemon=True).start()
        try:
            while not stop.is_set():
                try:
                    batch = arrived.get(timeout=_LOOK_EVERY_S)
                except queue.Empty:
                    continue
                if isinstance(batch, GoQueueError):
                    raise batch
                records, damage = self._records(batch, None)
                yield Piece(records, {batch.partition: _behind(batch, records, damage)})
                if damage is not None:
                    raise damage
        finally:
            done.set()

    def _batches(self, place: Range, *, follow: bool = False) -> Generator[Batch, None, None]:
        return self.client.read_batches(
            self.topic, place.partition, place.start, follow=follow, isolation=self.isolation
        )

    def _one(self, place: Range) -> Iterator[Piece]:
        batches = self._batches(place)
        for batch in batches:
            records, damage = self._records(batch, place.end)
            yield Piece(records, {place.partition: min(_behind(batch, records, damage), place.end)})
            if damage is not None:
                raise damage
            if batch.next_offset >= place.end:
                break
        batches.close()

    def _merged(self, places: Sequence[Range]) -> Iterator[Piece]:
        lanes = [_Partition(self, place) for place in places]
        while True:
            for lane in lanes:
                lane.fill()
            # Up to here all of them have told what they have.
            horizon = min((lane.horizon for lane in lanes), default=_FOREVER)
            taken = [lane.take(horizon) for lane in lanes]
            positions = {lane.place.partition: lane.position for lane in lanes}
            if sum(map(bool, taken)) > 1:
                pairs = [pair for part in taken for pair in part]
                pairs.sort(key=_first)
                yield Piece([record for _, record in pairs], positions)
            elif any(taken) or horizon == _FOREVER:
                yield Piece([record for part in taken for _, record in part], positions)
            for lane in lanes:
                if lane.damage is not None and lane.is_empty:
                    raise lane.damage
            if horizon == _FOREVER:
                return

    def _records(self, batch: Batch, end: int | None) -> tuple[list[Record], CorruptData | None]:
        """Those of a batch that may be wanted; up to the first that is damaged, which is told."""
        run = _thinned(batch.run, self.wanted, end)
        records: list[Record] = []
        if run is None:
            return records, None
        try:
            # What was decoded before the damage stays in the list.
            records.extend(msgspec.structs.replace(batch, run=run).records(self.decode))
        except CorruptData as error:
            return records, error
        return records, None


@dataclass(slots=True)
class _Partition:
    """What is read of a partition, and not handed on yet."""

    reading: Reading
    place: Range
    position: int = -1
    damage: CorruptData | None = None
    _batches: Generator[Batch, None, None] | None = None
    _records: list[Record] = field(default_factory=list)
    _instants: list[int] = field(default_factory=list)
    """The latest timestamp up to each record: offsets go before timestamps."""
    _latest: int = 0
    _behind: int = 0
    _is_over: bool = False

    def __post_init__(self) -> None:
        self.position = self._behind = self.place.start
        self._batches = self.reading._batches(self.place)

    @property
    def is_empty(self) -> bool:
        return not self._records

    @property
    def horizon(self) -> float:
        """Nothing that comes later is older than this."""
        if self._is_over or not self._instants:
            return _FOREVER
        return self._instants[-1]

    def fill(self) -> None:
        """With the next batch that has something, if there is nothing left."""
        while not self._records and not self._is_over and self._batches is not None:
            batch = next(self._batches, None)
            if batch is None:
                self._is_over = True
                break
            self._records, self.damage = self.reading._records(batch, self.place.end)
            self._behind = min(_behind(batch, self._records, self.damage), self.place.end)
            self._is_over = self.damage is not None or batch.next_offset >= self.place.end
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
    """Wait for room, unless nobody takes anything any more."""
    while not done.is_set():
        try:
            arrived.put(item, timeout=_LOOK_EVERY_S)
            return True
        except queue.Full:
            continue
    return False


def _first(pair: tuple[int, Record]) -> int:
    return pair[0]


def _behind(batch: Batch, records: Sequence[Record], damage: CorruptData | None) -> int:
    if damage is None:
        return batch.next_offset
    return records[-1].offset + 1 if records else batch.run.offset_at(0)


def _thinned(run: FrameRun, wanted: Filter, end: int | None) -> FrameRun | None:
    """Without what the columns of the frames alone can tell to be unwanted; ``None`` if nothing is left."""
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
