"""The clock and the source of randomness: protocols, so that a test can replace them, and those of the system."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Protocol

NANOS_PER_MS = 1_000_000
NANOS_PER_SECOND = 1_000_000_000


class Clock(Protocol):
    def now_ns(self) -> int:
        """Wall-clock time: nanoseconds since the Unix epoch. May jump."""

    def monotonic_ns(self) -> int:
        """Time for measuring and waiting. Never goes back."""


class Randomness(Protocol):
    def random_bytes(self, size: int) -> bytes: ...


class Stopwatch:
    """Measures how long work on the event loop takes, so that long work gives way; nothing waits by it."""

    now_s: Callable[[], float] = staticmethod(time.perf_counter)


stopwatch = Stopwatch()
"""The only one. A simulation, in which work takes no time, sets its ``now_s``."""


class SystemClock:
    now_ns = staticmethod(time.time_ns)
    monotonic_ns = staticmethod(time.monotonic_ns)


class SystemRandomness:
    def random_bytes(self, size: int) -> bytes:
        return os.urandom(size)
