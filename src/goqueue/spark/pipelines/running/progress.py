"""Progress reports of a run: messages done, their rate, and the lag."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run. ``lag`` counts messages that are available but not read yet; None if unknown."""

    done: int
    """Messages processed so far."""
    rate: float = 0.0
    """Current messages per second."""
    batch: int | None = None
    lag: int | None = None
    doing: str = ""
    """The current activity of a run without batches, such as ``"reading the journal"``."""
