"""Putting topics to work: their logs are opened, and what follows from these is recovered."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from goqueue.broker.delays.firing import Firing
from goqueue.broker.events.event_recorder import EventRecorder
from goqueue.broker.partitions.dedup_ids import DedupIds, Room
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.running_topics import RunningTopics
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.checkpoints import Checkpoints
from goqueue.broker.runtime.journals import Journals
from goqueue.coordination.catalog import TopicRecord
from goqueue.model.clock import NANOS_PER_SECOND, Clock
from goqueue.model.config import Config
from goqueue.model.logging import get_logger
from goqueue.model.topic_settings import TopicSettings
from goqueue.observe.trace_event import place_name
from goqueue.storage.files.data_folder import DataFolder
from goqueue.storage.log.durability import Durability
from goqueue.storage.log.log import LogOptions

log = get_logger(__name__)

_PROGRESS_EVERY_NS = 2 * NANOS_PER_SECOND
_OPEN_AT_A_STRETCH = 50


@dataclass(eq=False, repr=False)
class TopicOpener:
    folder: DataFolder
    _journals: Journals
    _durability: Durability
    _checkpoints: Checkpoints
    _firing: Firing
    _notes: EventRecorder
    config: Config
    clock: Clock
    _dedup_room: Room = field(init=False)

    def __post_init__(self) -> None:
        self._dedup_room = Room(self.config.limits.max_dedup_ids)

    async def open_all(self, records: Collection[TopicRecord], topics: RunningTopics) -> None:
        """A start: it may take long, so it tells how far it is."""
        total = sum(record.partitions for record in records)
        opened, said_ns = 0, self.clock.monotonic_ns()
        for record in records:
            topics.add(await self.open(record))
            opened += record.partitions
            if self.clock.monotonic_ns() - said_ns > _PROGRESS_EVERY_NS:
                said_ns = self.clock.monotonic_ns()
                log.info("recovering", partitions_done=opened, partitions_total=total)

    async def open(self, record: TopicRecord) -> Topic:
        settings = self._effective(record)
        options = self._log_options(settings)
        folder, files = self.folder.topic_folder(record.name, record.topic_id), self.folder.files
        partitions = []
        dedup = DedupIds(self._dedup_room)
        for number in range(record.partitions):
            if number % _OPEN_AT_A_STRETCH == _OPEN_AT_A_STRETCH - 1:
                await asyncio.sleep(0)
            place = folder / str(number)
            if not files.exists(place):
                log.error("a partition's folder is missing; it begins empty", topic=record.name, partition=number)
            opened_log = self._journals.open_log(place, options)
            partition = Partition(
                opened_log,
                self._durability,
                settings.fsync,
                place_name(record.name, number),
                self._notes,
                self._firing.timers,
            )
            producers, point, now_ns = partition.producers, self._checkpoints.point(place), self.clock.now_ns()
            producers.recover(files, point, now_ns)
            dedup.restore(number, producers.loaded_ids, producers.found_ids, now_ns)
            producers.loaded_ids, producers.found_ids = [], []
            partition.delays.recover(files, point)
            partitions.append(partition)
        return Topic(record, settings, partitions, dedup)

    def change(self, topic: Topic, record: TopicRecord) -> None:
        """The topic goes on by a record with other settings."""
        settings = self._effective(record)
        topic.change(record, settings, self._log_options(settings))

    def close(self, topic: Topic) -> None:
        """For good: its files are about to be removed."""
        topic.close()
        for partition in topic.partitions:
            self._firing.forget(partition)

    def _effective(self, record: TopicRecord) -> TopicSettings:
        overrides: dict[str, Any] = {"partitions": record.partitions} | record.overrides
        return self.config.topic.with_overrides(overrides)

    def _log_options(self, settings: TopicSettings) -> LogOptions:
        return LogOptions(
            settings.segment_bytes, self.config.storage.index_interval_bytes, compacted=settings.cleanup == "compact"
        )
