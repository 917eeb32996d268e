"""Progress reports of a run: messages done, their rate, and the lag."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is. ``lag`` counts messages that are there and not read yet; None where nobody knows."""

    done: int
    """Messages so far."""
    rate: float = 0.0
    """Messages a second, lately."""
    batch: int | None = None
    lag: int | None = None
    doing: str = ""
    """In words, where there are no batches: ``"reading the journal"``."""


def say_nothing(_: Progress) -> None:
    """Progress for whoever does not ask."""
