"""A cache that evicts what was used least recently."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """Values by key, of a limited total size. The latest one is kept even if it is larger than the limit alone.

    ``peek`` reads a value without counting as a use of it. Not thread-safe, except for ``peek``.
    """

    def __init__(self, max_size: int) -> None:
        self.size = 0
        self._max_size = max_size
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._sizes: dict[Key, int] = {}
        self.peek = self._values.get

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._values)

    def get(self, key: Key) -> Value | None:
        found = self._values.get(key)
        if found is not None:
            self._values.move_to_end(key)
        return found

    def put(self, key: Key, value: Value, size: int = 1) -> None:
        """Add or replace a value, and evict others if it takes their room."""
        self.drop(key)
        self._values[key] = value
        self._sizes[key] = size
        self.size += size
        while self.size > self._max_size and len(self._values) > 1:
            self.drop(next(iter(self._values)))

    def drop(self, key: Key) -> None:
        if self._values.pop(key, None) is not None:
            self.size -= self._sizes.pop(key)
