"""Rate per second as a moving average."""

from __future__ import annotations

from math import exp

from goqueue.model.clock import NANOS_PER_SECOND

_MEMORY_S = 60.0
"""Time constant: events this old count for about a third."""


class Rate:
    """A total, and an exponentially weighted average over about the last minute. Times are passed in."""

    __slots__ = ("_at_ns", "_level", "total")

    def __init__(self) -> None:
        self.total = 0
        self._level = 0.0
        self._at_ns = 0

    def add(self, count: int, now_ns: int) -> None:
        self._fade(now_ns)
        self.total += count
        self._level += count

    def per_second(self, now_ns: int) -> float:
        self._fade(now_ns)
        return self._level / _MEMORY_S

    def _fade(self, now_ns: int) -> None:
        passed_ns = now_ns - self._at_ns
        if passed_ns > 0:
            # After a clock is set back, the average decays again once the clock has caught up.
            self._level *= exp(-passed_ns / (_MEMORY_S * NANOS_PER_SECOND))
            self._at_ns = now_ns
