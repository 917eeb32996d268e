"""Time that a test owns."""

from __future__ import annotations

START_NS = 1_700_000_000_000_000_000
MS = 1_000_000
TICK_NS = 10 * MS


class ManualClock:
    """Stands still until it is told to move."""

    def __init__(self, now_ns: int = START_NS) -> None:
        self._now_ns = now_ns
        self._monotonic_ns = 0

    def now_ns(self) -> int:
        return self._now_ns

    def monotonic_ns(self) -> int:
        return self._monotonic_ns

    def advance_ms(self, milliseconds: int) -> None:
        self._now_ns += milliseconds * MS
        self._monotonic_ns += milliseconds * MS

    def advance_to_tick(self) -> None:
        ahead_ns = -self._now_ns % TICK_NS
        self._now_ns += ahead_ns
        self._monotonic_ns += ahead_ns
