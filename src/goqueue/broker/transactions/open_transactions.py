"""Transactions that have not ended: what each has done so far, and how the latest of the others ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.topic import Topic
from goqueue.coordination.transaction_records import GroupAcks, GroupOffset, Touched, TransactionRecord
from goqueue.delivery.in_flight_batch import HOLDER_PREFIX
from goqueue.model.errors import NotLeader, TransactionAborted, TransactionConflict, TransactionNotFound
from goqueue.model.fields import shown
from goqueue.wire.internal_headers import ProducerStamp

_REMEMBERED = 10_000


class State(StrEnum):
    """The values are those of the API."""

    ONGOING = "ongoing"
    PREPARING = "preparing"
    PREPARED = "prepared"
    PREPARING_COMMIT = "preparing_commit"
    PREPARING_ABORT = "preparing_abort"

    @property
    def words(self) -> str:
        """The state in an error message."""
        return self.value.replace("_", " ")


class AbortCause(StrEnum):
    """Why a transaction was aborted, as it is worded for users."""

    PRODUCER = "its producer asked for it"
    OPERATOR = "an operator asked for it"
    NOT_CHOSEN = "others were committed under the key that it was meant for"
    TAKEN_OVER = "its producer's id was taken over by another"
    TIMED_OUT = "it was not ended within its timeout"
    RESTARTED = "the broker was started again while it was open"
    FAILED = ""
    """It could not do what it was asked to; only the detail says what."""


@dataclass(frozen=True, slots=True)
class AbortReason:
    cause: AbortCause
    detail: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.cause.value, self.detail) if part)


@dataclass(slots=True)
class Touch:
    """What a transaction has written to one partition."""

    topic: Topic
    number: int
    partition: Partition
    first: int
    end: int
    truncations: int = 0
    """How often the partition had been cut when the transaction first wrote to it."""
    needs_file: bool = False
    """Whether its end is known only from the file of producers: see ``TransactionCompletion.cut_off``."""


@dataclass(slots=True, eq=False)
class OpenTransaction:
    transaction_id: str
    producer_id: int
    epoch: int
    name: str
    """The transactional id of its producer; empty if that has none."""
    started_ns: int
    deadline_ns: int
    state: State = State.ONGOING
    touched: dict[Partition, Touch] = field(default_factory=dict)
    acks: list[GroupAcks] = field(default_factory=list)
    offsets: dict[str, GroupOffset] = field(default_factory=dict)
    """By queue."""
    messages: int = 0
    for_key: str = ""
    """The key that it is meant to be committed under; it is aborted if others are committed under that key."""
    work: asyncio.Task[None] | None = None
    """The task that prepares or ends it."""
    incarnation: int = 0
    """That of the coordinator that has it."""
    is_let_go: bool = False
    """Whether its shard is not led here any more."""
    is_in_doubt: bool = False
    """Whether it is prepared, and the shard of its key may have committed it, which is not known here for now."""

    @property
    def holder(self) -> str:
        """The member that holds the messages that were acked in it."""
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
        return (self.state is State.ONGOING or self.state is State.PREPARED) and not self.is_in_doubt

    def is_same_begin(self, epoch: int, for_key: str) -> bool:
        """Whether nothing was done in it yet, so that beginning it again returns it."""
        return self.state is State.ONGOING and self.is_empty and (self.epoch, self.for_key) == (epoch, for_key)

    def doubt(self) -> NotLeader:
        """Why one that is in doubt cannot be ended."""
        return NotLeader(
            f"it is not known here at present whether transaction {self.transaction_id} was committed under the key "
            f"{shown(self.for_key)}"
        )

    def check_ongoing(self) -> None:
        if self.is_let_go:
            raise NotLeader(f"this broker does not lead the shard of transaction {self.transaction_id} at present")
        if self.state is not State.ONGOING:
            raise TransactionConflict(
                f"transaction {self.transaction_id} is {self.state.words}; nothing can be added to it"
            )

    def check_batch(self, stamp: ProducerStamp | None) -> None:
        """Raise unless a batch may be part of it."""
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
            truncations = partition.log.truncations
            touch = self.touched[partition] = Touch(topic, number, partition, first, first, truncations)
        touch.end = max(touch.end, first + count)
        self.messages += count

    def record(self) -> TransactionRecord:
        """The form that is journaled."""
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


class OpenTransactions:
    def __init__(self, is_committed: Callable[[str], bool]) -> None:
        """``is_committed`` looks a transaction up in the journal's state."""
        self._in_journal = is_committed
        self._by_id: dict[str, OpenTransaction] = {}
        self._by_producer: dict[int, OpenTransaction] = {}
        self.reasons: dict[str, AbortReason] = {}
        """Why the latest of the aborted transactions were aborted."""
        self._empty: dict[str, None] = {}
        """The latest committed transactions that had done nothing: the journal has no record of these."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, transaction_id: str) -> bool:
        return transaction_id in self._by_id

    def all(self) -> list[OpenTransaction]:
        """The oldest first."""
        return list(self._by_id.values())

    def get(self, transaction_id: str) -> OpenTransaction | None:
        return self._by_id.get(transaction_id)

    def of(self, producer_id: int) -> OpenTransaction | None:
        return self._by_producer.get(producer_id)

    def find(self, transaction_id: str) -> OpenTransaction:
        found = self._by_id.get(transaction_id)
        if found is None:
            reason = self.reasons.get(transaction_id)
            if reason is not None:
                raise TransactionAborted(f"transaction {transaction_id} was aborted: {reason}")
            if self.is_committed(transaction_id):
                raise TransactionConflict(f"transaction {transaction_id} is committed")
            raise TransactionNotFound(f"there is no transaction {shown(transaction_id)}")
        return found

    def ongoing(self, producer_id: int, epoch: int, transaction_id: str | None) -> OpenTransaction:
        """The transaction to which a producer may add something; without an id, the one that the producer has open."""
        found = self._by_producer.get(producer_id) if transaction_id is None else self.find(transaction_id)
        if found is None:
            raise TransactionNotFound(
                f"producer {producer_id} has no transaction open{self._last_reason(producer_id, epoch)}"
            )
        if found.producer_id != producer_id or found.epoch != epoch:
            raise TransactionConflict(f"transaction {found.transaction_id} is another producer's")
        found.check_ongoing()
        return found

    def _last_reason(self, producer_id: int, epoch: int) -> str:
        start = f"{producer_id}-{epoch}-"
        reasons = [reason for each, reason in reversed(self.reasons.items()) if each.startswith(start)]
        return f"; its last one was aborted: {reasons[0]}" if reasons else ""

    def is_known(self, transaction_id: str) -> bool:
        """Whether it is open, or how it ended is remembered."""
        return transaction_id in self._by_id or transaction_id in self.reasons or self.is_committed(transaction_id)

    def is_committed(self, transaction_id: str) -> bool:
        return transaction_id in self._empty or self._in_journal(transaction_id)

    # Changing

    def add(self, transaction: OpenTransaction) -> None:
        self._by_id[transaction.transaction_id] = transaction
        self._by_producer[transaction.producer_id] = transaction

    def note_empty(self, transaction: OpenTransaction) -> None:
        """It is committed and has done nothing."""
        self._empty[transaction.transaction_id] = None
        _keep_last(self._empty)

    def note_aborted(self, transaction_id: str, reason: AbortReason) -> None:
        """Batches that arrive late for it must not begin it again."""
        self.reasons[transaction_id] = reason
        _keep_last(self.reasons)

    def forget(self, transaction: OpenTransaction, reason: AbortReason | None = None) -> None:
        """It has ended; ``reason`` says why it was aborted, if it was."""
        if reason is not None:
            self.note_aborted(transaction.transaction_id, reason)
        self._by_id.pop(transaction.transaction_id, None)
        if self._by_producer.get(transaction.producer_id) is transaction:
            del self._by_producer[transaction.producer_id]


def _keep_last(kept: dict[str, Any]) -> None:
    while len(kept) > _REMEMBERED:
        del kept[next(iter(kept))]
