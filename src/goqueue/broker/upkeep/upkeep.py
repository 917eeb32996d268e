"""Background tasks: fsync by interval, recovery points, retention, compaction, snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from goqueue.broker.delays.delayed_messages import Delays
from goqueue.broker.groups.group_service import GroupService
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.checkpoints import Checkpoints
from goqueue.broker.runtime.disk_guard import DiskGuard
from goqueue.broker.runtime.file_freeze import FileFreeze
from goqueue.broker.transactions.transaction_service import TransactionService
from goqueue.broker.upkeep.compaction import Compaction
from goqueue.broker.upkeep.producer_files import ProducerFiles
from goqueue.broker.upkeep.retention import Retention
from goqueue.model.config import StorageConfig
from goqueue.model.logging import get_logger
from goqueue.storage.log.group_commit import GroupCommit
from goqueue.storage.log.recoverable import Recoverable

log = get_logger(__name__)


class Keeper(Protocol):
    """What upkeep needs of a broker."""

    delays: Delays
    groups: GroupService
    producer_files: ProducerFiles
    transactions: TransactionService

    def running_topics(self) -> Iterable[Topic]: ...

    def recoverables(self) -> Iterable[Recoverable]: ...

    async def snapshot_if_due(self) -> None: ...


class Upkeep:
    """Owns the background tasks. A task continues after an error of one round, which is logged and kept in
    ``failing``."""

    def __init__(
        self,
        keeper: Keeper,
        config: StorageConfig,
        commits: GroupCommit,
        checkpoints: Checkpoints,
        disk: DiskGuard,
        stillness: FileFreeze,
    ) -> None:
        self._keeper = keeper
        self._config = config
        self._commits = commits
        self._checkpoints = checkpoints
        self._stillness = stillness
        self._retention = Retention(keeper.producer_files, keeper.groups)
        self._stopping = asyncio.Event()
        self._compaction = Compaction(config, disk, stillness, self._stopping)
        self._tasks: list[asyncio.Task[None]] = []
        self.failing: dict[str, str] = {}
        """Work whose last round failed, and why."""

    def start(self) -> None:
        for interval_ms, work in (
            (self._config.fsync_interval_ms, self.sync_by_interval),
            (self._config.checkpoint_interval_ms, self.checkpoint),
            (self._config.cleanup_interval_ms, self.expire),
            (self._config.cleanup_interval_ms, self.compact),
        ):
            self._tasks.append(asyncio.create_task(self._repeat(interval_ms / 1_000, work), name=work.__name__))

    async def stop(self) -> None:
        """Finish the current rounds. Nothing is cancelled, since a thread would continue to write."""
        self._stopping.set()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks.clear()

    async def _repeat(self, interval_s: float, work: Callable[[], Awaitable[None]]) -> None:
        name = getattr(work, "__name__", "?")
        while not await self._stopped_within(interval_s):
            try:
                await work()
                self.failing.pop(name, None)
            except Exception as error:
                self.failing[name] = f"{type(error).__name__}: {error}"
                log.error("upkeep failed, it will be tried again", work=name, exc_info=error)

    async def _stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._stopping.wait()
        except TimeoutError:
            return False

    async def sync_by_interval(self) -> None:
        """Sync topics with ``fsync: interval``, and those that were switched from it while something was unsynced."""
        await self._commits.sync(
            partition.log
            for topic in self._keeper.running_topics()
            if topic.settings.fsync != "never"
            for partition in topic.partitions
        )

    async def checkpoint(self) -> None:
        await self._keeper.snapshot_if_due()
        async with self._stillness.changing():
            await self._keeper.delays.save()
            await self._keeper.producer_files.save(self._keeper.running_topics())
        await self._keeper.transactions.tidy()
        await self._checkpoints.save(list(self._keeper.recoverables()))

    async def expire(self) -> None:
        """Retention. A task of its own: it must not wait for a long compaction while the disk fills."""
        if await self._retention.apply(self._keeper.running_topics()):
            await self._checkpoints.save(list(self._keeper.recoverables()))

    async def compact(self) -> None:
        await self._compaction.compact(self._keeper.running_topics())
