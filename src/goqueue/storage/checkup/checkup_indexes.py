"""Checks of a segment's index files against a scan of its frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goqueue.storage.checkup.findings import NEXT_START, REBUILT, Finding, Repair, Severity
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.files.files import File
from goqueue.storage.log.index_file import (
    INDEX_MAGIC,
    LANE_MAGIC,
    POSITION,
    TIME_ENTRY,
    TIME_MAGIC,
    begins_with,
    indexed_count,
    read_entries,
    tells_offsets,
    verified_count,
    whole_index,
)
from goqueue.storage.log.lane_index import LaneTally, sealed_entries
from goqueue.storage.log.scan import Scan
from goqueue.storage.reader.reader_files import SegmentPlace

_WHAT = {".index": "the index of positions", ".timeindex": "the index of times", ".lanes": "the index of lanes"}
_MISSING = "is missing"


def is_missing_index(finding: Finding) -> bool:
    """Whether the finding only reports an index that will be rebuilt."""
    suffix = finding.path.suffix
    return finding.severity is Severity.NOTE and finding.what == f"{_WHAT.get(suffix)} {_MISSING}"


def check_indexes(place: SegmentPlace, found: Scan, point: RecoveryPoint | None, *, is_torn: bool) -> list[Finding]:
    """Check the index files. ``is_torn``: the log file ends in bytes that are no frames, so indexes may have more
    entries than frames were found. ``point`` is the recovery point of this segment."""
    if not found.positions:
        return []
    lanes = found.lane_array()
    check = _Check(place, is_torn)
    check.positions(found)
    check.times(found, point)
    check.entries(".lanes", LANE_MAGIC, sealed_entries(lanes), LaneTally().changes(lanes, 0))
    return check.findings


class _Check:
    def __init__(self, place: SegmentPlace, is_torn: bool) -> None:
        self._place = place
        self._is_torn = is_torn
        self.findings: list[Finding] = []

    def positions(self, found: Scan) -> None:
        """Check the index; one that holds offsets as well exists only for a closed segment with gaps."""
        positions, opened = found.position_array(), self._opened(".index")
        if opened is None:
            return
        file, size = opened
        count = indexed_count(file, self._place.size)
        if count is None or not tells_offsets(file, count):
            self.entries(".index", INDEX_MAGIC, positions.astype(POSITION), positions.astype(POSITION))
            return
        expected = whole_index(positions, np.array(found.offsets, np.int64), self._place.base, self._place.size)
        if file.read(0, size) != expected:
            self._wrong(".index", "has a right checksum, and does not tell what the log holds")

    def entries(self, suffix: str, magic: bytes, closed: NDArray[Any], growing: NDArray[Any]) -> None:
        """Check a file whose entries follow from the frames, of a ``closed`` segment or of a ``growing`` one."""
        opened = self._opened(suffix)
        if opened is None:
            return
        file, size = opened
        count = verified_count(file, magic, closed.itemsize, self._place.size)
        if count is not None:
            if read_entries(file, closed.dtype, count).tobytes() != closed.tobytes():
                self._wrong(suffix, "has a right checksum, and does not tell what the log holds")
            return
        known = read_entries(file, growing.dtype, min(size // growing.itemsize, len(growing)))
        agrees = known.tobytes() == growing[: len(known)].tobytes()
        more = size - growing.nbytes
        if agrees and more == 0:
            if not self._place.is_last:
                self._not_closed(suffix)
        elif agrees and more < 0 and self._place.is_last and size % growing.itemsize == 0:
            self._behind(suffix, len(growing) - len(known))
        elif agrees and more > 0 and self._place.is_last and size % growing.itemsize == 0:
            if not self._is_torn:
                self._ahead(suffix)
        else:
            self._wrong(suffix, "is damaged")

    def times(self, found: Scan, point: RecoveryPoint | None) -> None:
        suffix = ".timeindex"
        opened = self._opened(suffix)
        if opened is None:
            return
        file, size = opened
        count = verified_count(file, TIME_MAGIC, TIME_ENTRY.itemsize, self._place.size)
        is_closed = count is not None
        if not (is_closed or point is None or begins_with(file, TIME_ENTRY, point.time_entries, point.time_checksum)):
            self._wrong(suffix, "is damaged: its recovery point knew it otherwise")
            return
        if count is None:
            count = size // TIME_ENTRY.itemsize
            if size % TIME_ENTRY.itemsize:
                self._wrong(suffix, "is damaged")
                return
        known = entries = read_entries(file, TIME_ENTRY, count)
        if self._is_torn and self._place.is_last:
            entries = entries[entries["last_offset"] < found.next_offset]
        if not _are_right(entries, found) or (is_closed and not _covers_all(known, found)):
            self._wrong(suffix, "does not tell what the log holds")
        elif not is_closed and not self._place.is_last:
            self._not_closed(suffix)

    def _opened(self, suffix: str) -> tuple[File, int] | None:
        file = self._place.find(suffix)
        if file is None:
            self._add(Severity.NOTE, suffix, _MISSING, "it is only slower until it is made anew", REBUILT)
            return None
        return file, file.size()

    def _not_closed(self, suffix: str) -> None:
        self._add(Severity.NOTE, suffix, "was not closed", "a broker was stopped before it could do that", NEXT_START)

    def _behind(self, suffix: str, entries: int) -> None:
        what = f"lacks its last {entries} entries"
        self._add(Severity.NOTE, suffix, what, "a broker was stopped before it could write them", NEXT_START)

    def _ahead(self, suffix: str) -> None:
        what = "knows of messages that the log does not have"
        meaning = "power was lost before they were durable, or the log was cut since"
        self._add(Severity.NOTE, suffix, what, meaning, NEXT_START)

    def _wrong(self, suffix: str, what: str) -> None:
        meaning = "no message is lost, and none may be found by it"
        self._add(Severity.REPAIRABLE, suffix, what, meaning, REBUILT)

    def _add(self, severity: Severity, suffix: str, what: str, meaning: str, advice: str) -> None:
        path: Path = self._place.folder / f"{self._place.base:020d}{suffix}"
        self.findings.append(Finding(severity, path, f"{_WHAT[suffix]} {what}", meaning, advice, repair=Repair.RECOVER))


def _covers_all(entries: NDArray[np.void], found: Scan) -> bool:
    """Whether the last entry covers the last frame."""
    return len(entries) > 0 and int(entries[-1]["last_offset"]) == found.offsets[-1]


def _are_right(entries: NDArray[np.void], found: Scan) -> bool:
    """Whether entries ascend, and no frame that an entry covers has a later timestamp. An entry may be later than
    all frames: the broker also counts the time of its own operations."""
    if not len(entries):
        return True
    offsets = np.frombuffer(found.offsets, np.int64)
    latest = np.maximum.accumulate(np.frombuffer(found.timestamps, np.int64))
    covered = entries["last_offset"].astype(np.int64)
    places = np.searchsorted(offsets, covered, side="right") - 1
    return (
        bool((places >= 0).all())
        and int(covered[-1]) <= int(offsets[-1])
        and bool((np.diff(covered) >= 0).all())
        and bool((np.diff(entries["max_timestamp"].astype(np.int64)) >= 0).all())
        and bool((entries["max_timestamp"] >= latest[places]).all())
    )
