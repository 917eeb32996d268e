"""Everything that happens at a time: one timer wheel, one timer.

Times are the wall clock's; waiting is by the loop's monotonic clock. The wall clock may jump meanwhile, so while
anything waits it is looked at once a second. A process in which nothing waits sleeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from goqueue.delivery.wheel import TICK_NS, Entries, TimerWheel
from goqueue.model.clock import NANOS_PER_MS, NANOS_PER_SECOND, Clock
from goqueue.model.logging import get_logger

log = get_logger(__name__)

_LONGEST_SLEEP_S = 1.0
_TIMER_STEP_NS = NANOS_PER_MS
"""Loops count whole milliseconds: a timer comes up to one of them early, and one for less would come at once."""
_STALE_ALLOWED = 65_536
"""How many entries the wheel may have before anyone looks for those that are of no use any more."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose times they are.

    ``ring`` gets those that have come; ``wants`` tells which of some are still of use, and ``live`` how many are.
    """

    ring: Callable[[Entries], None]
    wants: Callable[[Entries], NDArray[np.bool_]]
    live: Callable[[], int]


class TimerService:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wheel = TimerWheel(clock.now_ns())
        self._owners: dict[int, Owner] = {}
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ns = 0
        self._most = _STALE_ALLOWED
        self._stopped = False

    def register(self, owner: Owner) -> int:
        """The number under which its times are set."""
        number = next(self._numbers)
        self._owners[number] = owner
        return number

    def unregister(self, number: int) -> None:
        """Its times are nobody's any more."""
        self._owners.pop(number, None)
        self._throw_out()

    def set(self, at_ns: int, owner: int, item: int) -> None:
        if not self._stopped:
            now_ns = self._clock.now_ns()
            self._wheel.insert(at_ns, owner, item, now_ns)
            self._added(at_ns, now_ns)

    def set_many(self, entries: Entries) -> None:
        if not self._stopped and len(entries):
            now_ns = self._clock.now_ns()
            self._wheel.insert_many(entries, now_ns)
            self._added(int(entries[:, 0].min()), now_ns)

    def ring(self) -> None:
        """See to everything whose time has come."""
        try:
            due = self._wheel.advance(self._clock.now_ns())
            numbers = set(due[:, 1].tolist())
            for number in sorted(numbers):
                owner = self._owners.get(number)
                if owner is not None:
                    self._ring_one(owner, due if len(numbers) == 1 else due[due[:, 1] == number])
        finally:
            self._arm(self._wheel.next_due_ns(), self._clock.now_ns())

    def _ring_one(self, owner: Owner, due: Entries) -> None:
        try:
            owner.ring(due)
        except Exception as error:
            # The times of the others have come as well.
            log.error("something that was due could not be seen to", exc_info=error)

    def stop(self) -> None:
        """For good: what is still set afterwards never comes."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _added(self, at_ns: int, now_ns: int) -> None:
        if self._wheel.size > self._most:
            self._throw_out()
        # The wheel returns an entry at the first tick that begins when it is due.
        self._arm(-(-at_ns // TICK_NS) * TICK_NS, now_ns)

    def _throw_out(self) -> None:
        """Drop what is of no use, if it is more than what is."""
        live = sum(owner.live() for owner in self._owners.values())
        if self._wheel.size > 2 * live + _STALE_ALLOWED:
            self._wheel.keep(self._wanted)
        self._most = self._wheel.size + _STALE_ALLOWED

    def _wanted(self, entries: Entries) -> NDArray[np.bool_]:
        wanted = np.zeros(len(entries), np.bool_)
        for number in np.unique(entries[:, 1]).tolist():
            owner = self._owners.get(number)
            if owner is not None:
                mine = np.flatnonzero(entries[:, 1] == number)
                wanted[mine] = owner.wants(entries[mine])
        return wanted

    def _arm(self, at_ns: int | None, now_ns: int) -> None:
        """Sleep until this time at the latest."""
        if at_ns is None or self._stopped:
            return
        if self._timer is not None:
            if self._timer_at_ns <= at_ns:
                return
            self._timer.cancel()
        self._timer_at_ns = at_ns
        steps = -(-max(0, at_ns - now_ns) // _TIMER_STEP_NS)
        wait_s = min(_LONGEST_SLEEP_S, steps * _TIMER_STEP_NS / NANOS_PER_SECOND)
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ns = self._clock.now_ns()
        if 0 < self._timer_at_ns - now_ns <= _TIMER_STEP_NS:
            # Nothing can be due yet. More than a step is another matter: the clock may have been set back.
            self._arm(self._timer_at_ns, now_ns)
        else:
            self.ring()
