"""Histogram of durations with fixed buckets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Histogram:
    """Counts by inclusive upper bound; a last bucket counts values above the largest bound."""

    __slots__ = ("bounds", "counts", "total_s")

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self.bounds = tuple(bounds_s)
        if not self.bounds or list(self.bounds) != sorted(set(self.bounds)):
            raise ValueError(f"bounds must rise, and there must be one at least: {bounds_s}")
        self.counts = [0] * (len(self.bounds) + 1)
        """One count per bound, plus one above the largest."""
        self.total_s = 0.0

    def observe(self, seconds: float, count: int = 1) -> None:
        """Count ``count`` durations of ``seconds``. A negative duration, from a clock set back, counts as zero."""
        if seconds < 0.0:
            seconds = 0.0
        self.counts[bisect_left(self.bounds, seconds)] += count
        self.total_s += seconds * count

    def observe_all(self, seconds: NDArray[np.float64]) -> None:
        """Count each duration of an array."""
        seconds = np.maximum(seconds, 0.0)
        for place, count in enumerate(np.bincount(np.searchsorted(self.bounds, seconds)).tolist()):
            self.counts[place] += count
        self.total_s += float(seconds.sum())

    def add(self, other: Histogram) -> None:
        """Add the counts of another histogram with the same bounds."""
        for place, count in enumerate(other.counts):
            self.counts[place] += count
        self.total_s += other.total_s

    def since(self, before: Histogram) -> Histogram:
        """Counts added since the state ``before``; all counts if the histogram was reset. Never negative."""
        if sum(self.counts) < sum(before.counts):
            return self
        more = Histogram(self.bounds)
        more.counts = [max(0, now - then) for now, then in zip(self.counts, before.counts, strict=True)]
        more.total_s = max(0.0, self.total_s - before.total_s)
        return more

    def copy(self) -> Histogram:
        same = Histogram(self.bounds)
        same.add(self)
        return same
