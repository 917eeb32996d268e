"""Waiting for something to become true, instead of sleeping and hoping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_LOOK_EVERY_S = 0.005


def until(condition: Callable[[], object], within_s: float = 60.0) -> None:
    """Return as soon as ``condition`` holds; fail if it never does."""
    pause = threading.Event()
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not become true in time"
        pause.wait(_LOOK_EVERY_S)
