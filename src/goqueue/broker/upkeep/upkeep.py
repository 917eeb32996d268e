"""What a broker does by itself: fsync by interval, recovery points, retention, compaction, snapshots."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from typing import Protocol

from goqueue.broker.delays.delays import Delays
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.partition_producers import PartitionProducers
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.checkpoints import Checkpoints
from goqueue.broker.runtime.disk_guard import DiskGuard
from goqueue.broker.runtime.file_freeze import FileFreeze
from goqueue.broker.transactions.transaction_service import TransactionService
from goqueue.broker.upkeep.producer_files import ProducerFiles
from goqueue.model.config import StorageConfig
from goqueue.model.errors import GoQueueError
from goqueue.model.logging import get_logger
from goqueue.storage.log.compaction import abandon, compact, dirty_ratio
from goqueue.storage.log.compaction_choice import CompactionRules, Step
from goqueue.storage.log.group_commit import GroupCommit
from goqueue.storage.log.recoverable import Recoverable

log = get_logger(__name__)

_BUSY_SHARE = 0.2
"""Of the loop's time, how much a compaction takes at most."""


class Keeper(Protocol):
    """What upkeep needs of a broker."""

    def running_topics(self) -> Iterable[Topic]: ...

    def recoverables(self) -> Iterable[Recoverable]: ...

    async def snapshot_if_due(self) -> None: ...

    @property
    def delays(self) -> Delays: ...

    @property
    def producer_files(self) -> ProducerFiles: ...

    @property
    def transactions(self) -> TransactionService: ...


def compactable_below(durable_end: int, stable_end: int, producers: PartitionProducers) -> int:
    """Where compaction stops. What it writes is durable, so what supersedes must be; what it takes must be known."""
    return min(stable_end, durable_end, producers.settled_below())


class Upkeep:
    """Owns the background tasks; each survives an error of one round and says so."""

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
        self._disk = disk
        self._stillness = stillness
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
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
        """Finish what is being done. Nothing is cancelled: a thread would go on writing behind the broker's back."""
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
        """Topics with ``fsync: interval``, and those that were switched from it while something was unsynced."""
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
        self._keeper.transactions.tidy()
        await self._checkpoints.save(list(self._keeper.recoverables()))

    async def expire(self) -> None:
        """Retention. A task of its own: it must not wait for a long compaction while the disk fills."""
        moved = False
        for topic in list(self._keeper.running_topics()):
            if topic.settings.cleanup == "delete":
                moved |= await self._expire(topic)
        if moved:
            await self._checkpoints.save(list(self._keeper.recoverables()))

    async def compact(self) -> None:
        """One partition after the other, as long as there is room for the new files."""
        for topic in list(self._keeper.running_topics()):
            for number, partition in enumerate(topic.partitions):
                if self._wants_compaction(topic):
                    await self._compact(topic, number, partition)

    async def _expire(self, topic: Topic) -> bool:
        moved = False
        for number, partition in enumerate(topic.partitions):
            if partition.log.failure is not None:
                continue
            try:
                start = partition.log.expired(topic.settings.retention_ms, topic.settings.retention_bytes)
            except GoQueueError as error:
                # No room for a new segment, say: the others are all the more worth looking at.
                log.error("retention skips a partition", topic=topic.name, partition=number, error=str(error))
                continue
            # Nothing that readers cannot see yet is removed.
            start = min(start, partition.stable_end)
            if start <= partition.log.start_offset:
                continue
            if not await self._keeper.producer_files.cover(topic, number, start):
                # The next round tries again; why it failed was said.
                continue
            if start > partition.log.start_offset and not topic.closed:
                log.info(
                    "retention removes messages",
                    topic=topic.name,
                    partition=number,
                    from_offset=partition.log.start_offset,
                    to_offset=start,
                )
                partition.log.start_offset = start
                moved = True
        return moved

    async def _compact(self, topic: Topic, number: int, partition: Partition) -> None:
        producers = partition.producers
        below = compactable_below(partition.durable_end, partition.stable_end, producers)
        if dirty_ratio(partition.log, below) < self._config.compaction_min_dirty_ratio:
            return
        rules = CompactionRules(
            below,
            topic.settings.tombstone_retention_ms,
            self._config.compaction_max_keys,
            partition.delays.is_wanted,
            producers.state.aborted,
            producers.compacted,
        )
        steps = compact(partition.log, rules)
        try:
            await self._drive(steps, lambda: self._wants_compaction(topic))
            # What was aborted there is gone, and need not be remembered.
            producers.state.drop_below(partition.log.cleaned_to)
        except Exception as error:
            # The others are none the worse for it. A topic that was deleted meanwhile is no failure at all.
            if self._wants_compaction(topic):
                log.error("compaction stopped", topic=topic.name, partition=number, exc_info=error)
        finally:
            # On a failing disk the next pass or the next start sees to it.
            with suppress(OSError):
                abandon(partition.log)

    def _wants_compaction(self, topic: Topic) -> bool:
        wanted = topic.settings.cleanup == "compact" and not topic.closed and not self._stopping.is_set()
        return wanted and not self._disk.is_full()

    async def _drive(self, steps: Iterator[Step], wanted: Callable[[], bool]) -> None:
        """Take the steps one by one; none of them after the files have gone with their topic."""
        while wanted():
            async with self._stillness.changing():
                if not wanted():
                    return
                began = time.perf_counter()
                try:
                    work = next(steps)
                except StopIteration:
                    return
                took_s = time.perf_counter() - began
                if work is not None:
                    await asyncio.to_thread(work)
            if work is None:
                # The pause is in proportion to what the step took.
                await asyncio.sleep(took_s * (1 / _BUSY_SHARE - 1))
