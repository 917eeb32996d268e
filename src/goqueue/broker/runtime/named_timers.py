"""One time for each of many names, the earliest that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np
from numpy.typing import NDArray

from goqueue.broker.runtime.timer_service import Owner, TimerService
from goqueue.delivery.wheel import Entries


class NamedTimers:
    """``ring`` gets the names whose time has come."""

    def __init__(self, clockwork: TimerService, ring: Callable[[list[str]], None]) -> None:
        self._clockwork = clockwork
        self._ring = ring
        self._set: dict[str, tuple[int, int]] = {}
        self._names: dict[int, str] = {}
        """By the number of what was set last for each."""
        self._numbers = count()
        self._owner = clockwork.register(Owner(self._on_due, self._wants, lambda: len(self._names)))

    def set(self, name: str, at_ns: int | None) -> None:
        """Ring for ``name`` at this time, or earlier if that was asked for already."""
        if at_ns is None:
            return
        before = self._set.get(name)
        if before is not None:
            if before[0] <= at_ns:
                return
            del self._names[before[1]]
        number = next(self._numbers)
        self._set[name] = at_ns, number
        self._names[number] = name
        self._clockwork.set(at_ns, self._owner, number)

    def _on_due(self, due: Entries) -> None:
        names = [name for number in due[:, 2].tolist() if (name := self._names.pop(number, None)) is not None]
        for name in names:
            del self._set[name]
        if names:
            self._ring(names)

    def _wants(self, entries: Entries) -> NDArray[np.bool_]:
        return np.fromiter((number in self._names for number in entries[:, 2].tolist()), np.bool_, len(entries))
