"""What one partition holds, by its files alone: from where to where, and what of it readers see."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from goqueue.model.errors import CorruptData, StorageFailed
from goqueue.model.logging import get_logger
from goqueue.model.producers import Producers
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.log.producer_replay import FILE_NAME, ProducerReplay, ProducersFile, first_stamp
from goqueue.storage.reader.reader_files import (
    Listing,
    Points,
    SegmentPlace,
    Signature,
    Vanished,
    list_segments,
    points_for,
    read_whole,
    signature,
)
from goqueue.storage.reader.reader_runs import MOST_LOOKS, RUN_BYTES, every_run, start_of
from goqueue.storage.reader.reader_segment import Indexed, SegmentView
from goqueue.wire.frame import Flag

log = get_logger(__name__)

T = TypeVar("T")

_OF_TRANSACTIONS = np.uint8(Flag.TRANSACTIONAL | Flag.CONTROL)
_ALWAYS_NS = 1 << 62
_FRESH_NS = 2 * 10**9
"""A folder's time of change is coarse: names that were read so soon after it may not be all."""


class LogReader:
    """One partition, as of the last ``refresh``. Not for use from several threads at once.

    Holds no file open. A refresh looks only at what is new since the one before.
    """

    def __init__(self, folder: Path, points: Points | None = None) -> None:
        self.folder = folder
        self.start_offset = 0
        self.end_offset = 0
        """Behind the last whole message. A broker that starts would find the same."""
        self.stable_end = 0
        """No transaction is open below this: readers see what lies below and was not aborted."""
        self.size_bytes = 0
        self._points = points or points_for(folder)
        self._point: RecoveryPoint | None = None
        self._listing = Listing([], None)
        self._listed: tuple[int, int] = (0, 0)
        """When the folder had been changed last when its names were read, and when that was."""
        self._indexed: dict[int, Indexed] = {}
        self._seen: object = None
        self._file: Signature | None = None
        """Of the file of producers, when it was looked at last."""
        self._replay = ProducerReplay(Producers(), 0)
        self._replayed_to: int | None = None
        self.refresh()

    # Looking at what is new

    def refresh(self) -> None:
        """Look again."""
        self._patiently(self._refresh)

    def _patiently(self, work: Callable[[], T]) -> T:
        """Files that vanish while they are looked at are no error: others tell of the same."""
        for _ in range(MOST_LOOKS):
            try:
                return work()
            except Vanished as error:
                self._listed = (0, 0)
                self._seen = None
                reason = error
        raise StorageFailed(f"{self.folder} changes faster than it can be read: {reason}") from reason

    def _refresh(self) -> None:
        # In this order: what the first two tell of is in the segments that are found afterwards.
        point = self._points.of(self.folder)
        producers = signature(self.folder / FILE_NAME)
        self._list()
        seen = (point, producers, self._listing, *map(_growth, self._listing.segments[-1:]))
        if seen == self._seen:
            return
        self._point = point
        end, size = self._find_end()
        self.start_offset = start_of(self._listing, point)
        if not self._listing.segments or point is not None:
            # What a point has seen used is not given out again, be it lost.
            end = max(end, self.start_offset, point.base + point.count if point else 0)
        if self._replayed_to is not None and end < self._replayed_to:
            # Taken back: what was learnt of it is void.
            self._replayed_to = None
        self._follow(producers, end)
        self.end_offset, self.size_bytes = end, size
        first_open = self._replay.state.first_open
        self.stable_end = end if first_open is None else min(end, first_open)
        self._seen = seen

    def _list(self) -> None:
        try:
            changed_ns = self.folder.stat().st_mtime_ns
        except FileNotFoundError:
            changed_ns = 0
        if changed_ns == self._listed[0] and self._listed[1] - changed_ns > _FRESH_NS:
            return
        listed_ns = time.time_ns()
        self._listing = list_segments(self.folder)
        self._listed = (changed_ns, listed_ns)
        self._indexed = {
            each.base: self._indexed[each.base] for each in self._listing.segments if each.base in self._indexed
        }

    def _find_end(self) -> tuple[int, int]:
        """Behind the last whole frame, and how many bytes the frames have."""
        listing = self._listing
        end, size = listing.last_base or 0, sum(each.size for each in listing.segments[:-1])
        for last in listing.segments[-1:]:
            view = self._view(last)
            end, size = max(end, view.end_offset), size + view.size
        return end, size

    def _view(self, place: SegmentPlace) -> SegmentView:
        view = SegmentView(place, self._point, self._indexed.get(place.base))
        if not view.is_sealed:
            self._indexed[place.base] = view.indexed()
        return view

    # Transactions

    def _follow(self, producers: Signature | None, end: int) -> None:
        if producers != self._file or self._replayed_to is None:
            self._begin(producers, end)
        assert self._replayed_to is not None
        replay = self._replay
        replay.start_offset = self.start_offset
        state = replay.state
        state.close_below(self.start_offset)
        first = max(self._replayed_to, self._listing.first_base() or 0)
        self._replayed_to = None
        for run in every_run(self.folder, first, end, lambda *_: self._point, RUN_BYTES):
            if replay.is_inside_a_batch or (run.flags() & _OF_TRANSACTIONS).any():
                replay.follow(run, run.columns())
        if signature(self.folder / FILE_NAME) != producers:
            # Compaction may have removed markers that only the new file tells of.
            raise Vanished(f"{FILE_NAME} in {self.folder}")
        self._replayed_to = end
        state.close_below(self.start_offset)
        # Where those are in their sequences who have nothing open is of no interest here.
        state.forget(_ALWAYS_NS, 0)
        if self._point is not None:
            # What compaction has seen holds nothing any more that was aborted.
            state.drop_below(min(self._point.cleaned_to, end))

    def _begin(self, producers: Signature | None, end: int) -> None:
        """Begin with what the file tells, unless more is known already."""
        kept = self._load() if producers is not None else None
        self._file = producers
        if kept is not None and kept.as_of > end:
            log.warning(
                "the file of producers tells of more than the log holds; reading the log", folder=str(self.folder)
            )
            kept = None
        if self._replayed_to is not None and (kept is None or kept.as_of <= self._replayed_to):
            return
        state = Producers()
        try:
            if kept is not None:
                state = kept.state()
        except ValueError as error:
            log.warning(
                "the file of producers is of no use; reading the log", folder=str(self.folder), reason=str(error)
            )
            kept = None
        self._replay = ProducerReplay(state, self.start_offset)
        self._replayed_to = first_stamp(self._point) if kept is None else kept.as_of

    def _load(self) -> ProducersFile | None:
        try:
            payload = read_whole(self.folder / FILE_NAME)
            return None if payload is None else msgspec.msgpack.decode(payload, type=ProducersFile)
        except (CorruptData, msgspec.MsgspecError) as error:
            log.warning(
                "the file of producers is of no use; reading the log", folder=str(self.folder), reason=str(error)
            )
            return None

    def aborted(self, low: int, high: int) -> list[tuple[int, int]]:
        """Runs of offsets from ``low`` to before ``high`` that nobody ever sees."""
        runs = self._replay.state.aborted.runs()
        return [(max(low, first), min(high, end)) for first, end in runs if first < high and end > low]

    # Looking up

    def offset_at(self, timestamp_ns: int) -> int:
        """The offset of the first message whose timestamp is at or after an instant; the stable end if none is."""
        return self._patiently(lambda: self._offset_at(timestamp_ns))

    def _offset_at(self, timestamp_ns: int) -> int:
        self._list()
        for place in self._listing.between(self.start_offset, self.stable_end):
            view = self._view(place)
            at = view.place_at_time(timestamp_ns, view.place_of(self.start_offset))
            if at is not None:
                return min(view.offset_of(at), self.stable_end)
        return self.stable_end


def _growth(place: SegmentPlace) -> tuple[int, int, int]:
    """What changes when a segment grows."""
    log_file, index = place.stat(".log"), place.stat(".index")
    if log_file is None:
        raise Vanished(str(place))
    return log_file.st_ino, log_file.st_size, index.st_size if index else -1
