"""Reading a run of consecutive frames from the file of a segment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from goqueue.storage.files.files import File
from goqueue.storage.log.known_offsets import Known, as_placed
from goqueue.wire.batch import FrameRun


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
        run = FrameRun(memoryview(self.file.read(self.position, self.size)), self.positions)
        return as_placed(run, self.offsets)
