"""Weighted round robin over priority lanes, for messages buffered in the consumer.

Many messages may be prefetched, and urgent ones must not wait behind all of them. So lanes take turns as they do at the
broker: in each round a lane hands out up to its weight in messages, the most urgent lane first, without carry-over.
This keeps the proportions in which the broker delivered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

_WEIGHTS = (100, 50, 30, 14, 6)
"""A topic may be configured with other weights; these apply to prefetched messages only."""


class LaneItem(Protocol):
    lane: int
    left: int
    """Approximate number of messages in it."""


Item = TypeVar("Item", bound=LaneItem)


class FairOrder(Generic[Item]):
    def __init__(self) -> None:
        self._lanes: dict[int, deque[Item]] = {}
        """Lanes with items only."""
        self._credit = list(_WEIGHTS)

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def __iter__(self) -> Iterator[Item]:
        for lane in sorted(self._lanes):
            yield from self._lanes[lane]

    def put(self, item: Item, current: Item | None) -> bool:
        """Add an item; return whether the open one, ``current``, has to wait for it."""
        self._lanes.setdefault(item.lane, deque()).append(item)
        return current is not None and item.lane < current.lane and self._credit[item.lane] > 0

    def put_back(self, item: Item) -> None:
        """Put back the rest of an opened item."""
        self._lanes.setdefault(item.lane, deque()).appendleft(item)

    def take(self) -> tuple[Item, int | None]:
        """The next item, and how many of its messages may be handed out before another lane's turn; ``None``: all."""
        lane = next((lane for lane in sorted(self._lanes) if self._credit[lane] > 0), None)
        if lane is None or len(self._lanes) == 1:
            # A lane that is alone takes all turns, and every round ends at once.
            self._credit = list(_WEIGHTS)
            lane = min(self._lanes)
        is_alone = len(self._lanes) == 1
        waiting = self._lanes[lane]
        item = waiting.popleft()
        if not waiting:
            del self._lanes[lane]
        if is_alone:
            return item, None
        most = self._credit[lane]
        count = min(most, max(1, item.left))
        self._credit[lane] -= count
        item.left -= count
        return item, most

    def set(self, items: Iterable[Item]) -> None:
        """Replace all items, in this order within each lane."""
        self._lanes = {}
        for item in items:
            self._lanes.setdefault(item.lane, deque()).append(item)
