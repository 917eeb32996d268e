"""Waiting for something to become true, instead of sleeping and hoping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from doubles.patience import PATIENCE_S, TooLate

_LOOK_EVERY_S = 0.005


def until(condition: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Return as soon as ``condition`` holds; fail if it never does."""
    pause = threading.Event()
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TooLate(f"it did not become true within {within_s} s")
        pause.wait(_LOOK_EVERY_S)
