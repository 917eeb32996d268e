"""Frames at certain offsets of a partition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.read import find_damaged_frames
from goqueue.model.runs import Runs, offsets_in, pairs
from goqueue.wire.batch import FrameRun, join_runs, select_frames

_CLOSE = 16
"""Runs that lie no further apart are read as one."""


@dataclass(frozen=True, slots=True)
class SelectedFrames:
    """``upto``: what was wanted below and is not among ``offsets`` is not there, or damaged. Beyond, nobody looked."""

    run: FrameRun | None
    offsets: list[int]
    upto: int


async def read_frames_at(
    partition: Partition, wanted: Runs, max_bytes: int, limit: int | None = None
) -> SelectedFrames:
    """The frames at the wanted offsets, as many as ``max_bytes`` allow and at least one.

    Those that readers may see, unless another ``limit`` is given.
    """
    asked = set(offsets_in(wanted))
    runs: list[FrameRun] = []
    offsets: list[int] = []
    left = max_bytes
    for first, end in _spans(wanted):
        at = first
        while (at := max(at, partition.log.start_offset)) < end:
            if runs and left <= 0:
                return SelectedFrames(join_runs(runs), offsets, at)
            run, following = await partition.read(at, max(left, 1), end - at, limit)
            if run is None:
                break
            places, found = _sound(partition, run, asked)
            if places:
                runs.append(select_frames(run, places))
                offsets += found
                left -= len(runs[-1].frames)
            at = following
    return SelectedFrames(join_runs(runs) if runs else None, offsets, wanted[-1] if wanted else 0)


def _spans(wanted: Runs) -> Iterator[tuple[int, int]]:
    start = stop = -1
    for first, end in pairs(wanted):
        if start >= 0 and first - stop > _CLOSE:
            yield start, stop
            start = first
        elif start < 0:
            start = first
        stop = end
    if start >= 0:
        yield start, stop


def _sound(partition: Partition, run: FrameRun, asked: set[int]) -> tuple[list[int], list[int]]:
    """Places and offsets of the frames that are asked for."""
    columns = run.columns()
    damaged = find_damaged_frames(partition, run, columns)
    offsets = columns["offset"].tolist()
    places = [place for place, offset in enumerate(offsets) if offset in asked and place not in damaged]
    return places, [offsets[place] for place in places]
