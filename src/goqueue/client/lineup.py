"""In which order parcels that have come are opened: as they came, but for those that are more urgent than all others.

The broker has given each lane its share, so what came is handed out as it came. Only a lane of which nothing is here,
and nothing more urgent, goes first: it has become busy since, and would wait behind everything that was fetched ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Generic, Protocol, TypeVar

_PATIENCE_S = 30.0
"""What has waited for so long is overtaken no more."""


class Placed(Protocol):
    lane: int
    arrived: float


Item = TypeVar("Item", bound=Placed)


class Lineup(Generic[Item]):
    def __init__(self) -> None:
        self._first: deque[Item] = deque()
        self._others: deque[Item] = deque()

    def __bool__(self) -> bool:
        return bool(self._first or self._others)

    def __iter__(self) -> Iterator[Item]:
        yield from self._first
        yield from self._others

    def put(self, item: Item, current: Item | None) -> bool:
        """Whether it goes before the rest of the ``current`` one, which is open."""
        item.arrived = monotonic()
        is_less_urgent = current is not None and current.lane > item.lane
        if any(each.lane <= item.lane for each in self._others) or not (self._others or is_less_urgent):
            self._others.append(item)
            return False
        at = sum(each.lane <= item.lane for each in self._first)
        self._first.insert(at, item)
        return is_less_urgent

    def put_back(self, item: Item) -> None:
        """What is left of one that was overtaken."""
        self._others.appendleft(item)

    def take(self) -> Item:
        others = self._others
        if self._first and not (others and monotonic() - others[0].arrived > _PATIENCE_S):
            return self._first.popleft()
        return others.popleft()

    def set(self, items: Iterable[Item]) -> None:
        """In this order from now on."""
        self._first.clear()
        self._others = deque(items)
