"""One timer for each of many keys, at the earliest time that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import count
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from goqueue.broker.runtime.timer_service import Owner, TimerService
from goqueue.delivery.wheel import Entries

Key = TypeVar("Key", bound=Hashable)


class NamedTimers(Generic[Key]):
    def __init__(self, timers: TimerService, ring: Callable[[list[Key]], None]) -> None:
        """``ring`` gets the keys whose time has come."""
        self._timers = timers
        self._ring = ring
        self._set: dict[Key, tuple[int, int]] = {}
        """Time and number of each key's timer."""
        self._keys: dict[int, Key] = {}
        """By the number of the timer that was set last for each."""
        self._numbers = count()
        self._owner = timers.register(Owner(self._on_due, self._wants, lambda: len(self._keys)))

    def set(self, key: Key, at_ns: int | None) -> None:
        """Ring for ``key`` at this time, or earlier if that was asked for before."""
        if at_ns is None:
            return
        before = self._set.get(key)
        if before is not None:
            if before[0] <= at_ns:
                return
            del self._keys[before[1]]
        number = next(self._numbers)
        self._set[key] = at_ns, number
        self._keys[number] = key
        self._timers.set(at_ns, self._owner, number)

    def forget(self, key: Key) -> None:
        """Do not ring for ``key``."""
        before = self._set.pop(key, None)
        if before is not None:
            del self._keys[before[1]]

    def _on_due(self, due: Entries) -> None:
        keys = [key for number in due[:, 2].tolist() if (key := self._keys.pop(number, None)) is not None]
        for key in keys:
            del self._set[key]
        if keys:
            self._ring(keys)

    def _wants(self, entries: Entries) -> NDArray[np.bool_]:
        return np.fromiter((number in self._keys for number in entries[:, 2].tolist()), np.bool_, len(entries))
