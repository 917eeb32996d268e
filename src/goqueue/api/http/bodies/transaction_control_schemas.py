"""The bodies of requests and responses about transactions as operators see them, and who commits many at once."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.api.http.bodies.fields import PartitionField, TopicField
from goqueue.api.http.bodies.message_schemas import Request
from goqueue.api.http.bodies.transaction_schemas import (
    MAX_TRANSACTION_ID_LENGTH,
    DeadlineField,
    KeyField,
    TransactionIdTold,
)
from goqueue.broker.operations.limits import MAX_COMMITTED_TOGETHER

MAX_REASON_LENGTH = 1_000
StateName = Literal["ongoing", "preparing", "prepared", "preparing_commit", "preparing_abort"]
EndedState = Literal["completed_commit", "completed_abort"]
TransactionId = Annotated[str, Meta(min_length=1, max_length=MAX_TRANSACTION_ID_LENGTH)]
ProducerIdTold = Annotated[int, Meta(description="The producer whose it is.")]
EpochTold = Annotated[int, Meta(description="The producer's epoch.")]
NameTold = Annotated[str, Meta(description="The producer's name; left out if it has none.")]
ForKeyTold = Annotated[str, Meta(description="The key that it was begun for; left out if there is none.")]
StartedField = Annotated[str, Meta(description="When it was begun (RFC 3339).")]
MessagesField = Annotated[int, Meta(description="How many messages were published in it.")]


class OperatorAbortRequest(Request):
    """Why the transaction is aborted."""

    reason: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=MAX_REASON_LENGTH,
                description="What the producer is told, besides that an operator asked for it.",
            ),
        ]
        | None
    ) = None


class CommitManyRequest(Request):
    """Who comes first with a key wins."""

    key: KeyField
    transactions: Annotated[
        list[TransactionId],
        Meta(max_length=MAX_COMMITTED_TOGETHER, description="Ids of prepared transactions, all or none."),
    ]


class CommittedKey(Struct):
    """What is committed under a key."""

    key: Annotated[str, Meta(description="The application's own, such as a job.")]
    transactions: Annotated[list[str], Meta(description="The ids of the transactions.")]
    committed_at: Annotated[str, Meta(description="When they were committed (RFC 3339).")]
    is_new: Annotated[bool, Meta(description="Whether this very request has committed them.")]


class TransactionInfo(Struct, omit_defaults=True, kw_only=True):
    """A transaction that has not ended."""

    transaction_id: TransactionIdTold
    producer_id: ProducerIdTold
    epoch: EpochTold
    transactional_id: NameTold | UnsetType = UNSET
    for_key: ForKeyTold | UnsetType = UNSET
    state: Annotated[StateName, Meta(description="How far it is.")]
    started_at: StartedField
    deadline: DeadlineField
    messages: MessagesField
    topics: Annotated[list[str], Meta(description="The topics that it has written to.")]


class TransactionListResponse(Struct):
    """Transactions that have not ended."""

    transactions: Annotated[list[TransactionInfo], Meta(description="The oldest first, as many as limit allows.")]
    total: Annotated[int, Meta(description="How many there are.")]


class TouchedPartition(Struct):
    """Where a transaction has written, maybe among others."""

    topic: TopicField
    partition: PartitionField
    first_offset: Annotated[int, Meta(description="Where what it has written there begins.")]
    end_offset: Annotated[int, Meta(description="The offset behind the last that it has written there.")]


class TransactionDetails(Struct, omit_defaults=True, kw_only=True):
    """A transaction, and what it did. Of one that has ended no more is known than how."""

    transaction_id: TransactionIdTold
    producer_id: ProducerIdTold
    epoch: EpochTold
    transactional_id: NameTold | UnsetType = UNSET
    for_key: ForKeyTold | UnsetType = UNSET
    state: Annotated[StateName | EndedState, Meta(description="How far it is, or how it ended.")]
    started_at: StartedField | UnsetType = UNSET
    deadline: DeadlineField | UnsetType = UNSET
    messages: MessagesField | UnsetType = UNSET
    acks: Annotated[int | UnsetType, Meta(description="How many messages it acks.")] = UNSET
    partitions: Annotated[list[TouchedPartition] | UnsetType, Meta(description="Where it has written.")] = UNSET
    groups: Annotated[
        list[str] | UnsetType, Meta(description="The groups whose messages or offsets are part of it.")
    ] = UNSET
    reason: Annotated[str | UnsetType, Meta(description="Why it was aborted, if it was and that is known.")] = UNSET


class TransactionStats(Struct):
    """Totals are counted since the broker started."""

    active_transactions: Annotated[int, Meta(description="Have not ended, the prepared ones included.")]
    prepared_transactions: Annotated[int, Meta(description="Are prepared.")]
    begun_total: Annotated[int, Meta(description="Were begun.")]
    committed_total: Annotated[int, Meta(description="Were committed.")]
    aborted_total: Annotated[int, Meta(description="Were aborted, for whatever reason.")]
    timed_out_total: Annotated[int, Meta(description="Were aborted because their time was over.")]
    fenced_total: Annotated[
        int, Meta(description="Transactions that were taken over, and requests of producers that were.")
    ]
    avg_duration: Annotated[str, Meta(description="How long those that were committed took, such as 120ms.")]
