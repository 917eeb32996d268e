"""Repeating a measurement, and what its numbers say."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from bench.figure import rounded
from bench.report import note


def repeat(label: str, measure: Callable[[], float], times: int = 5, budget_s: float = 30.0) -> list[float]:
    """Call ``measure`` ``times`` times, fewer if the next call would not fit into ``budget_s``; at least once."""
    begun = time.perf_counter()
    runs: list[float] = []
    while len(runs) < times:
        started = time.perf_counter()
        runs.append(measure())
        now = time.perf_counter()
        note(f"{label}: run {len(runs)} of {times}: {rounded(runs[-1]):,}")
        if now - begun + (now - started) > budget_s:
            break
    return runs


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` (0 to 1) of all values do not exceed."""
    ordered = sorted(values)
    rank = max(1, -int(-len(ordered) * share // 1))
    return ordered[min(rank, len(ordered)) - 1]
