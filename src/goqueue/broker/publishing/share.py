"""What one partition gets of a publish request, in one batch, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.publishing.appending import Appended
from goqueue.broker.registry.schema_check import Problems
from goqueue.broker.transactions.open_transactions import OpenTransaction
from goqueue.model.errors import GoQueueError
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage, Outcome
from goqueue.wire.batch import CheckedBatch, join_frames
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.producer_frames import stamp_batch


@dataclass(slots=True)
class Share:
    """Some messages of a request, encoded. ``places`` says which of the request's messages they are."""

    number: int
    """Of the partition."""
    frames: list[bytes] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    size: int = 0
    max_timestamp_ns: int = 0
    dues: dict[int, int] = field(default_factory=dict)
    """Of those that are delayed: when they are due, by their place in this batch."""
    refused: Problems = field(default_factory=dict)
    """Why some become dead letters, by their place in this batch."""
    ids: dict[int, bytes] = field(default_factory=dict)
    """Dedup ids, by their place in this batch."""
    has_id: set[str] = field(default_factory=set)

    def batch(self, partition: Partition, transaction: OpenTransaction | None, sequence: int | None) -> CheckedBatch:
        """As it is written; in a transaction with the stamp of its producer."""
        if transaction is None:
            return join_frames(self.frames, self.max_timestamp_ns)
        producer_id, epoch = transaction.producer_id, transaction.epoch
        if sequence is None:
            sequence = partition.producers.state.next_sequence(producer_id, epoch)
        stamp = ProducerStamp(producer_id, epoch, sequence, len(self.frames))
        return replace(join_frames(stamp_batch(self.frames, stamp), self.max_timestamp_ns), producer=stamp)

    def forget_past_dues(self, topic: Topic, appended: Appended) -> None:
        """Delayed messages that became due since they were encoded were written as plain ones."""
        if not self.dues:
            return
        for at, (number, offset) in enumerate(appended.places(len(self.places), self.number)):
            if at in self.dues and topic.partitions[number].delays.due(offset) is None:
                del self.dues[at]

    def published(self, appended: Appended, messages: Sequence[NewMessage], outcomes: list[Outcome | None]) -> None:
        """Set the outcome of each message of the share. ``messages`` and ``outcomes`` are the whole request's."""
        places = zip(self.places, appended.places(len(self.places), self.number), strict=True)
        if not self.dues and not appended.duplicates:
            for place, (number, offset) in places:
                outcomes[place] = Published(number, offset, messages[place].priority)
            return
        for at, (place, (number, offset)) in enumerate(places):
            priority, due_ns = messages[place].priority, self.dues.get(at)
            outcomes[place] = Published(number, offset, priority, due_ns, at in appended.duplicates)

    def failed(self, error: GoQueueError, outcomes: list[Outcome | None]) -> None:
        for place in self.places:
            outcomes[place] = error
