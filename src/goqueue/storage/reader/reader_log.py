"""Read-only view of a partition's log: its offsets, and which of them are visible to readers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from goqueue.model.errors import CorruptData, StorageFailed
from goqueue.model.logging import get_logger
from goqueue.model.producer_sequences import Producers
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
"""The modification time of a folder is coarse: names listed within this time after it may be incomplete."""


class LogReader:
    """One partition, as of the last ``refresh``. Not thread-safe.

    Holds no file open. A refresh reads only what was added since the one before.
    """

    def __init__(self, folder: Path, points: Points | None = None) -> None:
        self.folder = folder
        self.start_offset = 0
        self.end_offset = 0
        """Log end: one past the last whole message, as a starting broker would find it."""
        self.stable_end = 0
        """Last stable offset: no transaction is open below it, and all below that was not aborted is visible."""
        self.size_bytes = 0
        self._points = points or points_for(folder)
        self._point: RecoveryPoint | None = None
        self._listing = Listing([], None)
        self._listed: tuple[int, int] = (0, 0)
        """Modification time of the folder when its names were listed, and the time of listing."""
        self._indexed: dict[int, Indexed] = {}
        self._seen: object = None
        self._file: Signature | None = None
        """Signature of the producer file when it was last read."""
        self._replay = ProducerReplay(Producers(), 0)
        self._replayed_to: int | None = None
        self.refresh()

    def refresh(self) -> None:
        """Update the view."""
        self._with_retries(self._refresh)

    def _with_retries(self, work: Callable[[], T]) -> T:
        """Run ``work`` again if files vanish meanwhile, which is no error: other files replace them."""
        for _ in range(MOST_LOOKS):
            try:
                return work()
            except Vanished as error:
                self._listed = (0, 0)
                self._seen = None
                reason = error
        raise StorageFailed(f"{self.folder} changes faster than it can be read: {reason}") from reason

    def _refresh(self) -> None:
        # The order matters: segments are listed last, so they contain everything that the first two files refer to.
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
            # Offsets confirmed by a recovery point are not assigned again, even if their messages are lost.
            end = max(end, self.start_offset, point.base + point.count if point else 0)
        if self._replayed_to is not None and end < self._replayed_to:
            # The log was truncated: the collected transaction state is invalid.
            self._replayed_to = None
        self._update_transactions(producers, end)
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
        """One past the offset of the last whole frame, and the number of bytes up to it."""
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

    def _update_transactions(self, producers: Signature | None, end: int) -> None:
        if producers != self._file or self._replayed_to is None:
            self._load_initial_state(producers, end)
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
            # Compaction may have removed markers whose outcome is only in the new file.
            raise Vanished(f"{FILE_NAME} in {self.folder}")
        self._replayed_to = end
        state.close_below(self.start_offset)
        # Sequence numbers of producers without an open transaction are not needed here.
        state.forget(_ALWAYS_NS, 0)
        if self._point is not None:
            # Compacted segments hold no aborted messages any more.
            state.drop_below(min(self._point.cleaned_to, end))

    def _load_initial_state(self, producers: Signature | None, end: int) -> None:
        """Initialize transaction state from the producer file, unless newer state is known."""
        kept, state = self._load() if producers is not None else (None, Producers())
        self._file = producers
        if kept is not None and kept.as_of > end:
            log.warning("the file of producers is ahead of the log; reading the log instead", folder=str(self.folder))
            kept, state = None, Producers()
        if self._replayed_to is not None and (kept is None or kept.as_of <= self._replayed_to):
            return
        self._replay = ProducerReplay(state, self.start_offset)
        self._replayed_to = first_stamp(self._point) if kept is None else kept.as_of

    def _load(self) -> tuple[ProducersFile | None, Producers]:
        """The producer file and the state in it; ``None`` and an empty state if it is missing or damaged."""
        try:
            payload = read_whole(self.folder / FILE_NAME)
            if payload is not None:
                kept = msgspec.msgpack.decode(payload, type=ProducersFile)
                return kept, kept.state()
        except (CorruptData, ValueError) as error:
            log.warning(
                "the file of producers is damaged; reading the log instead", folder=str(self.folder), reason=str(error)
            )
        return None, Producers()

    def aborted(self, low: int, high: int) -> list[tuple[int, int]]:
        """Runs of aborted offsets from ``low`` up to, but not including, ``high``."""
        runs = self._replay.state.aborted.runs()
        return [(max(low, first), min(high, end)) for first, end in runs if first < high and end > low]

    def offset_at(self, timestamp_ns: int) -> int:
        """Offset of the first message with a timestamp at or after an instant; ``stable_end`` if there is none."""
        return self._with_retries(lambda: self._offset_at(timestamp_ns))

    def _offset_at(self, timestamp_ns: int) -> int:
        self._list()
        for place in self._listing.between(self.start_offset, self.stable_end):
            view = self._view(place)
            at = view.place_at_time(timestamp_ns, view.place_of(self.start_offset))
            if at is not None:
                return min(view.offset_of(at), self.stable_end)
        return self.stable_end


def _growth(place: SegmentPlace) -> tuple[int, int, int]:
    """Values that change when a segment grows."""
    log_file, index = place.stat(".log"), place.stat(".index")
    if log_file is None:
        raise Vanished(str(place))
    return log_file.st_ino, log_file.st_size, index.st_size if index else -1
