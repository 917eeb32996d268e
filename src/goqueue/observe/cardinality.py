"""Limits on the number of labelled series exported to a monitoring system.

Series are assigned first come, first served, and kept: series that come and go between two scrapes are useless.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable

from goqueue.observe.exposition import Figures
from goqueue.observe.histogram import Histogram

_Seen = tuple[Hashable, str, str]
"""An owner, and its series in the remainder: name and labels."""


class SeriesBudget:
    """A fixed number of slots for series. An owner keeps its slots until it no longer exists."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: dict[Hashable, int] = {}
        self.left = most

    def take(self, who: Hashable, wanted: int = 1) -> int:
        """Assign up to ``wanted`` slots to ``who``; returns the number that it has now."""
        has = self._taken.get(who, 0)
        if has < wanted and self.left:
            more = min(wanted - has, self.left)
            self.left -= more
            has = self._taken[who] = has + more
        return min(has, wanted)

    def keep(self, alive: Collection[Hashable]) -> None:
        """Free the slots of all owners that are not ``alive``."""
        for who in [each for each in self._taken if each not in alive]:
            self.left += self._taken.pop(who)


class OverflowTotals:
    """Sums over all owners that have no series of their own.

    The sums never decrease when owners go: a falling counter is read as a restart, and its whole value as new.
    """

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str], float] = {}
        self._histograms: dict[tuple[str, str], Histogram] = {}
        self._before: dict[_Seen, float] = {}
        self._now: dict[_Seen, float] = {}
        self._histograms_before: dict[_Seen, Histogram] = {}
        self._histograms_now: dict[_Seen, Histogram] = {}

    def count(self, who: Hashable, name: str, labels: str, value: float) -> None:
        """Record the present value of an owner's counter."""
        seen = (who, name, labels)
        before = self._now.get(seen, self._before.get(seen, 0))
        series = (name, labels)
        self._totals[series] = self._totals.get(series, 0) + (value - before if value >= before else value)
        self._now[seen] = value

    def observe(self, who: Hashable, name: str, labels: str, histogram: Histogram) -> None:
        """Record the present state of an owner's histogram."""
        seen = (who, name, labels)
        before = self._histograms_now.get(seen, self._histograms_before.get(seen))
        total = self._histograms.setdefault((name, labels), Histogram(histogram.bounds))
        total.add(histogram if before is None else histogram.since(before))
        self._histograms_now[seen] = histogram.copy()

    def add_to(self, figures: Figures) -> None:
        """Add the sums to ``figures``, once all owners are recorded that exist and have no series of their own."""
        self._before, self._now = self._now, {}
        self._histograms_before, self._histograms_now = self._histograms_now, {}
        for (name, labels), total in self._totals.items():
            figures.add(name, total, labels)
        for (name, labels), histogram in self._histograms.items():
            figures.add_histogram(name, histogram, labels)
