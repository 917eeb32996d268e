"""The index of lanes of one segment: its file, its totals, and its map while that is in memory.

The file grows with the active segment and is complete at any time, so that the map of any segment can be dropped and
read again. Whatever is read is held against a checksum: an index that is not known to be right is made anew.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from goqueue.model.logging import get_logger
from goqueue.model.message import Priority
from goqueue.storage.files.files import File
from goqueue.storage.log.index_file import LANE_ENTRY, LANE_MAGIC, end_with, footer, read_entries, verified_count
from goqueue.storage.log.lane_index import NO_LANE, LaneMap, LaneTally, are_sound, closing_entry, sealed_entries
from goqueue.storage.log.open_files import OpenFiles
from goqueue.wire.batch import Lanes

log = get_logger(__name__)


class SegmentLanes:
    """What a segment knows of its lanes. Unless they are ``known`` from the beginning, ``load`` comes first."""

    def __init__(self, open_files: OpenFiles, path: Path, *, known: bool) -> None:
        self._open_files = open_files
        self.path = path
        self._tally = LaneTally()
        self._known = known
        self._map: LaneMap | None = None
        self.last = NO_LANE
        """The lane of the last frame of an active segment: a batch that goes on in it changes nothing here."""

    @property
    def entries(self) -> int:
        return self._tally.entries

    @property
    def checksum(self) -> int:
        return self._tally.checksum

    def normal_from(self) -> int | None:
        """The place from which on every frame is normal, as far as that is known without looking at the file."""
        if not self._known:
            return None
        if self._tally.last == Priority.NORMAL:
            return self._tally.run_start
        if self._tally.last == NO_LANE and sum(self._tally.closed) == self._tally.closed[Priority.NORMAL]:
            return 0
        return None

    def forget_map(self) -> None:
        self._map = None

    def write(self, file: File, lanes: Lanes, after: int) -> None:
        """Add the lanes of frames that follow the first ``after`` ones to the file, and then to what is in memory.
        After an ``OSError``, ``undo`` makes the file right again."""
        changes = self._tally.changes(lanes, after)
        if len(changes):
            file.write(self._end(), changes.tobytes())
            self._take(changes)

    def undo(self, file: File) -> None:
        file.truncate(self._end())

    def seal(self, file: File, count: int, log_size: int) -> None:
        position, ending = self._end(), b""
        if not self._tally.is_closed:
            last = closing_entry(count)
            ending = last.tobytes()
            self._take(last)
        end_with(file, position, ending + footer(LANE_MAGIC, self.entries, log_size, self.checksum))

    def install(self, file: File, lanes: NDArray[np.uint8], after: int) -> None:
        """Write the index anew behind the first ``after`` frames, which it has."""
        if not after:
            self._begin_anew()
        file.truncate(self._end())
        self.write(file, lanes, after)

    def cut(self, tally: LaneTally, place: int) -> None:
        """Only the entries before a place are left, which ``tally`` has counted."""
        self._tally, self._known, self.last = tally, True, tally.last
        if self._map is not None:
            self._map.cut(tally, place)
            self._open_files.lanes_kept(self, self._map.size_bytes)

    def rebuild(self, file: File, lanes: NDArray[np.uint8], sealed_size: int | None) -> LaneMap:
        """Write the whole index anew; ``sealed_size`` is the size of the log of a sealed segment."""
        self._begin_anew()
        entries = self._tally.changes(lanes, 0) if sealed_size is None else sealed_entries(lanes)
        self._take(entries)
        try:
            file.truncate(0)
            file.write(0, entries.tobytes())
            if sealed_size is not None:
                self.seal(file, len(lanes), sealed_size)
        except OSError as error:
            # What is in memory is right, and what the file lacks will be noticed when it is read again.
            log.warning("index of lanes not written, it will be rebuilt", file=str(self.path), error=str(error))
        return self._keep_map(entries)

    def _take(self, entries: NDArray[np.void]) -> None:
        self._tally.take(entries)
        self.last = self._tally.last
        if self._map is not None:
            self._map.take(entries)
            self._open_files.lanes_kept(self, self._map.size_bytes)

    def _begin_anew(self) -> None:
        self._open_files.lanes_dropped(self)
        self._tally = LaneTally()
        self._known = True
        self.last = NO_LANE

    def _end(self) -> int:
        return self.entries * LANE_ENTRY.itemsize

    def restore(self, file: File, entries: int) -> None:
        """Be as the index was when it had so many entries; they are known to be right."""
        self._begin_anew()
        self._take(read_entries(file, LANE_ENTRY, entries))

    def load(self, log_size: int) -> bool:
        """Learn what a sealed segment's file says, unless it is known. Returns whether it can be believed."""
        if self._known:
            return True
        try:
            file = self._open_files.disk.open(self.path)
        except FileNotFoundError:
            return False
        count = verified_count(file, LANE_MAGIC, LANE_ENTRY.itemsize, log_size)
        if count is None or not are_sound(entries := read_entries(file, LANE_ENTRY, count)):
            return False
        self._tally.take(entries)
        self._known = True
        return True

    def totals(self, count: int) -> list[int]:
        return self._tally.totals(count)

    def map(self, file: File, count: int) -> LaneMap | None:
        """The map of a segment of ``count`` frames; ``None`` if the file is not what it must be."""
        if self._map is not None:
            self._open_files.lanes_used(self)
            return self._map
        entries = read_entries(file, LANE_ENTRY, self.entries)
        if len(entries) != self.entries or crc32c(entries.tobytes()) != self.checksum:
            return None
        if self._tally.is_closed and self._tally.run_start != count:
            return None
        return self._keep_map(entries)

    def _keep_map(self, entries: NDArray[np.void]) -> LaneMap:
        made = self._map = LaneMap()
        made.take(entries)
        self._open_files.lanes_kept(self, made.size_bytes)
        return made
