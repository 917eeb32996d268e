"""Long work on the loop is done in stretches, so that nobody else waits for all of it."""

from __future__ import annotations

import asyncio

from goqueue.model.clock import stopwatch

_STRETCH_S = 0.002


class TimeSlice:
    """For long work whose pieces differ: asked after each of them, it says when to give way."""

    __slots__ = ("_at_most_s", "_now_s", "_until")

    def __init__(self, at_most_s: float = _STRETCH_S) -> None:
        self._at_most_s = at_most_s
        self._now_s = stopwatch.now_s
        self._until = self._now_s() + at_most_s

    @property
    def is_over(self) -> bool:
        return self._now_s() > self._until

    async def rest(self) -> None:
        """The others first; then a new stretch begins."""
        await asyncio.sleep(0)
        self._until = self._now_s() + self._at_most_s
