"""Timers of delayed messages: how many wait, and which of them are due."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.runtime.timer_service import Owner, TimerService
from goqueue.delivery.wheel import Entries
from goqueue.model.errors import TooManyDelayed

_LOOKED_AT = 500


@dataclass(eq=False, slots=True)
class Waiting:
    """One partition with delayed messages."""

    partition: Partition
    owner: int = -1
    """Number of the partition's timers."""
    due: deque[Entries] = field(default_factory=deque)
    """Taken from the timer wheel and not visible yet: one piece for each time that the wheel returned some."""
    trouble: str = ""
    """Why the last attempt to make some visible failed."""

    def wants(self, entries: Entries) -> NDArray[np.bool_]:
        """Which entries still wait: neither cancelled, nor rescheduled, nor visible."""
        return self.partition.delays.pending.is_due(entries[:, 2], entries[:, 0])

    def take(self, most: int) -> Entries:
        """Remove and return the first entries that are due, without touching the rest of a large backlog."""
        taken: list[Entries] = []
        while self.due and most > 0:
            piece = self.due.popleft()
            if len(piece) > most:
                self.due.appendleft(piece[most:])
            taken.append(piece[:most])
            most -= len(taken[-1])
        return taken[0] if len(taken) == 1 else np.concatenate(taken)

    def is_late(self, before_ns: int) -> bool:
        """Whether the first of what is due was due before that instant and was not cancelled since."""
        first = self.due[0][:_LOOKED_AT] if self.due else np.empty((0, 3), np.int64)
        return bool((first[self.wants(first), 0] < before_ns).any())


class DelayTimers:
    """Follows the appends of all partitions; implements the port of the same name in ``append_listeners``."""

    def __init__(self, timers: TimerService, max_delayed: int, on_due: Callable[[Waiting, Entries], None]) -> None:
        self._timers = timers
        self._max_delayed = max_delayed
        self._on_due = on_due
        self._waiting: dict[Partition, Waiting] = {}
        self._at_most = 0
        """Upper bound of the messages that wait: those at the last count, and all that were added since."""

    def start(self, partitions: Iterable[Partition]) -> None:
        """Watch the partitions in which messages wait."""
        for partition in partitions:
            # Dead letters whose move a start resumes may have been delayed messages, and watch their partition.
            if len(partition.delays) and partition not in self._waiting:
                self.watch(partition)

    @property
    def pending(self) -> int:
        """How many messages wait, those of open transactions included."""
        return sum(len(each.delays) for each in self._waiting)

    def next_due_ns(self) -> int | None:
        """When the first message is due."""
        dues = [each.delays.pending.next_due_ns() for each in self._waiting]
        return min((due for due in dues if due is not None), default=None)

    def check_room(self, more: int, pending: int | None = None) -> None:
        """Raise ``TooManyDelayed`` unless so many more may wait. ``pending`` spares counting them for each message."""
        if self._at_most + more <= self._max_delayed:
            # Counting visits every partition, of which there may be thousands; the upper bound suffices.
            return
        if pending is None:
            pending = self._at_most = self.pending
        if pending + more > self._max_delayed:
            raise TooManyDelayed(f"{pending} delayed messages wait, and limits.max_delayed is {self._max_delayed}")

    def added(self, partition: Partition, offsets: NDArray[np.int64], dues: NDArray[np.int64]) -> None:
        """New delayed messages wait."""
        waiting = self._waiting.get(partition)
        if waiting is None:
            self.watch(partition)
        else:
            self._at_most += len(offsets)
            self.schedule(waiting, offsets, dues)

    def held(self, partition: Partition, count: int) -> None:
        """New delayed messages belong to an open transaction."""
        if partition not in self._waiting:
            self.watch(partition)
        else:
            self._at_most += count

    def set_due(self, partition: Partition, offsets: NDArray[np.int64], dues: NDArray[np.int64]) -> None:
        """Due times of messages that waited before count from now on."""
        waiting = self._waiting.get(partition)
        if waiting is None:
            self.watch(partition)
        else:
            self.schedule(waiting, offsets, dues)

    def watch(self, partition: Partition) -> None:
        """Count everything that waits in a partition, and set its timers."""
        waiting, delays = Waiting(partition), partition.delays
        owner = Owner(lambda due: self._on_due(waiting, due), waiting.wants, lambda: len(delays.pending))
        waiting.owner = self._timers.register(owner)
        self.schedule(waiting, *delays.pending.entries())
        self._waiting[partition] = waiting
        self._at_most += len(delays)

    def unwatch(self, partition: Partition) -> Waiting | None:
        """Drop the timers of a partition whose topic was deleted."""
        waiting = self._waiting.pop(partition, None)
        if waiting is not None:
            self._timers.unregister(waiting.owner)
        return waiting

    def schedule(self, waiting: Waiting, offsets: NDArray[np.int64], dues: NDArray[np.int64]) -> None:
        if len(offsets) == 1:
            self._timers.set(int(dues[0]), waiting.owner, int(offsets[0]))
        elif len(offsets):
            owners = np.full(len(offsets), waiting.owner, np.int64)
            self._timers.set_many(np.stack((dues, owners, offsets), axis=1))
