"""What happened in a run, line by line, and a digest by which two runs are compared."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable


class History:
    """``stamp`` gives each line the time, and what else must be the same when the run is repeated."""

    def __init__(self, stamp: Callable[[], str]) -> None:
        self._stamp = stamp
        self._digest = hashlib.sha256()
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()

    def note(self, event: str, *details: object) -> None:
        line = " ".join((self._stamp(), event, *map(str, details)))
        self.lines.append(line)
        self._digest.update(line.encode())

    def digest(self) -> str:
        return self._digest.hexdigest()
