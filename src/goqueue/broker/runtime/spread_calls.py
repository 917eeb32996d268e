"""Many small things that are all to be done now: a few in each round of the loop, and others in between.

Waking thousands at once puts all of them in front of everybody else: a publish that comes a moment later waits until
the last of them has looked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

AT_A_ROUND = 16


class SpreadCalls(Generic[Item]):
    """Does something with each item, in the order in which they were added. One that waits for its round and is added
    again is done once."""

    def __init__(self, do: Callable[[Item], None]) -> None:
        self._do = do
        self._due: deque[Item] = deque()
        self._waiting: set[Item] = set()
        self._is_going = False

    def add(self, items: Iterable[Item]) -> None:
        """The first few are done at once, unless others wait already."""
        for item in items:
            if item not in self._waiting:
                self._waiting.add(item)
                self._due.append(item)
        if not self._is_going:
            self._go()

    def _go(self) -> None:
        try:
            for _ in range(min(AT_A_ROUND, len(self._due))):
                item = self._due.popleft()
                self._waiting.discard(item)
                self._do(item)
        finally:
            self._is_going = bool(self._due)
            if self._is_going:
                asyncio.get_running_loop().call_soon(self._go)


def wake(waiter: asyncio.Future[None]) -> None:
    """Whoever waits looks again."""
    if not waiter.done():
        waiter.set_result(None)
