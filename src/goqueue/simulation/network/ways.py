"""Ways from one host to another, and what one connection sends along one of them."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from random import Random

Arrival = Callable[[], None]
"""Something that was sent: what happens where it arrives."""

_FAST_S, _USUAL_S, _SLOW_S = 0.0005, 0.005, 0.3
_WITHIN_A_HOST_S = 0.00005


@dataclass(slots=True, eq=False)
class Way:
    """From one host to another. The way back is another one."""

    source: str
    target: str
    is_cut: bool = False
    has_target: bool = True
    """Whether the host at its end has power."""
    slowness: float = 1.0
    """By which factor everything takes longer than usual."""
    stopped: dict[Pipe, None] = field(default_factory=dict)
    """Connections with something that waits until the way is there again, in order."""

    @property
    def is_open(self) -> bool:
        return self.has_target and not self.is_cut

    def resume(self) -> None:
        """It may be open again."""
        if self.is_open:
            stopped, self.stopped = self.stopped, {}
            for pipe in stopped:
                pipe.resume()

    def forget(self) -> None:
        """The host at its beginning has lost its power: what is not on the way yet is never sent."""
        stopped, self.stopped = self.stopped, {}
        for pipe in stopped:
            pipe.forget()

    def delay_s(self, random: Random) -> float:
        if self.source == self.target:
            return random.random() * _WITHIN_A_HOST_S
        kind = random.random()
        longest_s = _FAST_S if kind < 0.7 else _USUAL_S if kind < 0.97 else _SLOW_S
        return random.random() * longest_s * self.slowness


class Pipe:
    """One direction of one connection: what is sent arrives once, in order, a random time later.

    Nothing arrives while the way is not open. It is sent again then: this is what TCP does.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, random: Random, way: Way) -> None:
        self._loop = loop
        self._random = random
        self._way = way
        self._sent: deque[Arrival] = deque()
        """What has not arrived, in order."""
        self._stopped = 0
        """How many of these are not on their way, since that is not open."""
        self._last_s = 0.0

    def send(self, arrival: Arrival) -> None:
        self._sent.append(arrival)
        if not self._way.is_open:
            self._stop()
        else:
            self._let_one_go()

    def _let_one_go(self) -> None:
        # The order of a heap's equals is not that in which they came.
        at_s = max(self._loop.time() + self._way.delay_s(self._random), math.nextafter(self._last_s, math.inf))
        self._last_s = at_s
        # In no process: what was sent is on its way also if its sender is killed.
        self._loop.call_at(at_s, self._arrive, context=Context())

    def _arrive(self) -> None:
        if not self._way.is_open:
            self._stop()
        else:
            self._sent.popleft()()

    def _stop(self) -> None:
        self._stopped += 1
        self._way.stopped[self] = None

    def resume(self) -> None:
        """The way is there again."""
        stopped, self._stopped = self._stopped, 0
        for _ in range(stopped):
            self._let_one_go()

    def forget(self) -> None:
        for _ in range(self._stopped):
            self._sent.pop()
        self._stopped = 0
