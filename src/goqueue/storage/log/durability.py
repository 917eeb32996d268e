"""Durability port: when the records of a log count, asked in one way by everything that waits for it.

The *high watermark* of a log is the offset below which every record counts: it survives a crash and is never taken
back. On one node it is the end of what fsync has brought to the disk, and ``GroupCommit`` implements this port. In
a cluster it is what a quorum has on disk; only the implementation changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from goqueue.storage.log.log import Log


class Durability(Protocol):
    """One per data folder, for all of its logs. Called from the event loop."""

    def reached(self, log: Log, offset: int) -> asyncio.Future[None]:
        """Done when the high watermark of ``log`` has reached ``offset``; fails with ``StorageFailed`` if it cannot.

        What is needed for that is set going by the call itself, so that several logs can be asked for before any is
        waited for.
        """

    def end(self, log: Log) -> int:
        """The high watermark of ``log`` now."""

    def follow(self, log: Log, on_move: Callable[[], None]) -> None:
        """Call ``on_move`` each time the high watermark of ``log`` has moved, until ``unfollow``."""

    def unfollow(self, log: Log) -> None:
        """Stop calling what follows ``log``."""
