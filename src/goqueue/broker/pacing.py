"""Long work on the loop is done in stretches, so that nobody else waits for all of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from time import perf_counter
from typing import TypeVar

Item = TypeVar("Item")

_STRETCH_S = 0.002
_AT_A_STRETCH = 1_000
"""Messages: a millisecond or two, whatever is done with them here."""


async def in_stretches(items: Sequence[Item]) -> AsyncIterator[Sequence[Item]]:
    """All items in order, giving way to others between two stretches."""
    if len(items) <= _AT_A_STRETCH:
        yield items
        return
    for start in range(0, len(items), _AT_A_STRETCH):
        if start:
            await asyncio.sleep(0)
        yield items[start : start + _AT_A_STRETCH]


class Stretch:
    """For long work whose pieces differ: asked after each of them, it says when to give way."""

    def __init__(self, at_most_s: float = _STRETCH_S) -> None:
        self._at_most_s = at_most_s
        self._until = perf_counter() + at_most_s

    @property
    def is_over(self) -> bool:
        return perf_counter() > self._until

    async def rest(self) -> None:
        """The others first; then a new stretch begins."""
        await asyncio.sleep(0)
        self._until = perf_counter() + self._at_most_s
