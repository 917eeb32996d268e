"""An event loop whose time passes only while it has nothing to do, and then at once."""

from __future__ import annotations

import asyncio
import selectors


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """For what lives on the loop alone: a wait ends when all else stands still, whatever the machine does meanwhile.

    Not for sockets and threads: they would find that all time has passed.
    """

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_LeapingSelector(self))

    def time(self) -> float:
        return self._now_s

    def leap(self, seconds: float) -> None:
        self._now_s += seconds


class _LeapingSelector(selectors.DefaultSelector):
    """Instead of waiting for so long, it says that so long has passed."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("nothing is left to wait for: the test would hang")
        self._loop.leap(timeout)
        return ready
