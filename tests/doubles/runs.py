"""Frames as runs, and runs as frames."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from goqueue.wire.batch import FrameRun, join_runs


def run_of(frames: Sequence[bytes]) -> FrameRun:
    return join_runs([FrameRun.of_one(frame) for frame in frames])


def frames_of(run: FrameRun) -> list[bytes]:
    bounds = [*run.positions.tolist(), len(run.frames)]
    return [bytes(run.frames[start:end]) for start, end in pairwise(bounds)]
