"""Cutting a log back, at any time and in any size, without holding up the loop.

``plan_cut`` finds out what stays, ``begin_cut`` makes the log end there in memory, ``finish_cut`` does the same on the
disk. The first and the last are generators like a compaction: they yield after about a millisecond of work, and they
yield functions that wait for the disk, to be run in a thread. ``truncate_to`` does all three at once, for a start.

Meanwhile nothing is appended (``Log.is_being_cut``), and no step of a compaction may run: a pass under way ends itself.

A crash leaves the log whole or cut. A manifest (``{offset}.cut``) is written when everything that stays is on the disk;
from then on the cut is decided, and a start that finds the manifest finishes it. What is appended afterwards goes to a
new file: it never takes the place of bytes that somebody may still be reading, who finds the file shorter instead.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
from crc32c import crc32c
from msgspec.structs import replace

from goqueue.model.errors import CorruptData, StorageFailed
from goqueue.model.logging import get_logger
from goqueue.storage.files.atomic import read_checked, write_atomically
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.files.files import File, Files
from goqueue.storage.log.compaction_choice import Step
from goqueue.storage.log.frame_slice import Slice
from goqueue.storage.log.index_file import LANE_ENTRY, POSITION, TIME_ENTRY, read_entries
from goqueue.storage.log.lane_index import LaneTally
from goqueue.storage.log.lanes import totals_in
from goqueue.storage.log.log import Log
from goqueue.storage.log.lost import Lost
from goqueue.storage.log.open_files import SUFFIXES, SegmentFiles, bases_in
from goqueue.storage.log.segment import KeptPart, Segment
from goqueue.storage.log.segment_times import NO_TIMESTAMP
from goqueue.storage.log.swap import revoke_swaps
from goqueue.wire.batch import MAX_BATCH_BYTES
from goqueue.wire.internal_headers import producer_stamp
from goqueue.wire.producer_frames import stamped_places

log_lines = get_logger(__name__)

CUT = ".cut"
_STEP_BYTES = 1 << 20
_STEP_ENTRIES = 1 << 14

Result = TypeVar("Result")
Work = Generator[Step, None, Result]


class Cut(msgspec.Struct, frozen=True):
    """The log ends at ``offset``. Of the segment at ``base`` so many bytes stay, none if that is 0, and of those behind
    it nothing."""

    offset: int
    base: int
    size: int

    def manifest(self, folder: Path) -> Path:
        return folder / f"{self.offset:020d}{CUT}"


@dataclass(frozen=True, slots=True)
class PlannedCut:
    """``kept`` is what stays of the segment that is cut; ``None`` if that is all of it, or nothing."""

    cut: Cut
    segments: list[Segment]
    """Those that stay, the one that is cut among them."""
    kept: KeptPart | None

    @property
    def offset(self) -> int:
        return self.cut.offset


def truncate_to(log: Log, offset: int, forget_point: Callable[[], None]) -> int:
    """Remove everything from ``offset`` on, and all of a producer's batch that it would split; return the new end.

    ``forget_point`` must durably drop the log's recovery point, or have it vouch for nothing that goes. The cut is
    durable when this returns. It waits for the disk.
    """
    log.check_writable()
    planned = at_once(plan_cut(log, offset))
    if planned is None:
        return log.end_offset
    forget_point()
    try:
        begin_cut(log, planned)
        at_once(finish_cut(log, planned))
    except OSError as error:
        raise cutting_failed(log, error) from error
    return planned.offset


def cutting_failed(log: Log, error: OSError) -> StorageFailed:
    """The disk may have the cut or not; a start finds out."""
    log.fail(f"{error.strerror or error} while cutting")
    return StorageFailed(f"cutting failed: {error.strerror or error}")


def at_once(work: Work[Result]) -> Result:
    while True:
        try:
            step = next(work)
        except StopIteration as ended:
            result: Result = ended.value
            return result
        if step is not None:
            step()


# Planning


def plan_cut(log: Log, offset: int) -> Work[PlannedCut | None]:
    """What stays if the log is cut at ``offset``, or before the producer's batch that reaches across it. ``None``:
    nothing lies behind."""
    offset = yield from _batch_start(log, max(offset, log.start_offset))
    if offset >= log.end_offset:
        return None
    at = log.segment_at(offset)
    segment, before = log.segments[at], log.segments[:at]
    place = segment.place_of(offset)
    if place == 0:
        return PlannedCut(Cut(offset, segment.base, 0), before, None)
    size = segment.position_of(place)
    kept = None
    if place < segment.count:
        kept = yield from _plan_part(segment, place, size)
    return PlannedCut(Cut(offset, segment.base, size), [*before, segment], kept)


def _batch_start(log: Log, offset: int) -> Work[int]:
    """``offset``, or the first offset of the producer's batch that reaches across it."""
    if not log.start_offset < offset < log.end_offset:
        return offset
    segment = log.segments[log.segment_at(offset)]
    place = segment.place_of(offset)
    if place == 0:
        # A batch lies in one segment.
        return offset
    # No batch has more bytes, unless it is a single message; the one frame more may have got its stamp here.
    reaches_from = segment.position_of(place) - MAX_BATCH_BYTES
    first = max(0, bisect_left(range(place), reaches_from, key=segment.position_of) - 1)
    found: list[int] = []
    yield partial(_find_batch_start, segment.locate(first, 1 << 40, place - first, place), offset, found)
    return found[0]


def _find_batch_start(before: Slice, offset: int, found: list[int]) -> None:
    """In a thread: it may be a megabyte that has to be read."""
    run = before.load()
    columns = run.columns()
    ends = run.ends()
    for place in reversed(stamped_places(run, columns)):
        end = int(ends[place])
        stamp = producer_stamp(run.frames[end - int(columns["headers_length"][place]) : end])
        if stamp is not None:
            first = int(columns["offset"][place])
            if first + stamp.message_count > offset:
                offset = first
            break
    found.append(offset)


def _plan_part(segment: Segment, place: int, size: int) -> Work[KeptPart]:
    """Everything about the first frames of a segment that its indexes tell of all of them."""
    totals_in(segment)
    yield None
    files = segment.files()
    index_checksum, end = 0, place * POSITION.itemsize
    for at in range(0, end, _STEP_BYTES):
        index_checksum = crc32c(files.positions.read(at, min(_STEP_BYTES, end - at)), index_checksum)
        yield None
    times = read_entries(files.times, TIME_ENTRY, segment.times.entries)
    entries = int(np.searchsorted(times["last_offset"], segment.offset_of(place), side="left"))
    covered = segment.place_of(int(times["last_offset"][entries - 1]) + 1) if entries else 0
    highest = int(times["max_timestamp"][entries - 1]) if entries else NO_TIMESTAMP
    uncovered = size - segment.position_of(covered)
    yield None
    if covered < place:
        loose = segment.locate(covered, 1 << 40, place - covered, place)
        stamps: list[int] = []
        yield partial(_find_highest, loose, stamps)
        highest = max(highest, *stamps)
    lanes = yield from _plan_lanes(files.lanes, segment.lanes.entries, place)
    return KeptPart(
        place,
        size,
        index_checksum,
        segment.told_offsets(place),
        entries,
        crc32c(times[:entries].tobytes()),
        highest,
        uncovered,
        lanes,
    )


def _find_highest(loose: Slice, found: list[int]) -> None:
    found.append(int(loose.load().columns()["timestamp"].max()))


def _plan_lanes(file: File, entries: int, place: int) -> Work[LaneTally]:
    tally = LaneTally()
    for first in range(0, entries, _STEP_ENTRIES):
        count = min(_STEP_ENTRIES, entries - first)
        part = np.frombuffer(file.read(first * LANE_ENTRY.itemsize, count * LANE_ENTRY.itemsize), LANE_ENTRY)
        kept = int(np.searchsorted(part["place"], place, side="left"))
        tally.take(part[:kept])
        if kept < count:
            break
        yield None
    return tally


def lowered(point: RecoveryPoint, log: Log, planned: PlannedCut) -> RecoveryPoint:
    """A recovery point that holds before the cut and after it. Without any, a start would take what is kept below the
    log's start for its beginning."""
    if point.base + point.count <= planned.offset:
        return point
    base = planned.cut.base
    return replace(
        point,
        base=base,
        size=0,
        count=0,
        index_checksum=0,
        time_entries=0,
        time_checksum=0,
        max_timestamp_ns=NO_TIMESTAMP,
        cleaned_to=min(point.cleaned_to, base),
        segments=sum(point.start_base <= segment.base < base for segment in log.segments),
        lane_entries=0,
        lane_checksum=0,
        delays_from=min(point.delays_from, base),
        producers_from=min(point.producers_from, base),
    )


# Cutting


def begin_cut(log: Log, planned: PlannedCut) -> None:
    """From this step on the log ends there, for everyone who asks."""
    last = planned.segments[-1] if planned.segments else None
    if last is not None and planned.kept is not None:
        last.cut(planned.kept)
    log.cut(planned.offset, planned.segments)


def finish_cut(log: Log, planned: PlannedCut) -> Work[None]:
    """Bring to the disk what ``begin_cut`` did; durable when it ends. An ``OSError`` leaves that in doubt."""
    disk, folder, cut = log.open_files.disk, log.folder, planned.cut
    yield partial(revoke_swaps, disk, folder)
    # Else a crash could leave less than what is to stay, and a gap before what is appended afterwards.
    for segment in planned.segments:
        if segment.below > log.durable_offset:
            yield segment.files().log.sync
    yield partial(disk.sync_dir, folder)
    yield partial(write_atomically, disk, cut.manifest(folder), msgspec.json.encode(cut))
    yield partial(_carry_out, disk, folder, cut)
    last = planned.segments[-1] if planned.segments else None
    if last is not None and planned.kept is not None:
        yield partial(_cut_indexes, last.files(), planned.kept)
        last.seal()
    # Whoever has looked into it may have opened a file that is gone by now.
    log.active.close()
    log.active.files()
    log.lost.forget_from(cut.offset)
    yield partial(_conclude, disk, folder, cut)


def _cut_indexes(files: SegmentFiles, kept: KeptPart) -> None:
    """In a thread: to cut off megabytes takes its time. What they end with is written when the segment is sealed."""
    files.positions.truncate(kept.place * POSITION.itemsize)
    files.times.truncate(kept.time_entries * TIME_ENTRY.itemsize)
    files.lanes.truncate(kept.lanes.entries * LANE_ENTRY.itemsize)


def _carry_out(files: Files, folder: Path, cut: Cut) -> None:
    """Doing it again changes nothing, as long as nothing was appended."""
    for base in reversed(bases_in(files.list_dir(folder))):
        if base > cut.base or (base == cut.base and not cut.size):
            for suffix in SUFFIXES:
                files.remove(folder / f"{base:020d}{suffix}")
    if cut.size:
        last = files.open(folder / f"{cut.base:020d}.log")
        if last.size() > cut.size:
            last.truncate(cut.size)
        # A process that was killed may have cut it in the page cache only.
        last.sync()
    # What is lost there would be taken for given out.
    Lost(files, folder).clip(cut.offset)
    # What stays may have gaps. A start takes the last segment for one without.
    files.open(folder / f"{cut.offset:020d}.log", create=True)
    files.sync_dir(folder)


def _conclude(files: Files, folder: Path, cut: Cut) -> None:
    files.remove(cut.manifest(folder))
    # A manifest that came back after a crash would be obeyed again, and take what was appended since.
    files.sync_dir(folder)


def finish_cuts(files: Files, folder: Path, names: list[str]) -> None:
    """Finish what a crash interrupted. ``names`` are those in the folder, durably."""
    for path in [folder / name for name in names if name.endswith(CUT)]:
        try:
            payload = read_checked(files, path)
        except CorruptData as error:
            log_lines.error("the manifest of a cut is damaged and ignored", error=str(error))
            files.remove(path)
            continue
        if payload is not None:
            cut = msgspec.json.decode(payload, type=Cut)
            log_lines.info("finishing a cut that was interrupted", folder=str(folder), end_offset=cut.offset)
            _carry_out(files, folder, cut)
            _conclude(files, folder, cut)
