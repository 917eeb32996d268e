"""The time index of a segment, and what its next entry will cover."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
from crc32c import crc32c

from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.files.files import File
from goqueue.storage.log import index_file
from goqueue.storage.log.scan import Scan

NO_TIMESTAMP = -1


class SegmentTimes:
    """Grows with an active segment; of a sealed one it is empty until ``load`` or ``install``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries = 0
        self.checksum = 0
        self.max_timestamp_ns = NO_TIMESTAMP
        """The largest timestamp of any frame."""
        self.last_append_ns = 0
        self._since_entry = 0
        """Bytes of frames behind the last entry."""

    def appended(
        self, file: File, max_timestamp_ns: int, now_ns: int, size: int, last_offset: int, interval_bytes: int
    ) -> None:
        """Frames of this size were appended. There is an entry about every ``interval_bytes``."""
        self.max_timestamp_ns = max(self.max_timestamp_ns, max_timestamp_ns)
        self.last_append_ns = now_ns
        self._since_entry += size
        if self._since_entry >= interval_bytes:
            # The frames are in the log: a full disk may delay this entry, it must not undo them.
            with suppress(OSError):
                self._add(file, last_offset)

    def complete(self, file: File, last_offset: int) -> None:
        """Add an entry for what none covers yet."""
        if self._since_entry or not self.entries:
            self._add(file, last_offset)

    def write_footer(self, file: File, log_size: int) -> None:
        index_file.end_with(
            file, self._end(), index_file.footer(index_file.TIME_MAGIC, self.entries, log_size, self.checksum)
        )

    def load(self, file: File, log_size: int) -> bool:
        """Read the index of a sealed segment. Return whether it is valid and covers any frame."""
        count = index_file.verified_count(file, index_file.TIME_MAGIC, index_file.TIME_ENTRY.itemsize, log_size)
        if not count:
            return False
        last = index_file.read_entries(file, index_file.TIME_ENTRY, count)[-1]
        self.entries = count
        self.max_timestamp_ns, self.last_append_ns = int(last["max_timestamp"]), int(last["append_time"])
        return True

    def restore(self, point: RecoveryPoint) -> None:
        """Be as the index was when ``point`` was taken."""
        self.entries, self.checksum = point.time_entries, point.time_checksum
        self.max_timestamp_ns, self.last_append_ns = point.max_timestamp_ns, point.last_append_ns
        # How much follows the last entry is not known; at worst the next one covers nothing new.
        self._since_entry = point.size

    def install(self, file: File, scan: Scan, log_size: int, now_ns: int, *, anew: bool) -> None:
        """Write entries for the frames that a scan has found, behind those that are there or ``anew``."""
        if anew:
            self.max_timestamp_ns, self.entries, self.checksum = NO_TIMESTAMP, 0, 0
        file.truncate(self._end())
        if not len(scan.timestamps):
            return
        # When these were appended is not known any more. The present errs on the side of keeping them.
        self.last_append_ns = now_ns
        timestamps, offsets = np.frombuffer(scan.timestamps, np.int64), np.frombuffer(scan.offsets, np.int64)
        entries = index_file.time_entries(timestamps, offsets, self.max_timestamp_ns, now_ns, log_size)
        packed = entries.tobytes()
        file.write(self._end(), packed)
        self.entries += len(entries)
        self.checksum = crc32c(packed, self.checksum)
        self.max_timestamp_ns = int(entries["max_timestamp"][-1])
        self._since_entry = 0

    def cut(self, entries: int, checksum: int, max_timestamp_ns: int, uncovered_bytes: int) -> None:
        """Only so many entries are left, and some bytes of frames behind them. When the last of these was appended is
        not known any more; when the last that is gone was errs on the side of keeping them."""
        self.entries, self.checksum, self.max_timestamp_ns = entries, checksum, max_timestamp_ns
        self._since_entry = uncovered_bytes

    def _add(self, file: File, last_offset: int) -> None:
        entry = index_file.time_entry(self.max_timestamp_ns, self.last_append_ns, last_offset)
        file.write(self._end(), entry)
        self.entries += 1
        self.checksum = crc32c(entry, self.checksum)
        self._since_entry = 0

    def _end(self) -> int:
        return self.entries * index_file.TIME_ENTRY.itemsize
