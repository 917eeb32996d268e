"""One file of a log, with its index files.

Invariants: the file holds whole frames, one behind the other, and nothing else; offsets strictly increase, and are
consecutive in the active segment. A sealed segment never changes; compaction replaces it by another object.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from goqueue.model.errors import StorageFailed
from goqueue.model.logging import get_logger
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.log.frame_slice import Known, Offsets, Slice, Within
from goqueue.storage.log.index_file import (
    GAPS_MAGIC,
    INDEX_MAGIC,
    POSITION,
    TIME_ENTRY,
    end_with,
    footer,
    has_gaps,
    indexed_count,
    offset_bytes,
    one_position,
    read_entries,
    read_offsets,
    read_positions,
    said_offset,
    tells_offsets,
)
from goqueue.storage.log.lane_index import LaneTally
from goqueue.storage.log.lost import Lost, record_lost
from goqueue.storage.log.open_files import SUFFIXES, OpenFiles, SegmentFiles
from goqueue.storage.log.repair import make_whole
from goqueue.storage.log.scan import MOST_OFFSETS, FrameScanner, Scan
from goqueue.storage.log.segment_lanes import SegmentLanes
from goqueue.storage.log.segment_times import SegmentTimes
from goqueue.wire.batch import CheckedBatch, header_columns
from goqueue.wire.frame import HEADER_SIZE

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KeptPart:
    """The first ``place`` frames of a segment, which take ``size`` bytes, and what its indexes tell of these."""

    place: int
    size: int
    index_checksum: int
    offsets: Offsets | None
    """If any are left out, and the index tells which."""
    time_entries: int
    time_checksum: int
    max_timestamp_ns: int
    uncovered_bytes: int
    """Behind the last of these entries of the time index."""
    lanes: LaneTally


class Segment:
    """A segment, active until ``seal`` is called. Not for use from threads, ``Slice.load`` excepted."""

    def __init__(
        self,
        open_files: OpenFiles,
        folder: Path,
        base: int,
        now_ns: Callable[[], int],
        *,
        sealed: bool = False,
        below: int = MOST_OFFSETS,
        lost: Lost | None = None,
    ) -> None:
        self._open_files = open_files
        self._now_ns = now_ns
        self._handles: SegmentFiles | None = None
        self._is_loaded = not sealed
        name = folder / f"{base:020d}"
        self.log_path, self.index_path, times_path, lanes_path = (name.with_suffix(each) for each in SUFFIXES)
        self.times = SegmentTimes(times_path)
        self.lanes = SegmentLanes(open_files, lanes_path, known=not sealed)
        self.base = base
        self.below = below
        """The base of the next segment, once there is one."""
        self._lost = lost
        """Records the offsets of damaged frames that are removed."""
        self.sealed = sealed
        self.size = open_files.disk.size(self.log_path) if sealed else 0
        self.count = 0
        self.index_checksum = 0
        self._is_dense = not sealed
        """Whether no offset is left out before its last frame."""
        self._offsets: Offsets | None = None
        """Of all frames, if this very object has found that some are left out."""

    # Files

    def files(self) -> SegmentFiles:
        """The open files; they may be closed again by the next call on any other segment."""
        if self._handles is None:
            disk = self._open_files.disk
            self._handles = SegmentFiles(
                disk.open(self.log_path, create=not self.sealed),
                disk.open(self.index_path, create=True),
                disk.open(self.times.path, create=True),
                disk.open(self.lanes.path, create=True),
            )
            self._open_files.opened(self)
        else:
            self._open_files.used(self)
        return self._handles

    def release(self) -> None:
        self._handles = None

    def close(self) -> None:
        self._open_files.closed(self)
        self._open_files.lanes_dropped(self.lanes)

    def paths(self) -> tuple[Path, ...]:
        return self.log_path, self.index_path, self.times.path, self.lanes.path

    # Writing

    def append(self, batch: CheckedBatch, append_time_ns: int, index_interval_bytes: int) -> None:
        """Write stamped frames. On an ``OSError`` the segment is as it was before; ``StorageFailed`` says it is not."""
        files = self.files()
        count = len(batch.positions)
        if count > 1:
            positions = (batch.positions + np.uint32(self.size)).astype(POSITION).tobytes()
        else:
            positions = one_position(self.size)
        lanes = batch.lanes
        try:
            files.log.write(self.size, batch.frames)
            files.positions.write(self.count * POSITION.itemsize, positions)
            if type(lanes) is not int or lanes != self.lanes.last:
                self.lanes.write(files.lanes, lanes, self.count)
        except OSError as error:
            self._undo(files, error)
            raise
        self.size += len(batch.frames)
        self.count += count
        self.index_checksum = crc32c(positions, self.index_checksum)
        last_offset = self.base + self.count - 1
        self.times.appended(
            files.times, batch.max_timestamp_ns, append_time_ns, len(batch.frames), last_offset, index_interval_bytes
        )

    def _undo(self, files: SegmentFiles, error: OSError) -> None:
        try:
            if files.log.size() > self.size:
                files.log.truncate(self.size)
                # Else a crash may keep what is written next and lose this cut: refused frames would follow it.
                files.log.sync()
            files.positions.truncate(self.count * POSITION.itemsize)
            self.lanes.undo(files.lanes)
        except OSError as second:
            raise StorageFailed(f"{self.log_path} could not be restored after {error}: {second}") from second

    def seal(self) -> None:
        """No more appends. The footers make the index files trusted; losing them costs a scan, no data."""
        self.sealed = True
        try:
            last_offset = self.offset_of(self.count - 1) if self.count else self.base - 1
            self.times.complete(self.files().times, last_offset)
            self._write_footers()
        except OSError as error:
            log.warning("index footers not written, they will be rebuilt", segment=str(self.log_path), error=str(error))

    def _write_footers(self) -> None:
        files = self.files()
        magic, offsets = INDEX_MAGIC, b""
        if self._offsets is not None:
            magic, offsets = GAPS_MAGIC, offset_bytes(self._offsets)
        checksum = crc32c(offsets, self.index_checksum)
        end_with(
            files.positions, self.count * POSITION.itemsize, offsets + footer(magic, self.count, self.size, checksum)
        )
        self.times.write_footer(files.times, self.size)
        self.lanes.seal(files.lanes, self.count, self.size)

    # Indexes

    def restore(self, point: RecoveryPoint) -> None:
        """Be as the segment was when ``point`` was taken."""
        self.size, self.count = point.size, point.count
        self.index_checksum = point.index_checksum
        self.times.restore(point)
        self._is_dense, self._offsets = True, None
        self.lanes.restore(self.files().lanes, point.lane_entries)

    def install(self, scan: Scan, *, after: int = 0) -> None:
        """Take over what a scan found behind the first ``after`` frames, and write the indexes anew from there."""
        files = self.files()
        self.count = after
        positions = scan.position_array().astype(POSITION).tobytes()
        files.positions.truncate(after * POSITION.itemsize)
        files.positions.write(after * POSITION.itemsize, positions)
        self.index_checksum = crc32c(positions, self.index_checksum if after else 0)
        self.lanes.install(files.lanes, scan.lane_array(), after)
        self.count += len(scan.positions)
        self.size = scan.end
        offsets = np.append(np.arange(self.base, self.base + after), np.array(scan.offsets, np.int64))
        self._is_dense = not has_gaps(offsets, self.base)
        self._offsets = None if self._is_dense else offsets
        self.times.install(files.times, scan, self.size, self._now_ns(), anew=not after)

    def has_footer(self, log_size: int) -> bool:
        """Whether the index says that the segment was sealed when its log had this size."""
        return indexed_count(self.files().positions, log_size) is not None

    def load_indexes(self) -> None:
        """Learn what a sealed segment holds from its index files; rebuild them if they cannot be believed."""
        if self._is_loaded:
            return
        files = self.files()
        count = indexed_count(files.positions, self.size)
        if count is None or not self.times.load(files.times, self.size):
            self._rebuild()
        else:
            self.count = count
            # A footer of an earlier version says nothing of gaps, so the last frame is asked.
            self._is_dense = not tells_offsets(files.positions, count) and (
                not count or count in (self.below - self.base, self.said_offset(count - 1) - self.base + 1)
            )
        self._is_loaded = True

    def _rebuild(self) -> None:
        log.warning("index files missing or damaged, rebuilding them from the log", segment=str(self.log_path))
        # All of it was on the disk when it was closed.
        found = FrameScanner(self.files().log, dense=False, below=self.below).scan(0, self.base, durable_to=self.size)
        if self._lost is not None:
            record_lost(self._lost, found, self.size, self.below, self.size, self._now_ns())
        found = make_whole(self._open_files.disk, self.log_path, found, self.base, self.below)
        self.close()
        self.install(found)
        if not self.times.entries:
            self.times.last_append_ns = self._now_ns()
        self.times.complete(self.files().times, self.base + self.count - 1)
        self._write_footers()

    # Reading

    def summary(self) -> tuple[int, int]:
        """(largest timestamp, time of the last append), both in nanoseconds."""
        self.load_indexes()
        return self.times.max_timestamp_ns, self.times.last_append_ns

    def place_of(self, offset: int) -> int:
        """The place (0, 1, …) of the first frame at or after ``offset``; the count if there is none."""
        self.load_indexes()
        guess = offset - self.base
        if guess <= 0 or not self.count:
            return 0
        if self._is_dense:
            return min(guess, self.count)
        if guess < self.count and self.offset_of(guess) == offset:
            return guess
        return bisect_left(range(min(guess, self.count)), offset, key=self.offset_of)

    def offset_of(self, place: int) -> int:
        """The offset of the frame at ``place``."""
        known = self._known_offsets(place, 1)
        if isinstance(known, int):
            return known
        return self.said_offset(place) if isinstance(known, Within) else int(known[0])

    def position_of(self, place: int) -> int:
        """Where a frame begins in the file; where the last one ends for the place behind it."""
        if place >= self.count:
            return self.size
        return int(read_positions(self.files().positions, place, 1)[0])

    def said_offset(self, place: int) -> int:
        files = self.files()
        return said_offset(files.log, files.positions, place)

    def _known_offsets(self, place: int, count: int) -> Known:
        """What is known of the offsets of some frames without asking them."""
        self.load_indexes()
        if self._is_dense:
            return self.base + place
        if self._offsets is not None:
            return self._offsets[place : place + count]
        if tells_offsets(positions := self.files().positions, self.count):
            return read_offsets(positions, self.count, place, count)
        return Within(self.base + place, self.below - (self.count - place - count))

    def last_offset(self) -> int | None:
        self.load_indexes()
        return self.offset_of(self.count - 1) if self.count else None

    def locate(self, place: int, max_bytes: int, max_messages: int, end_place: int, end_offset: int = 0) -> Slice:
        """Frames from ``place`` up to ``end_place``: at least one, else no more than the bounds.

        ``end_offset`` is where to go on when the last frame of the segment is among them.
        """
        files = self.files()
        wanted = max(1, min(max_messages, end_place - place, max_bytes // HEADER_SIZE))
        positions = read_positions(files.positions, place, min(wanted + 1, self.count - place))
        if len(positions) > wanted:
            ends, positions = positions[1:], positions[:-1]
        else:
            ends = np.append(positions[1:], np.uint32(self.size))
        start = int(positions[0])
        fitting = max(1, int(np.searchsorted(ends, start + max_bytes, side="right")))
        positions = positions[:fitting] - np.uint32(start)
        behind = place + fitting
        if not self.sealed:
            end_offset = self.base + behind
        elif behind < self.count:
            end_offset = self.offset_of(behind)
        known = self._known_offsets(place, fitting)
        return Slice(files.log, start, int(ends[fitting - 1]) - start, positions, known, end_offset)

    def slice_at(self, place: int, edges: NDArray[np.int64], end_offset: int) -> Slice:
        """Frames from ``place`` on that begin at all but the last of these positions, at which the last one ends."""
        start = int(edges[0])
        known = self._known_offsets(place, len(edges) - 1)
        positions = (edges[:-1] - start).astype(np.uint32)
        return Slice(self.files().log, start, int(edges[-1]) - start, positions, known, end_offset)

    def place_at_time(self, timestamp_ns: int, from_offset: int) -> int | None:
        """The place of the first frame from ``from_offset`` on whose timestamp is at or after ``timestamp_ns``."""
        self.load_indexes()
        if self.times.max_timestamp_ns < timestamp_ns:
            return None
        entries = read_entries(self.files().times, TIME_ENTRY, self.times.entries)
        at = int(np.searchsorted(entries["max_timestamp"], timestamp_ns, side="left"))
        first = self.place_of(int(entries[at - 1]["last_offset"]) + 1) if at else 0
        first = max(first, self.place_of(from_offset))
        for last_offset in [*entries["last_offset"][at:].tolist(), MOST_OFFSETS]:
            until = self.place_of(last_offset + 1)
            if first < until:
                late = np.flatnonzero(self.columns(first, until)["timestamp"] >= timestamp_ns)
                if len(late):
                    return first + int(late[0])
                first = until
        return None

    def columns(self, first: int, until: int) -> NDArray[Any]:
        """The headers of frames ``first`` to ``until``, read in one go."""
        run = self.locate(first, 1 << 40, until - first, until).load()
        return header_columns(run.frames, run.positions)

    def told_offsets(self, count: int) -> Offsets | None:
        """The offsets of the first frames, if some are left out and this is known by more than what the frames say."""
        known = self._known_offsets(0, count)
        return known if isinstance(known, np.ndarray) else None

    def cut(self, kept: KeptPart) -> None:
        """Hold no more than the first frames from now on, in memory. ``seal`` tells the files."""
        self.count, self.size, self.index_checksum = kept.place, kept.size, kept.index_checksum
        self._offsets = kept.offsets
        if kept.offsets is not None and not has_gaps(kept.offsets, self.base):
            self._is_dense, self._offsets = True, None
        self.times.cut(kept.time_entries, kept.time_checksum, kept.max_timestamp_ns, kept.uncovered_bytes)
        self.lanes.cut(kept.lanes, kept.place)
        self.sealed = True
