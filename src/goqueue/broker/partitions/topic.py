"""One topic at work."""

from __future__ import annotations

from dataclasses import dataclass, field

from goqueue.broker.partitions.dedup_ids import DedupIds
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.runtime.shard_placement import first_shard_of, shard_of_partition
from goqueue.coordination.catalog import TopicRecord
from goqueue.model.errors import PartitionNotFound
from goqueue.model.fields import shown
from goqueue.model.topic_settings import TopicSettings
from goqueue.storage.log.log import LogOptions

DEAD_LETTER_SUFFIX = ".dlq"
_MAX_STEM = 196
"""So that a name with the suffix is not longer than names may be."""


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
    shards: list[int] = field(init=False)
    """The shard of each partition."""

    def __post_init__(self) -> None:
        first = first_shard_of(self.record)
        self.shards = [shard_of_partition(first, number) for number in range(len(self.partitions))]

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def dead_letter_name(self) -> str:
        """The name of the topic for its dead letters, unless it is one itself."""
        return self.settings.dead_letter_topic or self.default_dead_letter_name

    @property
    def default_dead_letter_name(self) -> str:
        return self.record.name[:_MAX_STEM] + DEAD_LETTER_SUFFIX

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
