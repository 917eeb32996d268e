"""In which order what has come is handed out.

Much may have been fetched ahead, and what is urgent must not wait behind all of it. So lanes take turns here as they do
at the broker: in each round a lane hands out as many messages as its weight, the most urgent lane first, and nothing is
saved up. What came has the shares that the broker gave it, and keeps them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

_WEIGHTS = (100, 50, 30, 14, 6)
"""A topic may have others; by these its lanes only share what was fetched ahead."""


class Placed(Protocol):
    lane: int
    left: int
    """About how many messages are in it."""


Item = TypeVar("Item", bound=Placed)


class Lineup(Generic[Item]):
    def __init__(self) -> None:
        self._lanes: dict[int, deque[Item]] = {}
        """Only those that have something."""
        self._credit = list(_WEIGHTS)

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def __iter__(self) -> Iterator[Item]:
        for lane in sorted(self._lanes):
            yield from self._lanes[lane]

    def put(self, item: Item, current: Item | None) -> bool:
        """Whether the ``current`` one, which is open, has to wait for this one."""
        self._lanes.setdefault(item.lane, deque()).append(item)
        return current is not None and item.lane < current.lane and self._credit[item.lane] > 0

    def put_back(self, item: Item) -> None:
        """What is left of one that was open."""
        self._lanes.setdefault(item.lane, deque()).appendleft(item)

    def take(self) -> tuple[Item, int | None]:
        """The next, and how many of it may be handed out before another lane has its turn; ``None``: all of it."""
        lane = next((lane for lane in sorted(self._lanes) if self._credit[lane] > 0), None)
        if lane is None or len(self._lanes) == 1:
            # A lane that is alone takes the turns of all others, and every round is over at once.
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
        """Only these, and in this order within each lane."""
        self._lanes = {}
        for item in items:
            self._lanes.setdefault(item.lane, deque()).append(item)
