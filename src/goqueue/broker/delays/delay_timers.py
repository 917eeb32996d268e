"""Timers of delayed messages: how many wait, and which of them are due."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.runtime.timer_service import Owner, TimerService
from goqueue.delivery.wheel import Entries
from goqueue.model.errors import TooManyDelayed


class DelayTimers:
    """Follows the appends of all partitions; implements the port of the same name in ``append_listeners``."""

    def __init__(self, timers: TimerService, max_delayed: int, on_due: Callable[[Partition, Entries], None]) -> None:
        self._timers = timers
        self._max_delayed = max_delayed
        self._on_due = on_due
        self._owners: dict[Partition, int] = {}
        """Number of the timers of each partition in which messages wait, or did."""
        self._at_most = 0
        """Upper bound of the messages that wait: those at the last count, and all that were added since."""

    def start(self, partitions: Iterable[Partition]) -> None:
        """Watch the partitions in which messages wait."""
        for partition in partitions:
            # Dead letters whose move a start resumes may have been delayed messages, and watch their partition.
            if len(partition.delays) and partition not in self._owners:
                self.watch(partition)

    @property
    def pending(self) -> int:
        """How many messages wait, those of open transactions included."""
        return sum(len(each.delays) for each in self._owners)

    def next_due_ns(self) -> int | None:
        """When the first message is due."""
        dues = [each.delays.pending.next_due_ns() for each in self._owners]
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
        if partition not in self._owners:
            self.watch(partition)
        else:
            self._at_most += len(offsets)
            self.schedule(partition, offsets, dues)

    def held(self, partition: Partition, count: int) -> None:
        """New delayed messages belong to an open transaction."""
        if partition not in self._owners:
            self.watch(partition)
        else:
            self._at_most += count

    def set_due(self, partition: Partition, offsets: NDArray[np.int64], dues: NDArray[np.int64]) -> None:
        """Due times of messages that waited before count from now on."""
        if partition not in self._owners:
            self.watch(partition)
        else:
            self.schedule(partition, offsets, dues)

    def watch(self, partition: Partition) -> None:
        """Count everything that waits in a partition, and set its timers."""
        delays = partition.delays

        def is_pending(entries: Entries) -> NDArray[np.bool_]:
            return delays.pending.is_due(entries[:, 2], entries[:, 0])

        owner = Owner(partial(self._on_due, partition), is_pending, lambda: len(delays.pending))
        self._owners[partition] = self._timers.register(owner)
        self.schedule(partition, *delays.pending.entries())
        self._at_most += len(delays)

    def forget(self, partition: Partition) -> None:
        """Drop the timers of a partition whose topic was deleted."""
        owner = self._owners.pop(partition, None)
        if owner is not None:
            self._timers.unregister(owner)

    def schedule(self, partition: Partition, offsets: NDArray[np.int64], dues: NDArray[np.int64]) -> None:
        owner = self._owners.get(partition)
        if owner is None:
            # Its topic was deleted.
            return
        if len(offsets) == 1:
            self._timers.set(int(dues[0]), owner, int(offsets[0]))
        elif len(offsets):
            owners = np.full(len(offsets), owner, np.int64)
            self._timers.set_many(np.stack((dues, owners, offsets), axis=1))
