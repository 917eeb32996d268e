"""Keeping what partitions know of producers small, and on the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.file_freeze import FileFreeze
from goqueue.model.clock import NANOS_PER_MS, Clock
from goqueue.model.config import Config


class ProducerFiles:
    def __init__(self, stillness: FileFreeze, clock: Clock, config: Config) -> None:
        self._stillness = stillness
        self._writing = asyncio.Lock()
        """Of two who write the same file, the later one must not be overwritten by the one before."""
        self._clock = clock
        self._expiry_ns = config.transactions.producer_expiry_ms * NANOS_PER_MS
        self._most = config.limits.max_producers_per_partition

    async def save(self, topics: Iterable[Topic], *, everything: bool = False) -> None:
        """Forget producers that were silent for long; write the files of partitions where much happened since, or
        cleaning up waits for it, or all that changed."""
        now_ns = self._clock.now_ns()
        for topic in list(topics):
            topic.dedup.expire(now_ns - topic.settings.dedup_window_ms * NANOS_PER_MS)
            for number, partition in enumerate(topic.partitions):
                producers = partition.producers
                producers.forget(now_ns - self._expiry_ns, self._most, has_ids=topic.dedup.has_any(number))
                is_due = producers.is_due() or producers.holds_up_files()
                is_due = is_due or (topic.settings.cleanup == "compact" and producers.holds_up_compaction())
                if (is_due or (everything and producers.changes)) and await self._write(topic, number):
                    partition.derived.drop_unneeded()

    async def cover(self, topic: Topic, number: int, below: int) -> bool:
        """Before records go that lie below an offset: note what follows from them. Return whether that is on the disk.

        A start would not know it otherwise: dedup ids in their window, sequences of producers.
        """
        if topic.partitions[number].producers.is_known_below(below):
            return True
        async with self._stillness.changing():
            return await self._write(topic, number)

    async def _write(self, topic: Topic, number: int) -> bool:
        """The file of a partition; return whether it is there. The caller has seen to it that files may change."""
        async with self._writing:
            if topic.closed:
                return False
            return await topic.partitions[number].derived.save_producers(topic.dedup.of(number))
