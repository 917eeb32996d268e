"""Rate limit for repeated log events: the first lines of an event are written, further ones counted and reported."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

LINES: Final = 20
WINDOW_S: Final = 10.0
_MOST_EVENTS = 1_000
Key = tuple[str, str]


@dataclass(slots=True)
class _Window:
    ends_at: float
    level: int
    lines: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Summary of an event's suppressed lines, to be logged when its window ends."""

    logger: str
    event: str
    level: int
    count: int


class LineLimit:
    """Admits at most ``LINES`` lines of one event of a logger within ``WINDOW_S`` seconds, counted from the first.

    Called from several threads.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._windows: dict[Key, _Window] = {}
        self._silenced: dict[Key, _Window] = {}
        """Windows in which lines were suppressed, in the order in which suppression began."""
        self._pushed_out: list[LeftOut] = []
        self.suppressed = 0
        """Lines suppressed since the start."""

    def admits(self, logger: str, event: str, level: int) -> bool:
        """Whether one more line may be written; if not, the line is counted as suppressed."""
        key = logger, event
        now = self._clock()
        with self._lock:
            window = self._windows.get(key)
            if window is None or (now >= window.ends_at and not window.left_out):
                # Moved to the end: windows are evicted in the order of their last use.
                self._windows.pop(key, None)
                window = self._windows[key] = _Window(now + WINDOW_S, level)
                self._make_room()
            if window.lines < LINES:
                window.lines += 1
                return True
            window.left_out += 1
            self._silenced[key] = window
            self.suppressed += 1
            return False

    def next_end_s(self) -> float | None:
        """Seconds until the next summary is due; ``None`` while no lines are suppressed."""
        with self._lock:
            ends = [window.ends_at for window in self._silenced.values()]
            return max(0.0, min(ends) - self._clock()) if ends else None

    def ended(self, *, all_of_them: bool = False) -> list[LeftOut]:
        """Summaries that are due, each returned once."""
        if not self._silenced and not self._pushed_out:
            return []
        now = self._clock()
        with self._lock:
            found, self._pushed_out = self._pushed_out, []
            for key, window in list(self._silenced.items()):
                if all_of_them or now >= window.ends_at:
                    del self._silenced[key], self._windows[key]
                    found.append(LeftOut(*key, window.level, window.left_out))
            return found

    def _make_room(self) -> None:
        if len(self._windows) > _MOST_EVENTS:
            key, window = next(iter(self._windows.items()))
            del self._windows[key]
            if self._silenced.pop(key, None) is not None:
                self._pushed_out.append(LeftOut(*key, window.level, window.left_out))
