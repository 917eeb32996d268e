"""Bounds on what segments keep: those used last have their files open and their lanes in memory, the others do not."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from goqueue.model.clock import NANOS_PER_SECOND
from goqueue.storage.files.files import File, Files

_LATELY_NS = 10 * NANOS_PER_SECOND

SUFFIXES = (".log", ".index", ".timeindex", ".lanes")
"""Of a segment's files, in the order of ``SegmentFiles``."""
_SEGMENT_NAME = re.compile(r"(\d{20})\.log")


def bases_in(names: Iterable[str]) -> list[int]:
    """The first offsets of the segments whose files are among these, in order."""
    return sorted(int(match[1]) for name in names if (match := _SEGMENT_NAME.fullmatch(name)))


class SegmentFiles(NamedTuple):
    """The open files of one segment."""

    log: File
    positions: File
    times: File
    lanes: File


class Holder(Protocol):
    """Something that keeps files open and can let go of them."""

    def release(self) -> None: ...


class LaneHolder(Protocol):
    """Something that keeps a map of lanes in memory and can let go of it."""

    def forget_map(self) -> None: ...


class OpenFiles:
    """Closes the least recently used first; what a reader or an fsync in a thread still uses stays open meanwhile."""

    def __init__(self, files: Files, max_open_files: int, max_lane_bytes: int = 64 << 20) -> None:
        self.disk = files
        self.no_room_at_ns: int | None = None
        """When a log last found the disk full although there should have been room, by the logs' clock."""
        self._max_lane_bytes = max_lane_bytes
        self.lane_bytes = 0
        """What all maps of lanes in memory take together."""
        self._lane_holders: OrderedDict[LaneHolder, int] = OrderedDict()
        self._max_holders = max(1, max_open_files // len(SegmentFiles._fields))
        self._holders: OrderedDict[Holder, None] = OrderedDict()
        self.used: Callable[[Holder], None] = self._holders.move_to_end
        """To be called when a holder uses its open files."""

    def found_no_room_lately(self, now_ns: int) -> bool:
        """Whether that was in the last 10 s."""
        return self.no_room_at_ns is not None and abs(now_ns - self.no_room_at_ns) < _LATELY_NS

    def __len__(self) -> int:
        return len(self._holders) * len(SegmentFiles._fields)

    def opened(self, holder: Holder) -> None:
        """``holder`` has just opened its files; whoever was used longest ago may lose theirs."""
        self._holders[holder] = None
        while len(self._holders) > self._max_holders:
            oldest, _ = self._holders.popitem(last=False)
            oldest.release()

    def closed(self, holder: Holder) -> None:
        if self._holders.pop(holder, self) is None:
            holder.release()

    def lanes_kept(self, holder: LaneHolder, size_bytes: int) -> None:
        """``holder`` has a map of this size now; whoever was used longest ago may lose theirs, and at last its own."""
        self.lane_bytes += size_bytes - self._lane_holders.get(holder, 0)
        self._lane_holders[holder] = size_bytes
        self._lane_holders.move_to_end(holder)
        while self.lane_bytes > self._max_lane_bytes:
            oldest, size = self._lane_holders.popitem(last=False)
            self.lane_bytes -= size
            oldest.forget_map()

    def lanes_used(self, holder: LaneHolder) -> None:
        self._lane_holders.move_to_end(holder)

    def lanes_dropped(self, holder: LaneHolder) -> None:
        size = self._lane_holders.pop(holder, None)
        if size is not None:
            self.lane_bytes -= size
            holder.forget_map()
