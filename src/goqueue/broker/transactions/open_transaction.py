"""A transaction that has not ended, and what it has done so far."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.topic import Topic
from goqueue.coordination.transaction_records import GroupAcks, GroupOffset, Touched, TransactionRecord
from goqueue.delivery.in_flight_batch import HOLDER_PREFIX
from goqueue.model.errors import TransactionConflict
from goqueue.wire.internal_headers import ProducerStamp

State = Literal["ongoing", "preparing", "prepared", "preparing_commit", "preparing_abort"]


@dataclass(slots=True)
class Touch:
    """What a transaction has written to one partition."""

    topic: Topic
    number: int
    partition: Partition
    first: int
    end: int
    needs_file: bool = False
    """Whether only the file of producers can tell where it ends: see ``TransactionCompletion.cut_off``."""


@dataclass(slots=True, eq=False)
class OpenTransaction:
    transaction_id: str
    producer_id: int
    epoch: int
    name: str
    """The transactional id of its producer; empty if that has none."""
    started_ns: int
    deadline_ns: int
    state: State = "ongoing"
    touched: dict[Partition, Touch] = field(default_factory=dict)
    acks: list[GroupAcks] = field(default_factory=list)
    offsets: dict[str, GroupOffset] = field(default_factory=dict)
    """By queue."""
    messages: int = 0
    for_key: str = ""
    """When others are committed under this key, it is of no use any more."""
    work: asyncio.Task[None] | None = None
    """What is being done to prepare or to end it."""

    @property
    def holder(self) -> str:
        """Who has the messages in hand that were acked in it."""
        return holder_of(self.transaction_id)

    @property
    def is_empty(self) -> bool:
        return not (self.touched or self.acks or self.offsets)

    @property
    def groups(self) -> list[str]:
        """Whose messages or offsets are part of it."""
        return sorted({each.group for each in self.acks} | {each.group for each in self.offsets.values()})

    @property
    def can_end(self) -> bool:
        """Whether nothing is being done to it, so that it can be committed or aborted."""
        return self.state in ("ongoing", "prepared")

    def is_same_begin(self, epoch: int, for_key: str) -> bool:
        """Whether nothing was done in it yet, so that it can be begun again."""
        return self.state == "ongoing" and self.is_empty and (self.epoch, self.for_key) == (epoch, for_key)

    def check_ongoing(self) -> None:
        if self.state != "ongoing":
            raise TransactionConflict(
                f"transaction {self.transaction_id} is {self.state.replace('_', ' ')}; nothing can be added to it"
            )

    def check_batch(self, stamp: ProducerStamp | None) -> None:
        """Whether a batch may be part of it."""
        self.check_ongoing()
        if stamp is None or (stamp.producer_id, stamp.epoch) != (self.producer_id, self.epoch):
            raise TransactionConflict(
                f"transaction {self.transaction_id} is of producer {self.producer_id} in epoch {self.epoch}, and the "
                "batch is not"
            )

    def touch(self, topic: Topic, number: int, first: int, count: int) -> None:
        """Records were appended to a partition."""
        partition = topic.partitions[number]
        touch = self.touched.get(partition)
        if touch is None:
            touch = self.touched[partition] = Touch(topic, number, partition, first, first)
        touch.end = max(touch.end, first + count)
        self.messages += count

    def record(self) -> TransactionRecord:
        """As it is journaled."""
        touched = [
            Touched(each.topic.record.topic_id, each.number, each.first, each.end) for each in self.touched.values()
        ]
        return TransactionRecord(
            self.transaction_id,
            self.producer_id,
            self.epoch,
            self.name,
            self.started_ns,
            self.deadline_ns,
            touched,
            list(self.acks),
            list(self.offsets.values()),
            self.messages,
            self.for_key,
        )


def holder_of(transaction_id: str) -> str:
    return HOLDER_PREFIX + transaction_id
