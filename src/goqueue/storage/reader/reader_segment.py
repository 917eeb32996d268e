"""Read-only view of a segment: positions of its frames, by its index or by scanning the log file."""

from __future__ import annotations

import os
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from goqueue.storage.files.checkpoint import RecoveryPoint, durable_bytes
from goqueue.storage.files.files import OsFile
from goqueue.storage.log import index_file
from goqueue.storage.log.frame_slice import Known, Within, as_placed
from goqueue.storage.log.lost import lost_ranges
from goqueue.storage.log.scan import FrameScanner, Scan
from goqueue.storage.reader.reader_files import SegmentPlace, Vanished
from goqueue.wire.batch import FrameRun, header_columns
from goqueue.wire.frame import HEADER_SIZE, MAGIC, VERSION

_MAGIC_NUMBER = int.from_bytes(MAGIC)
_CHECKED_FRAMES = 32_768
_CHECKED_BYTES = 4 << 20
_LOOK_BYTES = 256 << 10
_NO_TIMES = np.empty(0, index_file.TIME_ENTRY)


@dataclass(frozen=True, slots=True)
class Indexed:
    """Number of entries of an index without a footer that were verified."""

    inode: int
    count: int
    end: int


class SegmentView:
    """Frames by index (0, 1, …): first those confirmed by the index file, then those found by a scan."""

    def __init__(self, place: SegmentPlace, point: RecoveryPoint | None = None, known: Indexed | None = None) -> None:
        """Open the segment; raises ``Vanished``. ``known`` is the result of an earlier view of the same segment."""
        self.place = place
        self.base = place.base
        self._point = point if point is not None and point.base == place.base else None
        self._durable_to = durable_bytes(place.base, point)
        self._log = place.open(".log")
        self._index = place.find(".index")
        self._scan: Scan | None = None
        self.lost: list[tuple[int, int]] = []
        """Runs of offsets (first, end) that a start would find damaged and record as lost."""
        self._scan_positions = self._scan_ends = np.empty(0, np.uint32)
        self.log_size = self._log.size()
        count = None if self._index is None else index_file.indexed_count(self._index, self.log_size)
        self.is_sealed = count is not None
        self._indexed, self._indexed_end = count or 0, self.log_size if count else 0
        self._tells_offsets = (
            self._index is not None and self.is_sealed and index_file.tells_offsets(self._index, self._indexed)
        )
        self._is_dense = not self.is_sealed or (not self._tells_offsets and self._ends_as_dense())
        if not self.is_sealed:
            self._check_that_files_belong_together()
            self._find_frames(known)

    def _check_that_files_belong_together(self) -> None:
        """An index that does not match may belong to another log file, which replaced this one just now."""
        same = self.place.still_is(".log", self._log) and self.place.is_still_swapped()
        if self._index is not None:
            same = same and self.place.still_is(".index", self._index)
        if not same:
            raise Vanished(str(self.place))

    def _find_frames(self, known: Indexed | None) -> None:
        if known is not None and known.inode == self._inode() and known.end <= self.log_size:
            self._indexed, self._indexed_end = known.count, known.end
        if self._index is not None:
            self._accept_point(self._index)
            self._check_indexed(self._index)
        if self._indexed_end < self.log_size:
            self._scan_rest()

    def _accept_point(self, index: OsFile) -> None:
        """Accept the part below a recovery point: it was on disk, index included."""
        point = self._point
        if (
            point is not None
            and self._indexed < point.count
            and point.size <= self.log_size
            and index_file.begins_with(index, index_file.POSITION, point.count, point.index_checksum)
            # With frames of equal size, positions alone do not show that compaction has removed some of them.
            and index_file.said_offset(self._log, index, point.count - 1) == self.base + point.count - 1
        ):
            self._indexed, self._indexed_end = point.count, point.size

    def _check_indexed(self, index: OsFile) -> None:
        """Extend the verified part as long as index and frame headers agree and offsets are consecutive."""
        while True:
            positions = index_file.read_positions(index, self._indexed, _CHECKED_FRAMES).astype(np.int64)
            if not len(positions) or positions[0] != self._indexed_end:
                return
            rising = np.flatnonzero(np.diff(positions) < HEADER_SIZE)
            positions = positions[: rising[0] + 1] if len(rising) else positions
            within = min(self.log_size - HEADER_SIZE, int(positions[0]) + _CHECKED_BYTES)
            positions = positions[: np.searchsorted(positions, within, side="right")]
            if not len(positions):
                return
            start = int(positions[0])
            data = self._log.read(start, int(positions[-1]) - start + HEADER_SIZE)
            if len(data) < int(positions[-1]) - start + HEADER_SIZE:
                raise Vanished(f"{self.place} was cut")
            agreed = self._matching_count(data, positions)
            if agreed == 0:
                return
            if agreed < len(positions):
                self._indexed, self._indexed_end = self._indexed + agreed, int(positions[agreed])
                return
            last = header_columns(data, (positions[-1:] - start).astype(np.uint32))
            self._indexed += agreed
            self._indexed_end = int(positions[-1]) + int(_sizes(last)[0])

    def _matching_count(self, data: bytes, positions: NDArray[np.int64]) -> int:
        """Number of frames at these positions that match their index entries."""
        columns = header_columns(data, (positions - positions[0]).astype(np.uint32))
        ends = positions + _sizes(columns)
        good = (
            (columns["magic"] == _MAGIC_NUMBER)
            & (columns["version"] == VERSION)
            & (columns["flags"] == columns["flags_again"])
            & (columns["offset"] == np.arange(len(positions)) + (self.base + self._indexed))
            & (ends <= self.log_size)
        )
        good[:-1] &= ends[:-1] == positions[1:]
        return len(good) if good.all() else int(good.argmin())

    def _scan_rest(self) -> None:
        """Scan the part without index entries. Torn frames are left out, and so is an incomplete batch."""
        scanner = FrameScanner(self._log, dense=self.place.is_last, below=self.place.below)
        found = scanner.scan(self._indexed_end, self.base + self._indexed, durable_to=self._durable_to)
        found.drop_open_batch()
        self._scan = found
        self.lost = lost_ranges(found, self.log_size, self.place.below, self._durable_to)
        self._scan_positions = found.position_array()
        ends = np.append(self._scan_positions[1:], np.uint32(found.end))[: len(self._scan_positions)]
        for damage in found.damage:
            at = int(np.searchsorted(self._scan_positions, damage.start)) - 1
            if at >= 0:
                ends[at] = min(int(ends[at]), damage.start)
        self._scan_ends = ends

    @property
    def count(self) -> int:
        return self._indexed + len(self._scan_positions)

    @property
    def size(self) -> int:
        """End of the last whole frame."""
        return int(self._scan_ends[-1]) if len(self._scan_ends) else self._indexed_end

    @property
    def end_offset(self) -> int:
        end = self.offset_of(self.count - 1) + 1 if self.count else self.base
        return max([end, *(lost for _, lost in self.lost)])

    def indexed(self) -> Indexed:
        return Indexed(self._inode(), self._indexed, self._indexed_end)

    def offset_of(self, place: int) -> int:
        known = self._known_offsets(place, 1)
        if isinstance(known, int):
            return known
        if isinstance(known, Within):
            assert self._index is not None
            return index_file.said_offset(self._log, self._index, place)
        return int(known[0])

    def _known_offsets(self, place: int, count: int) -> Known:
        """Offsets of some frames without reading these; all of them must be in the index, or none."""
        if place >= self._indexed:
            assert self._scan is not None
            found = self._scan.offsets[place - self._indexed : place - self._indexed + count]
            return np.array(found, np.int64)
        if self._is_dense:
            return self.base + place
        if self._tells_offsets and self._index is not None:
            return index_file.read_offsets(self._index, self._indexed, place, count)
        return Within(self.base + place, self.place.below - (self._indexed - place - count))

    def _ends_as_dense(self) -> bool:
        """Whether a closed segment has consecutive offsets, if its index, of an earlier version, holds none."""
        if self._index is None or not self._indexed:
            return True
        said_end = index_file.said_offset(self._log, self._index, self._indexed - 1) + 1
        return self._indexed in (self.place.below - self.base, said_end - self.base)

    def place_of(self, offset: int) -> int:
        """Index of the first frame at or after ``offset``; the frame count if there is none."""
        high = min(self.count, max(0, offset - self.base))
        # Usually no offset is missing.
        if high == 0 or self.offset_of(high - 1) == offset - 1:
            return high
        return bisect_left(range(high), offset, key=self.offset_of)

    def positions(self, first: int, until: int) -> NDArray[np.uint32]:
        """Positions of frames; all of them must be in the index, or none."""
        if first >= self._indexed or self._index is None:
            return self._scan_positions[first - self._indexed : until - self._indexed]
        wanted = min(until, self._indexed) - first
        found = index_file.read_positions(self._index, first, wanted)
        if len(found) < wanted:
            raise Vanished(f"the index of {self.place} was cut")
        return found

    def position_of(self, place: int) -> int:
        return int(self.positions(place, place + 1)[0]) if place < self.count else self.size

    def load(self, first: int, until: int, max_bytes: int) -> FrameRun:
        """Frames from index ``first`` to before ``until``: at least one, otherwise at most ``max_bytes``."""
        usual = max(HEADER_SIZE, self.size // self.count)
        until = min(until, first + max(1, max_bytes // usual + 1))
        starts = self.positions(first, until)
        behind = first + len(starts)
        if first >= self._indexed:
            ends = self._scan_ends[first - self._indexed : behind - self._indexed]
            gaps = np.flatnonzero(ends[:-1] != starts[1:])
            if len(gaps):
                starts, ends = starts[: gaps[0] + 1], ends[: gaps[0] + 1]
        else:
            end = self._indexed_end if behind == self._indexed else self.position_of(behind)
            ends = np.append(starts[1:], np.uint32(end))
        start = int(starts[0])
        fitting = max(1, int(np.searchsorted(ends, start + max_bytes, side="right")))
        size = int(ends[fitting - 1]) - start
        data = self._log.read(start, size)
        if len(data) < size:
            raise Vanished(f"{self.place} was cut")
        run = FrameRun(memoryview(data), starts[:fitting] - np.uint32(start))
        return as_placed(run, self._known_offsets(first, fitting))

    def place_at_time(self, timestamp_ns: int, first: int) -> int | None:
        """Index of the first frame from ``first`` on whose timestamp is at or after an instant."""
        entries = self._times()
        at = int(np.searchsorted(entries["max_timestamp"], timestamp_ns, side="left"))
        if self.is_sealed and len(entries) and at == len(entries):
            return None
        if at:
            first = max(first, self.place_of(int(entries[at - 1]["last_offset"]) + 1))
        look_bytes = _LOOK_BYTES
        while first < self.count:
            run = self.load(first, self.count, look_bytes)
            late = np.flatnonzero(run.columns()["timestamp"] >= timestamp_ns)
            if len(late):
                return first + int(late[0])
            first += len(run)
            look_bytes = min(2 * look_bytes, _CHECKED_BYTES)
        return None

    def _times(self) -> NDArray[np.void]:
        """Verified entries of the time index."""
        file = self.place.find(".timeindex")
        if file is None:
            return _NO_TIMES
        if self.is_sealed:
            count = index_file.verified_count(
                file, index_file.TIME_MAGIC, index_file.TIME_ENTRY.itemsize, self.log_size
            )
            return index_file.read_entries(file, index_file.TIME_ENTRY, count or 0)
        point = self._point
        if point is None or self._indexed < point.count:
            return _NO_TIMES
        is_right = index_file.begins_with(file, index_file.TIME_ENTRY, point.time_entries, point.time_checksum)
        return index_file.read_entries(file, index_file.TIME_ENTRY, point.time_entries) if is_right else _NO_TIMES

    def _inode(self) -> int:
        return os.fstat(self._log.fd).st_ino


def _sizes(columns: NDArray[np.void]) -> NDArray[np.int64]:
    sizes: NDArray[np.int64] = (
        columns["key_length"].astype(np.int64) + columns["value_length"] + columns["headers_length"] + HEADER_SIZE
    )
    return sizes
