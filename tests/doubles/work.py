"""Work, counted in calls of functions: the same on every machine, however busy it is with others."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from types import FrameType

_COUNTED = frozenset({"call", "c_call"})


async def calls_of(work: Callable[[], Awaitable[object]], times: int = 7) -> int:
    """How many functions this thread calls while ``work`` runs; the least of several, as others may share the loop."""
    counts = []
    for _ in range(times):
        counts.append(await _calls_once(work))
    return min(counts)


async def _calls_once(work: Callable[[], Awaitable[object]]) -> int:
    count = 0

    def see(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in _COUNTED

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        await work()
    finally:
        sys.setprofile(before)
    return count
