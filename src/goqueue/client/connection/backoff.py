"""Exponential backoff with jitter for retries."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Doubles from ``first_ms`` to ``most_ms``; each pause is drawn at random from the upper half of that range."""

    first_ms: int
    most_ms: int
    _attempt: int = 0

    def next_s(self, at_least_s: float | None = None) -> float:
        """The next pause in seconds, no shorter than ``at_least_s``, the pause that the broker asked for."""
        pause_ms = min(self.most_ms, self.first_ms << min(self._attempt, 30))
        self._attempt += 1
        return max(at_least_s or 0.0, pause_ms * random.uniform(0.5, 1.0) / 1_000)

    def reset(self) -> None:
        self._attempt = 0
