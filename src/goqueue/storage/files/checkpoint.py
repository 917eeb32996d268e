"""Recovery points: the position up to which each log is known to be on disk.

One small file for a whole data folder, replaced atomically. A start scans only the part of a log after its recovery
point, which is empty after a clean stop. Losing the file costs a scan of all logs and no data.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from goqueue.model.errors import CorruptData
from goqueue.model.logging import get_logger
from goqueue.storage.files.atomic import read_checked, write_atomically
from goqueue.storage.files.files import Files

log = get_logger(__name__)


class RecoveryPoint(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """State of a log's active segment at a moment when all of it, indexes included, was on disk.

    Stored as an array: the order of the fields is the format, and a new field is appended with a default.
    """

    start_offset: int
    base: int
    size: int
    count: int
    index_checksum: int
    time_entries: int
    time_checksum: int
    max_timestamp_ns: int
    last_append_ns: int
    cleaned_to: int
    segments: int = 0
    """Number of segments with messages, counted from the log start; 0 if not recorded."""
    lane_entries: int = 0
    lane_checksum: int = 0
    delays_from: int = 0
    """Segments wholly below both this and the log start hold no pending delayed messages."""
    start_base: int = -1
    """Base of the segment that holds the log start; -1 if not recorded. Files below it may be kept, in part."""
    producers_from: int = -1
    """Offset from which a start reads to rebuild producer state if there is no producer file: records below belong
    to no producer that was known then. -1 if not recorded."""


def durable_bytes(base: int, point: RecoveryPoint | None) -> int:
    """Number of bytes of the segment at ``base`` that a recovery point confirms: up to the point, or all."""
    if point is None or base > point.base:
        return 0
    return point.size if base == point.base else sys.maxsize


class CheckpointFile:
    """The file with the recovery points of all logs, by name."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path

    def load(self) -> dict[str, RecoveryPoint]:
        try:
            payload = read_checked(self._files, self._path)
            return msgspec.json.decode(payload, type=dict[str, RecoveryPoint]) if payload else {}
        except (CorruptData, msgspec.MsgspecError) as error:
            log.warning("recovery points cannot be read; every segment will be scanned", error=str(error))
            return {}

    def save(self, points: dict[str, RecoveryPoint]) -> None:
        """Write the points; durable on return. Called in a thread."""
        write_atomically(self._files, self._path, encoded(points))


def encoded(points: dict[str, RecoveryPoint]) -> bytes:
    """Content of the file."""
    return msgspec.json.encode(points)
