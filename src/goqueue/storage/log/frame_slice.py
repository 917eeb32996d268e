"""Reading a run of consecutive frames from the file of a segment.

Offsets are known by where a frame lies. What it says of itself is not believed: no checksum covers it.
A frame with another offset than it has by its place is handed on under the one that it has, and so that it fails its
checksum: whoever reads it finds it damaged, by the way in which every reader finds damage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from goqueue.model.errors import OffsetOutOfRange
from goqueue.storage.files.files import File
from goqueue.wire.batch import FrameRun
from goqueue.wire.frame import CHECKSUM_AT, CHECKSUM_FROM

Offsets = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Within:
    """All that is known where an index of an earlier version does not tell the offsets of a compacted segment: they
    rise, and lie from ``low`` to before ``high``."""

    low: int
    high: int


Known = int | Offsets | Within
"""The offsets of the frames of a run: those from the first on, one by one, or bounds."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Where a run of frames lies. ``load`` may be called in a thread; it touches nothing but the file."""

    file: File
    position: int
    size: int
    positions: NDArray[np.uint32]
    offsets: Known
    next_offset: int
    """The offset to go on from behind this run."""

    def load(self) -> FrameRun:
        frames = self.file.read(self.position, self.size)
        if len(frames) < self.size:
            raise OffsetOutOfRange(f"what lies before offset {self.next_offset} was cut off the log while it was read")
        run = FrameRun(memoryview(frames), self.positions)
        return as_placed(run, self.offsets)


def as_placed(run: FrameRun, known: Known) -> FrameRun:
    """The run as it is if its frames say what is known of their offsets."""
    said = run.said_offsets()
    if isinstance(known, Within):
        expected = _fitting(said.byteswap(), known)
    else:
        expected = np.arange(known, known + len(said)) if isinstance(known, int) else known
    # Both as they lie in the file: turning the one round costs less than turning both.
    wrong = said != expected.byteswap()
    return _marked(run, np.flatnonzero(wrong), expected) if wrong.any() else run


def _marked(run: FrameRun, wrong: NDArray[np.intp], expected: Offsets) -> FrameRun:
    frames = bytearray(run.frames)
    starts, ends = run.positions.tolist(), run.ends().tolist()
    for place in wrong.tolist():
        start, end = starts[place], ends[place]
        no_checksum = ~crc32c(run.frames[start + CHECKSUM_FROM : end]) & 0xFFFFFFFF
        frames[start + CHECKSUM_AT : start + CHECKSUM_FROM] = no_checksum.to_bytes(4) + int(expected[place]).to_bytes(8)
    return replace(run, frames=memoryview(frames), misplaced=tuple(expected[wrong].tolist()))


def _fitting(said: Offsets, bounds: Within) -> Offsets:
    """What is said, where each offset leaves room for those before and behind it; else the least that does."""
    least = np.arange(bounds.low, bounds.low + len(said))
    most = least + (bounds.high - bounds.low - len(said))
    if not ((said < least) | (said > most)).any() and (np.diff(said) > 0).all():
        return said
    found = said.tolist()
    at = bounds.low
    for place, (offset, highest) in enumerate(zip(found, most.tolist(), strict=True)):
        if not at <= offset <= highest:
            found[place] = at
        at = found[place] + 1
    return np.array(found, np.int64)
