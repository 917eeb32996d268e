"""Reading the records that delayed messages are until they become visible."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.read import find_damaged_frames
from goqueue.broker.runtime.time_slices import TimeSlice
from goqueue.wire.batch import FrameRun
from goqueue.wire.frame import Flag, read_whole

_CLOSE = 16
"""Offsets that lie no further apart are read as one run."""
_DELAYED = int(Flag.DELAYED)
_FEW = 32
"""So many are checked one by one in less time than by columns."""


async def read_delayed_records(
    partition: Partition, offsets: Sequence[int], max_bytes: int
) -> tuple[dict[int, memoryview], int]:
    """Frames by offset, and how many of ``offsets`` (ascending) were looked at: as many as ``max_bytes`` allow, and at
    least one. What was looked at and is not there is damaged or gone."""
    found: dict[int, memoryview] = {}
    wanted = set(offsets)
    looked, size = 0, 0
    stretch = TimeSlice() if len(offsets) > 1 else None
    while looked < len(offsets) and (not looked or size < max_bytes):
        if stretch is not None and stretch.is_over:
            # Messages that are due together may lie far apart: hundreds of them are then read one by one.
            await stretch.rest()
        last = looked
        while last + 1 < len(offsets) and offsets[last + 1] - offsets[last] <= _CLOSE:
            last += 1
        first = offsets[looked]
        slice_ = partition.log.read_kept(first, max(1, max_bytes - size), offsets[last] - first + 1)
        if slice_ is None:
            return found, len(offsets)
        run = await partition.load(slice_, first)
        found |= _sound_frames(partition, run, first, slice_.next_offset, wanted)
        size += len(run.frames)
        while looked < len(offsets) and offsets[looked] < slice_.next_offset:
            looked += 1
    return found, looked


def _sound_frames(partition: Partition, run: FrameRun, first: int, end: int, wanted: set[int]) -> dict[int, memoryview]:
    if len(run.positions) == end - first <= _FEW and (few := _all_sound(run, first, wanted)) is not None:
        return few
    columns = run.columns()
    unsound = find_damaged_frames(partition, run, columns)
    starts, ends = run.positions.tolist(), run.ends().tolist()
    delayed = (columns["flags"] & np.uint8(Flag.DELAYED) != 0).tolist()
    return {
        offset: run.frames[starts[place] : ends[place]]
        for place, offset in enumerate(columns["offset"].tolist())
        if offset in wanted and delayed[place] and place not in unsound
    }


def _all_sound(run: FrameRun, first: int, wanted: set[int]) -> dict[int, memoryview] | None:
    """The same of a run without gaps. ``None``: not every frame is beyond doubt, and a closer look is needed."""
    found: dict[int, memoryview] = {}
    edges = [*run.positions.tolist(), len(run.frames)]
    for place in range(len(edges) - 1):
        frame = run.frames[edges[place] : edges[place + 1]]
        header = read_whole(frame)
        if header is None:
            return None
        flags, offset = header[:2]
        if offset != first + place:
            return None
        if flags & _DELAYED and offset in wanted:
            found[offset] = frame
    return found
