"""Retention: removing messages that are older, or beyond the size, that their topic keeps."""

from __future__ import annotations

from collections.abc import Iterable

from goqueue.broker.groups.group_service import GroupService
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.shards.start_moves import note_starts
from goqueue.broker.upkeep.producer_files import ProducerFiles
from goqueue.model.errors import GoQueueError
from goqueue.model.logging import get_logger

log = get_logger(__name__)


class Retention:
    def __init__(self, producer_files: ProducerFiles, groups: GroupService) -> None:
        self._producer_files = producer_files
        self._groups = groups

    async def apply(self, topics: Iterable[Topic]) -> bool:
        """Move the start of every log with expired messages; return whether any was moved."""
        moved = False
        for topic in list(topics):
            if topic.settings.cleanup == "delete":
                moved |= await self._apply(topic)
        return moved

    async def _apply(self, topic: Topic) -> bool:
        moved, starts = False, dict[int, int]()
        for number, partition in enumerate(topic.partitions):
            if partition.log.failure is not None:
                continue
            try:
                start = partition.log.expired(topic.settings.retention_ms, topic.settings.retention_bytes)
            except GoQueueError as error:
                # For example no room for a new segment: then the others matter all the more.
                log.error("retention skips a partition", topic=topic.name, partition=number, error=str(error))
                continue
            # Nothing that readers cannot see yet is removed.
            start = min(start, partition.stable_end)
            if start <= partition.log.start_offset:
                continue
            if not await self._producer_files.cover(topic, number, start):
                # Logged already; the next round tries again.
                continue
            starts[number] = start
        if not starts or topic.closed:
            return False
        try:
            await note_starts(self._groups.shards.map, topic, starts)
        except GoQueueError as error:
            log.warning("retention tries again later", topic=topic.name, error=str(error))
            return False
        for number, start in starts.items():
            moved |= self._move(topic, number, start)
        return moved

    def _move(self, topic: Topic, number: int, start: int) -> bool:
        owned = topic.partitions[number].log
        # A purge may have got further meanwhile.
        if start <= owned.start_offset or topic.closed:
            return False
        log.info(
            "retention removes messages",
            topic=topic.name,
            partition=number,
            from_offset=owned.start_offset,
            to_offset=start,
        )
        owned.move_start(start)
        return True
