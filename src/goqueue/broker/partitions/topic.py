"""One topic at work."""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.broker.partitions.dedup_ids import DedupIds
from goqueue.broker.partitions.partition import Partition
from goqueue.coordination.catalog import TopicRecord
from goqueue.model.errors import PartitionNotFound
from goqueue.model.fields import shown
from goqueue.model.topic_settings import TopicSettings
from goqueue.storage.log.log import LogOptions


@dataclass(slots=True)
class Topic:
    """A topic's record, its effective settings and its partitions."""

    record: TopicRecord
    settings: TopicSettings
    partitions: list[Partition]
    dedup: DedupIds
    closed: bool = False
    next_keyless: int = 0
    """The partition whose turn it is to get messages without a key."""

    @property
    def name(self) -> str:
        return self.record.name

    def partition(self, number: int) -> Partition:
        if not 0 <= number < len(self.partitions):
            raise PartitionNotFound(
                f"topic {self.name!r} has partitions 0 to {len(self.partitions) - 1}; there is no partition "
                f"{shown(number)}"
            )
        return self.partitions[number]

    def change(self, record: TopicRecord, settings: TopicSettings, options: LogOptions) -> None:
        """New settings take effect at once, for what comes from now on."""
        self.record, self.settings = record, settings
        for partition in self.partitions:
            partition.change_policy(settings.fsync)
            partition.log.options = options
            # Under another policy readers may see more.
            partition.wake()

    def close(self) -> None:
        self.closed = True
        self.dedup.close()
        for partition in self.partitions:
            partition.close()
