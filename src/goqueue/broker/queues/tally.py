"""Counters of what became of deliveries, over all groups."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Counted since the broker started."""

    acks: int = 0
    nacks: int = 0
    rejects: int = 0
    extensions: int = 0
    redeliveries: int = 0
    visibility_timeouts: int = 0
    dead_letters: int = 0
    redriven: int = 0
    expired: int = 0
