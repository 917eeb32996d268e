"""What follows the appends to all partitions: events for metrics and traces, and the timers of delayed messages.

Both are called inside the step of an append, after the partition's own state has changed: nothing else has run since
the write. Neither waits, and only ``check_room``, which comes before the write, may refuse.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from goqueue.model.producer_sequences import OpenRecords

P = TypeVar("P", contravariant=True)
"""The partition that was appended to."""


class AppendEvents(Protocol[P]):
    """Records what happened to messages, at the time of the append."""

    def published(self, partition: P, first: int, count: int, at_ns: int) -> None:
        """Messages of a producer were appended from ``first`` on."""

    def delayed(self, partition: P, offsets: NDArray[np.int64], dues: NDArray[np.int64], at_ns: int) -> None:
        """Messages wait for their due times; in a transaction only once it is committed."""

    def fired(self, partition: P, originals: list[int], first_copy: int, at_ns: int) -> None:
        """Delayed messages became visible, as copies in the order of ``originals``."""

    def delay_changed(self, partition: P, offset: int, due_ns: int | None, at_ns: int) -> None:
        """A delayed message is due at another time, or was cancelled."""

    def transaction_ended(
        self, partition: P, records: OpenRecords, at_ns: int, *, is_commit: bool, reason: str = ""
    ) -> None:
        """A transaction that has written to the partition ended; ``reason`` is why it was aborted."""


class DelayTimers(Protocol[P]):
    """Limits how many delayed messages wait, and makes each visible when it is due."""

    def check_room(self, more: int) -> None:
        """Raise ``TooManyDelayed`` unless so many more may wait."""

    def added(self, partition: P, offsets: NDArray[np.int64], dues: NDArray[np.int64]) -> None:
        """New delayed messages wait."""

    def held(self, partition: P, count: int) -> None:
        """New delayed messages belong to an open transaction: their due times do not count yet."""

    def set_due(self, partition: P, offsets: NDArray[np.int64], dues: NDArray[np.int64]) -> None:
        """Due times count from now on: they were changed, or their transaction was committed."""
