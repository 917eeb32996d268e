"""Who has figures of its own when there are more than a monitoring system should be given.

First come, first served, and for good: figures that come and go between two scrapes are of no use to anyone.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable

from goqueue.observe.exposition import Figures
from goqueue.observe.histogram import Histogram

_Seen = tuple[Hashable, str, str]
"""Who, and which series of the rest that is part of: its name and labels."""


class SeriesBudget:
    """A number of places. Whoever has one keeps it until it is gone."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: dict[Hashable, int] = {}
        self.left = most

    def take(self, who: Hashable, wanted: int = 1) -> int:
        """How many of the places that it wants someone has, from now on."""
        has = self._taken.get(who, 0)
        if has < wanted and self.left:
            more = min(wanted - has, self.left)
            self.left -= more
            has = self._taken[who] = has + more
        return min(has, wanted)

    def keep(self, alive: Collection[Hashable]) -> None:
        """Everyone else is gone."""
        for who in [each for each in self._taken if each not in alive]:
            self.left += self._taken.pop(who)


class OverflowTotals:
    """What all that have no figures of their own have counted together.

    It never goes down, although they come and go: a counter that falls looks like a restart, and all that it shows from
    then on like new.
    """

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str], float] = {}
        self._histograms: dict[tuple[str, str], Histogram] = {}
        self._before: dict[_Seen, float] = {}
        self._now: dict[_Seen, float] = {}
        self._histograms_before: dict[_Seen, Histogram] = {}
        self._histograms_now: dict[_Seen, Histogram] = {}

    def count(self, who: Hashable, name: str, labels: str, value: float) -> None:
        """One of them has a counter that shows this now."""
        seen = (who, name, labels)
        before = self._now.get(seen, self._before.get(seen, 0))
        series = (name, labels)
        self._totals[series] = self._totals.get(series, 0) + (value - before if value >= before else value)
        self._now[seen] = value

    def observe(self, who: Hashable, name: str, labels: str, histogram: Histogram) -> None:
        """One of them has a histogram that shows this now."""
        seen = (who, name, labels)
        before = self._histograms_now.get(seen, self._histograms_before.get(seen))
        total = self._histograms.setdefault((name, labels), Histogram(histogram.bounds))
        total.add(histogram if before is None else histogram.since(before))
        self._histograms_now[seen] = histogram.copy()

    def add_to(self, figures: Figures) -> None:
        """All of them have been counted. Those who have not are gone, or have figures of their own now."""
        self._before, self._now = self._now, {}
        self._histograms_before, self._histograms_now = self._histograms_now, {}
        for (name, labels), total in self._totals.items():
            figures.add(name, total, labels)
        for (name, labels), histogram in self._histograms.items():
            figures.add_histogram(name, histogram, labels)
