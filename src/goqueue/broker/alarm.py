"""Wakes at the earliest of many times, and sleeps in between."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from goqueue.model.ports import NANOS_PER_SECOND

_LONGEST_SLEEP_S = 60.0
"""Clocks jump: a time that is far away is looked at again in between."""
_STALE_ALLOWED = 1_024


class Alarm:
    """One time for each key, the earliest that was asked for. ``ring`` gets the keys whose time has come."""

    def __init__(self, now_ns: Callable[[], int], ring: Callable[[list[str]], None]) -> None:
        self._now_ns = now_ns
        self._ring = ring
        self._at: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ns = 0
        self._stopped = False

    def set(self, key: str, at_ns: int | None) -> None:
        """Ring for ``key`` at this time, or earlier if that was asked for already."""
        if at_ns is None or self._stopped or self._at.get(key, at_ns + 1) <= at_ns:
            return
        self._at[key] = at_ns
        heapq.heappush(self._heap, (at_ns, key))
        if len(self._heap) > 2 * len(self._at) + _STALE_ALLOWED:
            self._heap = [(at, each) for each, at in self._at.items()]
            heapq.heapify(self._heap)
        self._arm()

    def ring(self) -> None:
        """Ring for everything whose time has come."""
        now_ns = self._now_ns()
        due: list[str] = []
        while self._heap and self._heap[0][0] <= now_ns:
            at_ns, key = heapq.heappop(self._heap)
            if self._at.get(key) == at_ns:
                del self._at[key]
                due.append(key)
        try:
            if due:
                self._ring(due)
        finally:
            self._arm()

    def stop(self) -> None:
        """For good: what is still settled meanwhile sets no more times."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._heap, self._at = None, [], {}

    def _arm(self) -> None:
        if not self._heap:
            return
        at_ns = self._heap[0][0]
        if self._timer is not None:
            if self._timer_at_ns <= at_ns:
                return
            self._timer.cancel()
        self._timer_at_ns = at_ns
        wait_s = min(_LONGEST_SLEEP_S, max(0.0, (at_ns - self._now_ns()) / NANOS_PER_SECOND))
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.ring()
