"""Durability of logs in a test that syncs them itself, or never does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from goqueue.storage.log.log import Log


class DiskOnly:
    """The high watermark is what the log says is on the disk; nothing is brought there."""

    def reached(self, log: Log, offset: int) -> asyncio.Future[None]:
        raise NotImplementedError

    def end(self, log: Log) -> int:
        return log.durable_offset

    def follow(self, log: Log, on_move: Callable[[], None]) -> None:
        pass

    def unfollow(self, log: Log) -> None:
        pass
