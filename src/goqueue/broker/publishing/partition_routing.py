"""Which partition a message goes to: the one that it names, that of its key, or the one whose turn it is."""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.broker.partitions.topic import Topic
from goqueue.model.publishing import NewMessage
from goqueue.wire.key_hash import partition_of


@dataclass(slots=True)
class PartitionRouting:
    """For one request: its messages without a key stay together, and the next partition has the next request's."""

    topic: Topic
    _keyless: int | None = None

    def route(self, message: NewMessage) -> int:
        topic = self.topic
        if message.partition is not None:
            topic.partition(message.partition)
            return message.partition
        if message.key:
            return partition_of(message.key, len(topic.partitions))
        if self._keyless is None:
            self._keyless = topic.next_keyless
            topic.next_keyless = (self._keyless + 1) % len(topic.partitions)
        return self._keyless
