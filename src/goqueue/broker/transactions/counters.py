"""How many transactions were begun, and how they ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _ignore(took_ns: int) -> None:
    """Nobody measures."""


@dataclass(slots=True)
class TransactionCounters:
    """Counted since the broker started."""

    begun: int = 0
    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    fenced: int = 0
    duration_ns: int = 0
    """Of those that were committed."""
    on_committed: Callable[[int], None] = _ignore
    """Told how many nanoseconds each took that was committed, from its begin."""

    def note_committed(self, took_ns: int) -> None:
        self.committed += 1
        self.duration_ns += took_ns
        self.on_committed(took_ns)
