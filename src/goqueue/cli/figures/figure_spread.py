"""How long things took between two looks at a histogram, and what share of them took how long at the most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from goqueue.cli.figures.figure_text import Labels, Series


@dataclass(frozen=True, slots=True)
class Spread:
    """Counts by upper bound in seconds; the last bound is infinite."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]

    @property
    def count(self) -> float:
        return sum(self.counts)

    @property
    def last_bound(self) -> float:
        """The largest that is a number, in seconds; 0 if there is none."""
        return max(filter(math.isfinite, self.bounds), default=0.0)

    def quantile(self, share: float) -> float | None:
        """The time that ``share`` of all do not exceed, in seconds; as exact as the ranges are narrow.

        Within a range its things are taken to lie evenly. Above the last bound nobody knows how far: that is
        infinite. ``None`` if nothing was counted.
        """
        return quantile(self.bounds, self.counts, share)


NOTHING = Spread((), ())


def quantile(bounds: Sequence[float], counts: Sequence[float], share: float) -> float | None:
    """See ``Spread.quantile``."""
    wanted = sum(counts) * share
    if not wanted:
        return None
    below, low = 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=True):
        if count and below + count >= wanted:
            return bound if math.isinf(bound) else low + (bound - low) * (wanted - below) / count
        below += count
        low = bound
    return bounds[-1]


def between(before: Series | None, now: Series) -> Spread:
    """Of all series of the buckets together. ``before`` is None for all since the broker began."""
    more: dict[float, float] = {}
    for labels, value in now.items():
        bound = _bound(labels)
        if bound is not None:
            then = 0.0 if before is None else before.get(labels, 0.0)
            more[bound] = more.get(bound, 0.0) + max(0.0, value - then)
    if math.inf not in more:
        return NOTHING
    bounds = tuple(sorted(more))
    counts = []
    below = 0.0
    for bound in bounds:
        # Text has them added up; they rise, unless something was forgotten between two looks.
        counts.append(max(0.0, more[bound] - below))
        below = max(below, more[bound])
    return Spread(bounds, tuple(counts))


def _bound(labels: Labels) -> float | None:
    for name, value in labels:
        if name == "le":
            try:
                return float(value)
            except ValueError:
                return None
    return None
