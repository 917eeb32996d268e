"""The timers of an event loop, on time that the test owns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest


@dataclass(eq=False, slots=True)
class Timer:
    at_s: float
    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass(slots=True)
class Timers:
    """Stands in for the running loop as far as ``call_later`` goes."""

    now_s: float = 0.0
    fired: int = 0
    _timers: list[Timer] = field(default_factory=list)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self)

    def call_later(self, wait_s: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(self.now_s + wait_s, callback)
        self._timers.append(timer)
        return timer

    @property
    def waits_s(self) -> list[float]:
        """How long until each of those that are set."""
        return sorted(timer.at_s - self.now_s for timer in self._timers if not timer.cancelled)

    def fire_next(self) -> None:
        """Let time pass until the next one."""
        timer = min((each for each in self._timers if not each.cancelled), key=lambda each: each.at_s)
        self._timers.remove(timer)
        self.now_s = timer.at_s
        self.fired += 1
        timer.callback()
