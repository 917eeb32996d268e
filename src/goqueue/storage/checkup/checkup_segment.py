"""Check of one segment: every frame, and each index file against the frames.

Frames are read by the same scan as in recovery, which trusts only checksums. Nothing is changed.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from goqueue.storage.checkup.checkup_indexes import check_indexes
from goqueue.storage.checkup.findings import BACKUP, NEXT_START, Finding, Repair, Severity, damage, note
from goqueue.storage.files.checkpoint import RecoveryPoint, durable_bytes
from goqueue.storage.files.files import File
from goqueue.storage.log import index_file
from goqueue.storage.log.scan import MOST_OFFSETS, FrameScanner, Scan
from goqueue.storage.reader.reader_files import SegmentPlace


@dataclass(slots=True)
class SegmentCheck:
    """Contents of a segment. ``gaps`` are runs of missing offsets within it (first, end)."""

    path: Path
    base: int
    next_offset: int
    count: int = 0
    size: int = 0
    findings: list[Finding] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    is_closed: bool = False
    """Whether its index has a footer that matches this log file."""

    def lacks_offsets(self) -> bool:
        """Whether the segment was closed with fewer messages than offsets, and is undamaged. Compaction causes that,
        and so does a repair that removed damaged bytes."""
        whole = not any(each.severity is Severity.DAMAGE for each in self.findings)
        return self.is_closed and whole and self.count < self.next_offset - self.base


def check_segment(place: SegmentPlace, point: RecoveryPoint | None, *, ends_log: bool, quick: bool) -> SegmentCheck:
    """Check a segment. ``ends_log``: only empty segments follow. ``quick`` trusts an index with a valid footer, and
    does not read the frames that it covers."""
    path = place.folder / f"{place.base:020d}.log"
    file = place.open(".log")
    index = place.find(".index")
    made = SegmentCheck(path, place.base, place.base, size=file.size())
    count = None if index is None else index_file.indexed_count(index, file.size())
    made.is_closed = count is not None
    if quick and index is not None and count:
        made.count, made.next_offset = count, _last_offset(file, index, count) + 1
        return made
    # A closed segment may have gaps, even if it is the last because the file of the next one is missing.
    grows = place.is_last and count is None
    durable_to = durable_bytes(place.base, point)
    found = FrameScanner(file, dense=grows, below=place.below).scan(0, place.base, index, durable_to=durable_to)
    if grows or found.end != file.size() or count is None:
        # In a closed segment, a batch may be incomplete because compaction removed its other messages.
        found.drop_open_batch()
    made.count, made.next_offset = len(found.positions), found.next_offset
    _check_damage(made, found)
    if index is not None and count == len(found.positions) and index_file.tells_offsets(index, count):
        _check_offsets(made, found, index_file.read_offsets(index, count, 0, count))
    if index is not None and count is None:
        _check_size(made, found, index)
    own = point if point is not None and point.base == place.base else None
    known = (
        0 if index is None or count is not None else index.size() // index_file.POSITION.itemsize - len(found.positions)
    )
    _check_end(made, found, place, own, known, ends_log=ends_log)
    if own is not None and not made.findings:
        _check_point(made, found, own)
    made.gaps = _gaps(found)
    if any(each.severity is Severity.DAMAGE for each in made.findings):
        # The indexes also cover the lost frames; they are rebuilt with the segment.
        return made
    made.findings += check_indexes(place, found, own, is_torn=found.end != made.size)
    return made


def _last_offset(file: File, index: File, count: int) -> int:
    if index_file.tells_offsets(index, count):
        return int(index_file.read_offsets(index, count, count - 1, 1)[0])
    return index_file.said_offset(file, index, count - 1)


def _check_damage(made: SegmentCheck, found: Scan) -> None:
    for each in found.damage:
        at = bisect_left(found.positions, each.start)
        first = found.offsets[at - 1] + 1 if at else made.base
        last = found.offsets[at] - 1 if at < len(found.offsets) else found.next_offset - 1
        made.findings.append(_lost(made.path, each.start, each.end, first, last))


def _check_offsets(made: SegmentCheck, found: Scan, known: NDArray[np.int64]) -> None:
    """Report frames whose stored offset differs from the index of a segment with gaps, if that index is intact."""
    for place in np.flatnonzero(np.array(found.offsets, np.int64) != known).tolist():
        offset = int(known[place])
        what = (
            f"the message at byte {found.positions[place]} says that its offset is {found.offsets[place]}, and the "
            f"index says {offset}"
        )
        made.findings.append(damage(made.path, what, f"offset {offset} is damaged", first=offset, last=offset))


def _check_size(made: SegmentCheck, found: Scan, index: File) -> None:
    """Report a log file shorter than its intact index states: it was truncated, maybe at the end of a message."""
    claimed = index_file.claimed_log_size(index) or 0
    count = index_file.indexed_count(index, claimed) if claimed > made.size else None
    if count is None or count <= len(found.positions) or found.end != made.size or found.damage:
        return
    if index_file.read_positions(index, 0, len(found.positions)).tolist() == found.positions.tolist():
        made.findings.append(
            Finding(
                Severity.DAMAGE,
                made.path,
                f"the file had {claimed} bytes when it was closed, and has {made.size}",
                f"{count - len(found.positions)} messages from offset {found.next_offset} on are lost",
                BACKUP,
                Repair.RECOVER,
                first_offset=found.next_offset,
                lost_bytes=claimed - made.size,
            )
        )


def _check_end(
    made: SegmentCheck, found: Scan, place: SegmentPlace, point: RecoveryPoint | None, known: int, *, ends_log: bool
) -> None:
    """Check the end of the segment. ``known``: number of further messages in the index."""
    if found.end == made.size:
        return
    vouched = 0 if point is None else point.size
    if not ends_log or found.end < vouched:
        last = found.next_offset - 1
        if place.below < MOST_OFFSETS:
            last = place.below - 1
        elif point is not None:
            last = max(last, point.base + point.count - 1)
        made.findings.append(_lost(made.path, found.end, made.size, found.next_offset, last))
        return
    meaning = "a write was interrupted there"
    if known > 0:
        # The index is written after the log, so a killed process cannot leave this state.
        meaning = (
            f"the index knows of {known} messages there: power was lost before they were durable, or the end of the "
            "file was damaged since"
        )
    made.findings.append(
        Finding(
            Severity.NOTE,
            made.path,
            f"the last {made.size - found.end} bytes, from byte {found.end} on, are no whole message",
            meaning,
            f"{NEXT_START} It keeps the bytes in a file beside the segment.",
            Repair.RECOVER,
        )
    )


def _check_point(made: SegmentCheck, found: Scan, point: RecoveryPoint) -> None:
    """Check the part covered by a recovery point. Losses in it are reported elsewhere."""
    positions = found.position_array()[: point.count].astype(index_file.POSITION).tobytes()
    end = found.positions[point.count] if point.count < len(found.positions) else found.end
    if point.count > len(found.positions) or end != point.size or crc32c(positions) != point.index_checksum:
        what = "the segment is not as its recovery point says"
        made.findings.append(note(made.path, what, "the next start reads all of this segment"))


def _lost(path: Path, start: int, end: int, first: int, last: int) -> Finding:
    """Bytes that should be frames and are not."""
    if first < last:
        which = f"offsets {first} to {last} are lost"
    elif first == last:
        which = f"offset {first} is lost"
    else:
        which = "which messages they were cannot be told"
    return Finding(
        Severity.DAMAGE,
        path,
        f"{end - start} bytes, from byte {start} on, are no valid messages",
        which,
        f"{BACKUP} goqueue doctor --repair sets the bytes aside.",
        Repair.RECOVER,
        first if first <= last else None,
        last if first <= last else None,
        end - start,
    )


def _gaps(found: Scan) -> list[tuple[int, int]]:
    """Offsets missing between adjacent frames."""
    offsets = np.frombuffer(found.offsets, np.int64)
    places = np.flatnonzero(np.diff(offsets) > 1)
    damaged = {bisect_left(found.positions, each.start) for each in found.damage}
    return [(int(offsets[at]) + 1, int(offsets[at + 1])) for at in places.tolist() if at + 1 not in damaged]
