"""What a log has lost: ranges of offsets whose messages were damaged or gone when somebody looked.

A file beside the segments (``damage``) has them from before the damage is taken out of these. Until a person has
acknowledged a range, whoever reads over it gets frames that fail their checksums in the place of what is lost, and so
finds damage by the way in which every reader does. Afterwards the offsets are stepped over.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from goqueue.model.errors import CorruptData
from goqueue.model.logging import get_logger
from goqueue.storage.files.atomic import read_checked, write_atomically
from goqueue.storage.files.files import Files
from goqueue.storage.log.scan import MOST_OFFSETS, Scan
from goqueue.wire.batch import HEADER_COLUMNS, FrameRun
from goqueue.wire.frame import HEADER_SIZE, encode_frame

log = get_logger(__name__)

FILE_NAME = "damage"


class LostRange(msgspec.Struct, frozen=True):
    """Offsets ``first`` to before ``end``."""

    first: int
    end: int
    found_ns: int
    acknowledged_ns: int = 0
    """0: not yet."""

    def shown(self) -> str:
        return (
            f"offset {self.first} is" if self.end == self.first + 1 else f"offsets {self.first} to {self.end - 1} are"
        )


class Lost:
    """The ranges that one log has lost."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._path = folder / FILE_NAME
        self.ranges: list[LostRange] = []
        self.is_unreadable = False
        """Whether the file was itself damaged: what was lost before, and not acknowledged, is not known any more."""
        try:
            payload = read_checked(files, self._path)
            if payload is not None:
                self.ranges = msgspec.json.decode(payload, type=list[LostRange])
        except (CorruptData, msgspec.MsgspecError) as error:
            self.is_unreadable = True
            log.error("what a log has lost is not known any more", file=str(self._path), error=str(error))
        self._take(self.ranges)

    def _take(self, ranges: list[LostRange]) -> None:
        self.ranges = ranges
        self.open = [each for each in ranges if not each.acknowledged_ns]
        """Those that nobody has acknowledged, in order."""

    @property
    def end(self) -> int:
        """Behind the last offset that is known to be lost: what was given out once is not given out again."""
        return self.ranges[-1].end if self.ranges else 0

    def record(self, first: int, end: int, now_ns: int) -> None:
        """Offsets lost from ``first`` to before ``end``; what is known already stays. Durable when this returns."""
        ranges = self._with(first, end, now_ns)
        new = [each for each in ranges if each not in self.ranges]
        if new:
            write_atomically(self._files, self._path, encoded(ranges))
            self._take(ranges)
            log.error(
                "messages are lost", folder=str(self._path.parent), offsets=[[each.first, each.end - 1] for each in new]
            )

    def note(self, first: int, end: int) -> None:
        """The same for those who only look: nothing is written."""
        self._take(self._with(first, end, 0))

    def _with(self, first: int, end: int, now_ns: int) -> list[LostRange]:
        edges = [first, *(each for known in self.ranges for each in (known.first, known.end)), end]
        edges = sorted({min(max(each, first), end) for each in edges})
        new = [LostRange(low, high, now_ns) for low, high in pairwise(edges) if not self._has(low)]
        return sorted([*self.ranges, *new], key=_first)

    def _has(self, offset: int) -> bool:
        at = bisect_right(self.ranges, offset, key=_first) - 1
        return at >= 0 and offset < self.ranges[at].end

    def has_all(self, each: tuple[int, int]) -> bool:
        """Whether all offsets from the first to before the second are known to be lost."""
        return len(self._with(*each, 0)) == len(self.ranges)

    def covers(self, offset: int) -> bool:
        """Whether an offset is lost, and nobody has acknowledged it."""
        found = self.next_open(offset)
        return found is not None and found.first <= offset

    def next_open(self, offset: int) -> LostRange | None:
        """The first range that nobody has acknowledged and that ends behind ``offset``."""
        if not self.open:
            return None
        at = max(0, bisect_right(self.open, offset, key=_first) - 1)
        return next((each for each in self.open[at : at + 2] if each.end > offset), None)

    def acknowledged(self, now_ns: int) -> list[LostRange]:
        """What the ranges become when a person acknowledges all of them."""
        return [
            each if each.acknowledged_ns else msgspec.structs.replace(each, acknowledged_ns=now_ns)
            for each in self.ranges
        ]

    def save(self, ranges: Sequence[LostRange]) -> None:
        """Durable when this returns. May be called in a thread."""
        write_atomically(self._files, self._path, encoded(ranges))

    def saved(self, ranges: list[LostRange]) -> None:
        """From here on these hold; they are on the disk."""
        self.is_unreadable = False
        self._take(ranges)

    def clip(self, offset: int) -> None:
        """Forget everything from ``offset`` on: these offsets are given out anew. Durable when this returns."""
        if self.end > offset:
            self.forget_from(offset)
            write_atomically(self._files, self._path, encoded(self.ranges))

    def forget_from(self, offset: int) -> None:
        """The same in memory; the file tells so already."""
        self._take(
            [msgspec.structs.replace(each, end=min(each.end, offset)) for each in self.ranges if each.first < offset]
        )


def lost_ranges(found: Scan, size: int, below: int, durable_to: int) -> list[tuple[int, int]]:
    """The offsets that a scan of a segment has found lost. Its file has this ``size``, and the next one begins at
    ``below``. Behind the segment that takes appends a recovery point tells what is missing at the end."""
    ranges = [(each.first_offset, each.end_offset) for each in found.damage if each.is_lost]
    if found.end < min(size, durable_to) and below < MOST_OFFSETS:
        ranges.append((found.next_offset, below))
    return [(first, end) for first, end in ranges if first < end]


def record_lost(lost: Lost, found: Scan, size: int, below: int, durable_to: int, now_ns: int) -> None:
    for first, end in lost_ranges(found, size, below, durable_to):
        lost.record(first, end, now_ns)


def encoded(ranges: Sequence[LostRange]) -> bytes:
    return msgspec.json.encode(ranges)


def lost_frames(of: LostRange, first: int, end: int) -> FrameRun:
    """Empty frames for offsets ``first`` to before ``end`` that fail their checksums, of the time of the find."""
    columns = np.frombuffer(encode_frame(b"", b"", b"", of.found_ns) * (end - first), HEADER_COLUMNS).copy()
    columns["checksum"] ^= 0xFFFFFFFF
    columns["offset"] = np.arange(first, end)
    positions = np.arange(0, len(columns) * HEADER_SIZE, HEADER_SIZE, dtype=np.uint32)
    return FrameRun(memoryview(columns.tobytes()), positions)


def _first(each: LostRange) -> int:
    return each.first
