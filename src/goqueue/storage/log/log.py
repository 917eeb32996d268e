"""The log of one partition: segments one behind the other, of which the last takes appends.

Every method is called from the event loop and none of them waits, except for the disk's page cache. What must wait is
handed out: ``Slice.load`` for long reads, ``unsynced`` for fsync.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path

from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.errors import DiskFull, OffsetOutOfRange, Overloaded, StorageFailed
from goqueue.model.logging import get_logger
from goqueue.model.message import Priority
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.files.disk_errors import told
from goqueue.storage.log.frame_slice import Slice
from goqueue.storage.log.lost import Lost
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.segment import Segment
from goqueue.wire.batch import CheckedBatch

log = get_logger(__name__)

_NORMAL = int(Priority.NORMAL)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What a log must know of its topic's settings. May be replaced while the log is in use."""

    segment_bytes: int = 64 << 20
    index_interval_bytes: int = 4_096
    compacted: bool = False
    """Whether segments may be joined or emptied by compaction."""


@dataclass(frozen=True, slots=True)
class Unsynced:
    """What must reach the disk so that everything below ``end_offset`` is durable."""

    segments: tuple[Segment, ...]
    folder: Path | None
    end_offset: int
    truncations: int


class Log:
    """Appends, reads and cuts. Use ``recovery.open_log`` to get one."""

    def __init__(
        self,
        open_files: OpenFiles,
        folder: Path,
        options: LogOptions,
        now_ns: Callable[[], int],
        segments: list[Segment],
        start_offset: int,
        cleaned_to: int,
        lost: Lost,
    ) -> None:
        self.open_files = open_files
        self.folder = folder
        self.options = options
        self.now_ns = now_ns
        self.segments = segments
        self.start_offset = start_offset
        self.cleaned_to = cleaned_to
        """Compaction has seen everything below this offset."""
        active = segments[-1]
        self.end_offset = active.base + active.count
        self.durable_offset = self.end_offset
        self.failure: str | None = None
        self.missing: str | None = None
        """What a start found to be gone, if anything."""
        self.lost = lost
        self._unsynced: list[Segment] = []
        self._names_unsynced = True
        self.is_being_cut = False
        """Whether a cut is under way, and the disk does not have it yet: nothing can be appended meanwhile."""
        self.truncations = 0
        self._cuts: list[int] = []
        """Where they were, one after the other."""
        self._durable_start = 0
        """The start, as it is known to be on the disk."""
        self.special_end = self._special_end()
        """Everything at or behind this offset is of the normal lane."""

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    # Writing

    def append(self, batch: CheckedBatch) -> int:
        """Stamp and write a batch into one segment; return its first offset. On any error nothing is changed."""
        self.check_writable()
        if self.active.size and self.active.size + len(batch.frames) > self.options.segment_bytes:
            self.roll()
        first = self.end_offset
        batch.stamp(first)
        try:
            self.active.append(batch, self.now_ns(), self.options.index_interval_bytes)
        except OSError as error:
            raise self._write_error(error) from error
        except StorageFailed as error:
            self.fail(str(error))
            raise
        self.end_offset = first + len(batch.positions)
        if type(batch.lanes) is not int or batch.lanes != _NORMAL:
            self.special_end = self.end_offset
        if not self._unsynced or self._unsynced[-1] is not self.active:
            self._unsynced.append(self.active)
        return first

    def roll(self) -> None:
        """Seal the active segment and begin a new one. The new name is on the disk only after the next fsync round."""
        if self.active.base == self.end_offset or self.is_being_cut:
            # Nothing is in it; a second segment of the same name would share its files.
            return
        fresh = Segment(self.open_files, self.folder, self.end_offset, self.now_ns)
        try:
            fresh.files()
        except OSError as error:
            # An empty file left behind would look like the log's end, although the active segment may go on.
            with suppress(OSError):
                self.remove_files(fresh)
            raise self._write_error(error) from error
        self._names_unsynced = True
        self.active.seal()
        self.active.below = fresh.base
        self.segments.append(fresh)

    def fail(self, reason: str) -> None:
        """Take no more writes. What is durable can still be read; a restart recovers what is whole."""
        if self.failure is None:
            self.failure = reason
            log.error("log takes no more writes", folder=str(self.folder), reason=reason)

    def check_writable(self) -> None:
        if self.failure is not None:
            raise StorageFailed(f"this partition takes no more writes: {self.failure}")
        if self.is_being_cut:
            raise Overloaded("this partition is being cut back and takes no writes meanwhile", retry_after_s=1)

    def _write_error(self, error: OSError) -> Exception:
        refusal = told(error, "writing")
        if isinstance(refusal, DiskFull):
            now_ns = self.now_ns()
            if not self.open_files.found_no_room_lately(now_ns):
                log.error("a write finds no room on the disk", folder=str(self.folder), reason=error.strerror)
            self.open_files.no_room_at_ns = now_ns
        elif isinstance(refusal, StorageFailed):
            self.fail(f"{error.strerror or error} while writing")
        return refusal

    # Durability

    def unsynced(self) -> Unsynced:
        """What an fsync round has to do for this log now. It must end in ``synced`` or ``fail``."""
        # Retention or compaction may have removed a segment before anyone asked for its fsync.
        segments = tuple(segment for segment in self._unsynced if segment in self.segments)
        taken = Unsynced(segments, self.folder if self._names_unsynced else None, self.end_offset, self.truncations)
        self._unsynced = []
        self._names_unsynced = False
        return taken

    def synced(self, taken: Unsynced) -> bool:
        """What was taken is on the disk. Return whether ``durable_offset`` has moved."""
        if self.failure is not None:
            return False
        before = self.durable_offset
        # What has these offsets since a cut is not what was taken.
        self.durable_offset = max(before, min(taken.end_offset, self.kept_since(taken.truncations)))
        return self.durable_offset > before

    def recovery_point(self) -> RecoveryPoint:
        """The state right now, if nothing is derived from the log; valid once all written before is on the disk."""
        active = self.active
        at = self.segment_at(self.start_offset)
        return RecoveryPoint(
            start_offset=self.start_offset,
            base=active.base,
            size=active.size,
            count=active.count,
            index_checksum=active.index_checksum,
            time_entries=active.times.entries,
            time_checksum=active.times.checksum,
            max_timestamp_ns=active.times.max_timestamp_ns,
            last_append_ns=active.times.last_append_ns,
            cleaned_to=self.cleaned_to,
            segments=len(self.segments) - at - (not active.count),
            lane_entries=active.lanes.entries,
            lane_checksum=active.lanes.checksum,
            delays_from=self.end_offset,
            start_base=self.segments[at].base,
            producers_from=self.end_offset,
        )

    # Reading

    def locate(
        self, offset: int, max_bytes: int, max_messages: int = 1 << 30, limit: int | None = None
    ) -> Slice | None:
        """Where the frames lie from the first at or after ``offset``, below ``limit``: at least one, else no more than
        the bounds, all from one segment. ``None`` if there is none yet."""
        limit = self.end_offset if limit is None else min(limit, self.end_offset)
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not there; the earliest is {self.start_offset}, the latest {self.end_offset}"
            )
        return self._locate(offset, max_bytes, max_messages, limit)

    def read_kept(self, offset: int, max_bytes: int, max_messages: int = 1 << 30) -> Slice | None:
        """Where the frames lie from the first at or after ``offset`` whose file is there, be it below the start."""
        return self._locate(offset, max_bytes, max_messages, self.end_offset)

    def has(self, offset: int) -> bool:
        """Whether there is a frame of this offset in the files, be it below the start."""
        segment = self.segments[self.segment_at(offset)]
        place = segment.place_of(offset)
        return place < segment.count and segment.offset_of(place) == offset

    def _locate(self, offset: int, max_bytes: int, max_messages: int, limit: int) -> Slice | None:
        for at in range(self.segment_at(offset), len(self.segments)):
            segment = self.segments[at]
            if segment.base >= limit:
                break
            place = segment.place_of(offset)
            following = self.segments[at + 1].base if segment.sealed else self.end_offset
            end_place = segment.count if following <= limit else segment.place_of(limit)
            if place < end_place:
                return segment.locate(place, max_bytes, max_messages, end_place, following)
        return None

    def is_active(self, offset: int) -> bool:
        """Whether ``offset`` was written lately, so that reading it will not wait for the disk."""
        return offset >= self.active.base

    def offset_at(self, timestamp_ns: int) -> int:
        """The offset of the first message whose timestamp is at or after an instant; the end if there is none."""
        for segment in self.segments[self.segment_at(self.start_offset) :]:
            place = segment.place_at_time(timestamp_ns, self.start_offset)
            if place is not None:
                return segment.offset_of(place)
        return self.end_offset

    def segment_at(self, offset: int) -> int:
        """Which segment an offset is in, if it is there at all."""
        return max(0, bisect_right(self.segments, offset, key=lambda segment: segment.base) - 1)

    def _special_end(self) -> int:
        """As far as that is known without looking at any file."""
        for segment in reversed(self.segments):
            normal_from = segment.lanes.normal_from()
            if normal_from is None or (normal_from and segment is not self.active):
                return min(segment.below, self.end_offset)
            if normal_from:
                # The active segment has no gaps.
                return segment.base + normal_from
        return 0

    # Cutting

    def cut(self, offset: int, kept: list[Segment]) -> None:
        """End at ``offset`` from now on, in memory; of the segments only these are left. Nothing may be appended before
        the disk has it (``truncation``): the segment that takes it is not there yet."""
        gone = [segment for segment in self.segments if segment not in kept]
        for segment in kept[-1:]:
            segment.below = offset
        self.truncations += 1
        self._cuts.append(offset)
        self.segments = [*kept, Segment(self.open_files, self.folder, offset, self.now_ns)]
        self.end_offset = offset
        self.durable_offset = min(self.durable_offset, offset)
        self.cleaned_to = min(self.cleaned_to, offset)
        self.special_end = min(self.special_end, offset)
        self._unsynced = [segment for segment in self._unsynced if segment in kept]
        for segment in gone:
            segment.close()

    def kept_since(self, truncations: int) -> int:
        """What lay below this offset when so many truncations had been made is there still."""
        return min(self._cuts[truncations:], default=self.end_offset)

    # Retention

    def expired(self, retention_ms: int | None, retention_bytes: int | None) -> int:
        """The offset at which the log should start by age and size. Rolls an active segment that is too old."""
        oldest_ns = None if retention_ms is None else self.now_ns() - retention_ms * NANOS_PER_MS
        if oldest_ns is not None and self.active.count and self.active.times.last_append_ns < oldest_ns:
            self.roll()
        # Files that are kept below the start have had their time.
        segments = [segment for segment in self.segments if segment.below > self.start_offset]
        start, size = self.start_offset, sum(segment.size for segment in segments)
        for segment, following in pairwise(segments):
            too_old = oldest_ns is not None and segment.summary()[1] < oldest_ns
            too_much = retention_bytes is not None and size > retention_bytes
            if not (too_old or too_much):
                break
            size -= segment.size
            start = max(start, following.base)
        return start

    def move_start(self, start_offset: int) -> None:
        """Serve no messages below. Their files are removed once a recovery point with this start is on the disk."""
        self.start_offset = start_offset

    def note_durable_start(self, start_offset: int) -> None:
        """A start is on the disk; ``start_offset`` may have moved on since."""
        self._durable_start = start_offset

    def below_durable_start(self) -> list[Segment]:
        """The segments whose files may be removed, unless something else needs them."""
        return list(takewhile(lambda segment: segment.below <= self._durable_start, self.segments[:-1]))

    def remove_segments(self, gone: Iterable[Segment]) -> int:
        """Remove the files of these segments; return how many there were. Between others they leave holes."""
        gone = dict.fromkeys(gone)
        self.segments = [segment for segment in self.segments if segment not in gone]
        for segment in gone:
            self.remove_files(segment)
        return len(gone)

    def remove_files(self, segment: Segment) -> None:
        segment.close()
        for path in segment.paths():
            self.open_files.disk.remove(path)

    def replace_segments(self, old: list[Segment], fresh: Segment | None) -> None:
        """Put what compaction made in the place of what it read. The files were renamed just now."""
        first = self.segments.index(old[0])
        for segment in old:
            segment.close()
        self.segments[first : first + len(old)] = [fresh] if fresh else []

    def close(self) -> None:
        """Let go of the files. Whoever still wants to write or waits for an fsync gets an error."""
        self.failure = self.failure or "it was closed"
        for segment in self.segments:
            segment.close()
