"""What is over, and numbers that never fall: members that have left, producers that were replaced, generations.

Both go by what clients were told. A request that was asked for after its asker's time was told to be over must not
succeed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable


class Fences:
    """``tick`` counts what was told, to order it."""

    def __init__(self, tick: Callable[[], int], broken: Callable[[str], Exception]) -> None:
        self._tick = tick
        self._broken = broken
        self._over: dict[Hashable, int] = {}
        self._reached: dict[Hashable, tuple[int, int]] = {}

    def end(self, what: Hashable) -> None:
        """A client was told that its time is over."""
        self._over.setdefault(what, self._tick())

    def check(self, what: Hashable, asked_at: int, did: str) -> None:
        """Something was done in its name that was asked for at ``asked_at``."""
        if self._over.get(what, asked_at) < asked_at:
            raise self._broken(f"{did}, as {what}, whose time was over")

    def reach(self, what: Hashable, number: int, asked_at: int) -> None:
        """A client was told a number that only rises."""
        known, told_at = self._reached.get(what, (number, asked_at))
        if number < known and told_at < asked_at:
            raise self._broken(f"{what} is {number}, after it was {known}")
        if number >= known:
            self._reached[what] = (number, self._tick())

    def was_passed(self, what: Hashable, number: int, asked_at: int) -> bool:
        """Whether a higher number was told before something was asked for."""
        known, told_at = self._reached.get(what, (number, asked_at))
        return number < known and told_at < asked_at
