"""A log with its group commit and no broker around it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from goqueue.storage.files.files import OsFiles
from goqueue.storage.log.group_commit import GroupCommit
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log
from goqueue.wire.batch import parse_batch
from goqueue.wire.verify import FrameRules, verify_batch

SYNC_INTERVAL_S = 1.0
_MAX_OPEN_FILES = 900
_MAX_VALUE_BYTES = 16 << 20
_HOUR_NS = 3_600 * 10**9


@dataclass(frozen=True, slots=True)
class LogUnderTest:
    log: Log
    commits: GroupCommit

    def publish(self, wire: bytes) -> int:
        """What a broker does with a client's batch up to the acknowledgement; return the offset behind it."""
        rules = FrameRules(_MAX_VALUE_BYTES, time.time_ns() + _HOUR_NS)
        batch = verify_batch(parse_batch(wire), rules)
        return self.log.append(batch) + len(batch)

    async def sync_by_interval(self) -> None:
        while True:
            await asyncio.sleep(SYNC_INTERVAL_S)
            await self.commits.sync([self.log])


@asynccontextmanager
async def open_log_under_test(folder: Path) -> AsyncIterator[LogUnderTest]:
    files = OsFiles()
    log = open_log(OpenFiles(files, _MAX_OPEN_FILES), folder / "log", LogOptions(), time.time_ns)
    commits = GroupCommit(files, folder)
    try:
        yield LogUnderTest(log, commits)
    finally:
        await commits.close()
        log.close()


@asynccontextmanager
async def open_log_synced_by_interval(folder: Path) -> AsyncIterator[LogUnderTest]:
    """As for a topic with ``fsync: interval``: a second apart, everything written is made durable."""
    async with open_log_under_test(folder) as under:
        syncing = asyncio.create_task(under.sync_by_interval())
        try:
            yield under
        finally:
            syncing.cancel()
            with suppress(asyncio.CancelledError):
                await syncing
