"""Compaction of topics that keep the latest message of each key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.partition_producers import PartitionProducers
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.disk_guard import DiskGuard
from goqueue.broker.runtime.file_freeze import FileFreeze
from goqueue.model.clock import stopwatch
from goqueue.model.config import StorageConfig
from goqueue.model.logging import get_logger
from goqueue.storage.log.compaction import abandon, compact, dirty_ratio
from goqueue.storage.log.compaction_choice import CompactionRules, Step

log = get_logger(__name__)

_BUSY_SHARE = 0.2
"""Largest share of the event loop's time that a compaction takes."""


def compactable_below(durable_end: int, stable_end: int, producers: PartitionProducers) -> int:
    """Where compaction stops: records that supersede others must be durable, and producers known from their file."""
    return min(stable_end, durable_end, producers.settled_below())


class Compaction:
    def __init__(self, config: StorageConfig, disk: DiskGuard, stillness: FileFreeze, stopping: asyncio.Event) -> None:
        self._config = config
        self._disk = disk
        self._stillness = stillness
        self._stopping = stopping

    async def compact(self, topics: Iterable[Topic]) -> None:
        """Compact one partition after the other, while the disk has room for the new files."""
        for topic in list(topics):
            for number, partition in enumerate(topic.partitions):
                if self._wants_compaction(topic):
                    await self._compact(topic, number, partition)

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
            # Aborted records were removed there, and need not be remembered.
            producers.state.drop_below(partition.log.cleaned_to)
        except Exception as error:
            # It does not affect other partitions. If the topic was deleted meanwhile, nothing has failed.
            if self._wants_compaction(topic):
                log.error("compaction stopped", topic=topic.name, partition=number, exc_info=error)
        finally:
            # On a failing disk the next pass or the next start removes the rest.
            with suppress(OSError):
                abandon(partition.log)

    def _wants_compaction(self, topic: Topic) -> bool:
        wanted = topic.settings.cleanup == "compact" and not topic.closed and not self._stopping.is_set()
        return wanted and not self._disk.is_full()

    async def _drive(self, steps: Iterator[Step], wanted: Callable[[], bool]) -> None:
        """Take the steps one by one, but none after the files were deleted with their topic."""
        while wanted():
            async with self._stillness.changing():
                if not wanted():
                    return
                began = stopwatch.now_s()
                try:
                    work = next(steps)
                except StopIteration:
                    return
                took_s = stopwatch.now_s() - began
                if work is not None:
                    await asyncio.to_thread(work)
            if work is None:
                # The pause is in proportion to what the step took.
                await asyncio.sleep(took_s * (1 / _BUSY_SHARE - 1))
