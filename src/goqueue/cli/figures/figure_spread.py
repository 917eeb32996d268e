"""Latency distribution between two samples of a Prometheus histogram, and its quantiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from goqueue.cli.figures.figure_text import Labels, Series


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram: counts by upper bound in seconds; the last bound is infinite."""

    bounds: Sequence[float]
    counts: Sequence[float]

    @property
    def last_bound(self) -> float:
        """The largest finite bound in seconds; 0 if there is none."""
        return max(filter(math.isfinite, self.bounds), default=0.0)

    def quantile(self, share: float) -> float | None:
        """The duration in seconds that ``share`` of all measurements do not exceed, interpolated within a bucket.

        Infinite if it lies above the last finite bound; ``None`` if nothing was measured.
        """
        wanted = sum(self.counts) * share
        if not wanted:
            return None
        below, low = 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if count and below + count >= wanted:
                return bound if math.isinf(bound) else low + (bound - low) * (wanted - below) / count
            below += count
            low = bound
        return self.bounds[-1]


def distribution_between(before: Series, now: Series) -> Distribution:
    """The histogram of all bucket series together, of what was added since ``before``."""
    more: dict[float, float] = {}
    for labels, value in now.items():
        bound = _bound(labels)
        if bound is not None:
            more[bound] = more.get(bound, 0.0) + max(0.0, value - before.get(labels, 0.0))
    if math.inf not in more:
        return Distribution((), ())
    bounds = sorted(more)
    counts = []
    below = 0.0
    for bound in bounds:
        # Buckets are cumulative in the text; they only fall if a series disappeared between the two samples.
        counts.append(max(0.0, more[bound] - below))
        below = max(below, more[bound])
    return Distribution(bounds, counts)


def _bound(labels: Labels) -> float | None:
    try:
        return float(dict(labels)["le"])
    except (KeyError, ValueError):
        return None
