"""The ports of a simulated broker to time and to randomness."""

from __future__ import annotations

from random import Random

from goqueue.model.clock import NANOS_PER_SECOND
from goqueue.simulation.virtual_loop import SimulatedLoop

EPOCH_NS = 1_800_000_000 * NANOS_PER_SECOND
"""When every simulation begins, by the wall clock."""


class SimulatedClock:
    """Follows the loop's time. ``ahead_ns`` is how far the wall clock is off."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.ahead_ns = 0

    def now_ns(self) -> int:
        return EPOCH_NS + self.monotonic_ns() + self.ahead_ns

    def monotonic_ns(self) -> int:
        return round(self._loop.time() * NANOS_PER_SECOND)


class SimulatedStopwatch:
    """Work takes no virtual time. As measured by this it does, at random, so that long work gives way here or there."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._now_s = 0.0

    def __call__(self) -> float:
        self._now_s += self._random.choice((0.0, 0.0, 0.0, 0.0002, 0.003))
        return self._now_s


class SimulatedRandomness:
    def __init__(self, random: Random) -> None:
        self._random = random

    def random_bytes(self, size: int) -> bytes:
        return self._random.randbytes(size)
