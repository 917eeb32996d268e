"""A bound on file descriptors: the segments used last keep their files open, the others are closed."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple, Protocol

from goqueue.storage.files import File, Files


class SegmentFiles(NamedTuple):
    """The open files of one segment."""

    log: File
    positions: File
    times: File


class Holder(Protocol):
    """Something that keeps files open and can let go of them."""

    def release(self) -> None: ...


class OpenFiles:
    """Closes the least recently used first; what a reader or an fsync in a thread still uses stays open meanwhile."""

    def __init__(self, files: Files, max_open_files: int) -> None:
        self.disk = files
        self._max_holders = max(1, max_open_files // len(SegmentFiles._fields))
        self._holders: OrderedDict[Holder, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders) * len(SegmentFiles._fields)

    def opened(self, holder: Holder) -> None:
        """``holder`` has just opened its files; whoever was used longest ago may lose theirs."""
        self._holders[holder] = None
        while len(self._holders) > self._max_holders:
            oldest, _ = self._holders.popitem(last=False)
            oldest.release()

    def used(self, holder: Holder) -> None:
        self._holders.move_to_end(holder)

    def closed(self, holder: Holder) -> None:
        if self._holders.pop(holder, self) is None:
            holder.release()
