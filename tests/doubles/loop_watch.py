"""How long a loop's callbacks hold it, in processor time of its thread: what others do meanwhile does not count."""

from __future__ import annotations

import asyncio
import threading
import time
from asyncio.events import Handle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class LoopWatch:
    """Looks at every callback of the loops that run in one thread."""

    def __init__(self) -> None:
        self._thread = 0
        self._worst_s = 0.0
        self._what = ""

    @contextmanager
    def watching(self, thread: int) -> Iterator[None]:
        """``thread``: the identity of the loop's thread. The loop must be one of asyncio's own."""
        self._thread = thread
        run = Handle._run  # type: ignore[attr-defined]

        def watched(handle: Any) -> None:
            if threading.get_ident() != self._thread:
                run(handle)
                return
            began = time.thread_time()
            run(handle)
            spent = time.thread_time() - began
            if spent > self._worst_s:
                self._worst_s, self._what = spent, _described(handle)

        Handle._run = watched  # type: ignore[attr-defined]
        try:
            yield
        finally:
            Handle._run = run  # type: ignore[attr-defined]

    def take(self) -> tuple[float, str]:
        """The longest callback since the last time this was asked, in seconds, and what it was."""
        found = self._worst_s, self._what
        self._worst_s, self._what = 0.0, ""
        return found


def _described(handle: Any) -> str:
    callback = handle._callback
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return repr(owner.get_coro())
    return repr(callback)
