"""A set that can be read in sorted order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

Item = TypeVar("Item", bound=Any)


class SortedSet(Generic[Item]):
    """Sorts on the first ordered read after a change. Most items are in order then, so this takes little time."""

    __slots__ = ("_items", "_sorted")

    def __init__(self) -> None:
        self._items: dict[Item, None] = {}
        self._sorted: list[Item] | None = None

    def add(self, item: Item) -> None:
        if item not in self._items:
            self._items[item] = None
            self._sorted = None

    def discard(self, item: Item) -> None:
        if item in self._items:
            del self._items[item]
            self._sorted = None

    def unordered(self) -> Iterator[Item]:
        return iter(self._items)

    def ordered(self) -> list[Item]:
        """The items in order. The caller must not change the list."""
        if self._sorted is None:
            self._sorted = sorted(self._items)
            self._items = dict.fromkeys(self._sorted)
        return self._sorted

    def __contains__(self, item: Item) -> bool:
        return item in self._items

    def __len__(self) -> int:
        return len(self._items)
