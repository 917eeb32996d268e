"""The bodies of requests and responses about producers and transactions."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.api.http.group_schemas import Generation, OffsetsByTopic
from goqueue.api.http.schemas import PublishMessage, Request
from goqueue.broker.open_transaction import State
from goqueue.broker.producer_ids import MAX_NAME_LENGTH
from goqueue.broker.transactions import MAX_AT_ONCE, MAX_KEY_LENGTH
from goqueue.delivery.receipts import MAX_RECEIPT_LENGTH
from goqueue.model.sequences import MAX_EPOCH, SEQUENCES

MAX_TRANSACTION_ID_LENGTH = 64
"""They have 42 characters at most; a little more is read, to say that there is no such transaction."""
MAX_FROZEN_RECEIPTS = 1_000
"""All or none are taken, and nobody else has a turn meanwhile."""
MAX_NAMED_PARTITIONS = 10_000
MAX_REASON_LENGTH = 1_000
_MAX_TEXT = 1_000
_INT64 = (1 << 63) - 1

ProducerId = Annotated[int, Meta(ge=0, le=_INT64, description="As init answered it.")]
Epoch = Annotated[int, Meta(ge=0, le=MAX_EPOCH, description="As init answered it.")]
TimeoutMs = Annotated[
    int,
    Meta(ge=1, le=_INT64, description="After so long a transaction is aborted; at most transactions.max_timeout_ms."),
]
TransactionalId = Annotated[
    str, Meta(max_length=MAX_NAME_LENGTH, description="The name under which a producer comes back after a restart.")
]
OwnTransactionalId = Annotated[
    str, Meta(max_length=MAX_NAME_LENGTH, description="If it is given it must be the producer's own.")
]
TransactionId = Annotated[str, Meta(min_length=1, max_length=MAX_TRANSACTION_ID_LENGTH)]
TransactionIdField = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_TRANSACTION_ID_LENGTH,
        description="As begin answered it; without it the one that the producer has open.",
    ),
]
Name = Annotated[str, Meta(max_length=_MAX_TEXT)]
PartitionNumber = Annotated[int, Meta(ge=0, le=_INT64)]
Receipt = Annotated[str, Meta(max_length=MAX_RECEIPT_LENGTH)]
Key = Annotated[str, Meta(min_length=1, max_length=MAX_KEY_LENGTH, description="The application's own, such as a job.")]
EndedState = Literal["completed_commit", "completed_abort"]


# Producers


class InitProducerRequest(Request):
    """With a ``transactional_id`` it takes over from whoever had that. ``timeout_ms``: of its transactions."""

    transactional_id: TransactionalId | None = None
    timeout_ms: TimeoutMs | None = None


class InitProducerResponse(Struct):
    """To be sent with everything that the producer does."""

    producer_id: int
    epoch: int
    timeout_ms: int


class ProducerHeartbeatRequest(Request):
    """Asks whether the producer is still the one; it does not put off the end of a transaction."""

    epoch: Epoch


class ProducerHeartbeatResponse(Struct):
    """Nobody has taken over."""

    success: bool


# What is done in a transaction


class BeginTransactionRequest(Request):
    """A producer has one transaction at a time."""

    producer_id: ProducerId
    epoch: Epoch
    transactional_id: OwnTransactionalId | None = None
    timeout_ms: TimeoutMs | None = None


class BeginTransactionResponse(Struct):
    """If it is not ended before ``deadline`` the broker aborts it."""

    transaction_id: str
    deadline: str


class TransactionalPublishRequest(PublishMessage, kw_only=True):
    """One message, with the fields that a message has elsewhere.

    ``sequence`` counts the producer's messages of one partition from 0 on: the same one again is not stored again, and
    what comes after a gap is refused.
    """

    producer_id: ProducerId
    epoch: Epoch
    topic: Name
    sequence: Annotated[int, Meta(ge=0, lt=SEQUENCES)] | None = None
    transaction_id: TransactionIdField | None = None
    transactional_id: OwnTransactionalId | None = None


class TransactionalPublishResponse(Struct, omit_defaults=True):
    """Where the message is. Readers see it when the transaction is committed; one that is delayed when it is due."""

    partition: int
    offset: int
    priority: str
    delayed: bool
    deliverAt: str | UnsetType = UNSET  # noqa: N815


class AddPartitionRequest(Request):
    """One ``partition`` or several ``partitions`` of a topic. Publishing to them adds them as well."""

    producer_id: ProducerId
    epoch: Epoch
    topic: Name
    partition: PartitionNumber | None = None
    partitions: Annotated[list[PartitionNumber], Meta(min_length=1, max_length=MAX_NAMED_PARTITIONS)] | None = None
    transaction_id: TransactionIdField | None = None
    transactional_id: OwnTransactionalId | None = None


class AddAcksRequest(Request):
    """Messages that are done when the transaction is committed; until it ends nobody else gets them."""

    producer_id: ProducerId
    epoch: Epoch
    receipts: Annotated[list[Receipt], Meta(min_length=1, max_length=MAX_FROZEN_RECEIPTS)]
    transaction_id: TransactionIdField | None = None


class AddOffsetsRequest(Request):
    """Offsets that a member's group goes on at when the transaction is committed, as in a commit of offsets."""

    producer_id: ProducerId
    epoch: Epoch
    group: Name
    member_id: Name
    offsets: OffsetsByTopic
    generation: Generation | None = None
    transaction_id: TransactionIdField | None = None


class AddedResponse(Struct):
    """All of it is part of the transaction."""

    added: bool
    transaction_id: str


# Ends


class EndTransactionRequest(Request):
    """With ``transaction_id`` it can be sent again: the answer is the same."""

    producer_id: ProducerId
    epoch: Epoch
    transactional_id: OwnTransactionalId | None = None
    transaction_id: TransactionIdField | None = None


class PrepareTransactionRequest(EndTransactionRequest):
    """See ``EndTransactionRequest``."""


class CommitTransactionRequest(EndTransactionRequest):
    """See ``EndTransactionRequest``."""


class AbortTransactionRequest(EndTransactionRequest):
    """See ``EndTransactionRequest``."""


class OperatorAbortRequest(Request):
    """``reason`` is what the producer is told, besides that an operator asked for it."""

    reason: Annotated[str, Meta(min_length=1, max_length=MAX_REASON_LENGTH)] | None = None


class PrepareTransactionResponse(Struct):
    """What it did survives a crash. If nobody ends it before ``deadline`` the broker aborts it."""

    status: Literal["prepared"]
    transaction_id: str
    deadline: str


class CommitTransactionResponse(Struct):
    """Readers see all of it, and that survives a crash."""

    status: Literal["committed"]
    transaction_id: str


class AbortTransactionResponse(Struct):
    """Nobody will ever see anything of it."""

    status: Literal["aborted"]
    transaction_id: str


class CommitManyRequest(Request):
    """Prepared ``transactions``, all or none. Who comes first with a ``key`` wins."""

    key: Key
    transactions: Annotated[list[TransactionId], Meta(max_length=MAX_AT_ONCE)]


class CommittedKey(Struct):
    """What is committed under a key. ``is_new``: by this very request."""

    key: str
    transactions: list[str]
    committed_at: str
    is_new: bool


# Looking


class TransactionInfo(Struct, omit_defaults=True, kw_only=True):
    """A transaction that has not ended. ``topics``: those that it has written to."""

    transaction_id: str
    producer_id: int
    epoch: int
    transactional_id: str | UnsetType = UNSET
    state: State
    started_at: str
    deadline: str
    messages: int
    topics: list[str]


class TransactionListResponse(Struct):
    """The oldest first. ``total``: how many there are, should that be more than ``limit``."""

    transactions: list[TransactionInfo]
    total: int


class TouchedPartition(Struct):
    """What a transaction has written lies from ``first_offset`` to before ``end_offset``, maybe among others'."""

    topic: str
    partition: int
    first_offset: int
    end_offset: int


class TransactionDetails(Struct, omit_defaults=True, kw_only=True):
    """A transaction, and what it did. Of one that has ended no more is known than how; ``reason``: why it was aborted.

    ``groups``: whose messages or offsets are part of it; ``acks``: how many messages it acks.
    """

    transaction_id: str
    producer_id: int
    epoch: int
    transactional_id: str | UnsetType = UNSET
    state: State | EndedState
    started_at: str | UnsetType = UNSET
    deadline: str | UnsetType = UNSET
    messages: int | UnsetType = UNSET
    acks: int | UnsetType = UNSET
    partitions: list[TouchedPartition] | UnsetType = UNSET
    groups: list[str] | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class TransactionStats(Struct):
    """Totals are counted since the broker started. ``avg_duration``: of those that were committed."""

    active_transactions: int
    prepared_transactions: int
    begun_total: int
    committed_total: int
    aborted_total: int
    timed_out_total: int
    fenced_total: int
    avg_duration: str
