"""Recovery points: up to where each log is known to be on the disk.

One small file for a whole data folder, replaced whole. A start scans only what lies behind a log's point, and nothing
if the log ends there, as it does after a clean stop. Losing the file costs a scan of everything and no data.
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
    """The state of a log's active segment at a moment when all of it, indexes included, was on the disk.

    Stored as an array: the order of the fields is the format, and a new one goes to the end with a default.
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
    """How many with messages in them there were from the start on; 0: not noted."""
    lane_entries: int = 0
    lane_checksum: int = 0
    delays_from: int = 0
    """Segments wholly below both this and the start hold nothing that anybody waits for."""
    start_base: int = -1
    """The segment in which the start lies; -1: not noted. Files below it may be kept, not all of them."""
    producers_from: int = -1
    """From where a start reads to know the producers, if there is no file of them: nobody was known then whom records
    below tell of. -1: not noted."""


def durable_bytes(base: int, point: RecoveryPoint | None) -> int:
    """Up to which byte a point vouches for the segment at ``base``: no further than it has them, or for all of it."""
    if point is None or base > point.base:
        return 0
    return point.size if base == point.base else sys.maxsize


class CheckpointFile:
    """The points of all logs, by name."""

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
        """Durable when this returns. Called from a thread."""
        write_atomically(self._files, self._path, encoded(points))


def encoded(points: dict[str, RecoveryPoint]) -> bytes:
    """What the file holds."""
    return msgspec.json.encode(points)
