"""The bodies of requests and responses about producers and transactions."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.api.http.bodies.fields import DueField, PartitionField, PriorityNameField
from goqueue.api.http.bodies.group_schemas import CommitField, OnlyInField
from goqueue.api.http.bodies.message_schemas import PublishMessage, Request
from goqueue.broker.operations.limits import (
    MAX_COMMIT_KEY_LENGTH,
    MAX_NAMED_PARTITIONS,
    MAX_RECEIPT_LENGTH,
    MAX_TRANSACTIONAL_ID_LENGTH,
)
from goqueue.model.producer_sequences import MAX_EPOCH, SEQUENCES

MAX_TRANSACTION_ID_LENGTH = 64
"""They have 42 characters at most; a little more is read, to say that there is no such transaction."""
MAX_FROZEN_RECEIPTS = 1_000
"""All or none are taken, and nobody else has a turn meanwhile."""
_MAX_TEXT = 1_000
_INT64 = (1 << 63) - 1

ProducerId = Annotated[int, Meta(ge=0, le=_INT64, description="As init answered it.")]
Epoch = Annotated[int, Meta(ge=0, le=MAX_EPOCH, description="As init answered it.")]
TimeoutMs = Annotated[
    int,
    Meta(ge=1, le=_INT64, description="After so long a transaction is aborted; at most transactions.max_timeout_ms."),
]
TransactionalId = Annotated[
    str,
    Meta(
        max_length=MAX_TRANSACTIONAL_ID_LENGTH,
        description="The name under which a producer comes back after a restart.",
    ),
]
OwnTransactionalId = Annotated[
    str, Meta(max_length=MAX_TRANSACTIONAL_ID_LENGTH, description="If it is given it must be the producer's own.")
]
TransactionIdField = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_TRANSACTION_ID_LENGTH,
        description="As begin answered it; without it the one that the producer has open.",
    ),
]
TransactionIdTold = Annotated[str, Meta(description="The transaction's id.")]
DeadlineField = Annotated[str, Meta(description="The broker aborts it then, unless it has ended (RFC 3339).")]
Topic = Annotated[str, Meta(max_length=_MAX_TEXT, description="The topic's name.")]
Group = Annotated[str, Meta(max_length=_MAX_TEXT, description="The group's name.")]
Member = Annotated[str, Meta(max_length=_MAX_TEXT, description="The member, as the join answered it.")]
PartitionNumber = Annotated[int, Meta(ge=0, le=_INT64, description="The partition's number, counted from 0.")]
Receipt = Annotated[str, Meta(max_length=MAX_RECEIPT_LENGTH)]
KeyField = Annotated[
    str, Meta(min_length=1, max_length=MAX_COMMIT_KEY_LENGTH, description="The application's own, such as a job.")
]
ForKeyField = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_COMMIT_KEY_LENGTH,
        description="It is aborted when commit-many has committed others under that key.",
    ),
]


# Producers


class InitProducerRequest(Request):
    """Who the producer is."""

    transactional_id: TransactionalId | None = None
    timeout_ms: TimeoutMs | None = None


class InitProducerResponse(Struct):
    """To be sent with everything that the producer does."""

    producer_id: Annotated[int, Meta(description="Its id.")]
    epoch: Annotated[int, Meta(description="Goes up when someone takes over its transactional_id.")]
    timeout_ms: Annotated[int, Meta(description="After so long its transactions are aborted.")]


class ProducerHeartbeatRequest(Request):
    """Which of those that had the id it is."""

    epoch: Epoch


class ProducerHeartbeatResponse(Struct):
    """Nobody has taken over."""

    success: Annotated[bool, Meta(description="Always true; a producer that was taken over from gets an error.")]


# What is done in a transaction


class BeginTransactionRequest(Request):
    """A producer has one transaction at a time."""

    producer_id: ProducerId
    epoch: Epoch
    transactional_id: OwnTransactionalId | None = None
    timeout_ms: TimeoutMs | None = None
    for_key: ForKeyField | None = None


class BeginTransactionResponse(Struct):
    """The transaction is open."""

    transaction_id: TransactionIdTold
    deadline: DeadlineField


class TransactionalPublishRequest(PublishMessage, kw_only=True):
    """One message, with the fields that a message has elsewhere."""

    producer_id: ProducerId
    epoch: Epoch
    topic: Topic
    sequence: (
        Annotated[
            int,
            Meta(
                ge=0,
                lt=SEQUENCES,
                description="Counts the producer's messages of one partition from 0 on: the same one again is not "
                "stored again, and what comes after a gap is refused.",
            ),
        ]
        | None
    ) = None
    transaction_id: TransactionIdField | None = None
    transactional_id: OwnTransactionalId | None = None


class TransactionalPublishResponse(Struct, omit_defaults=True):
    """Where the message is. Readers see it when the transaction is committed; one that is delayed when it is due."""

    partition: PartitionField
    offset: Annotated[int, Meta(description="The message's place in its partition; one that is delayed gets another.")]
    priority: PriorityNameField
    delayed: Annotated[bool, Meta(description="Whether it waits for its time.")]
    deliverAt: DueField | UnsetType = UNSET


class AddPartitionRequest(Request):
    """Says exactly one of ``partition`` and ``partitions``. Publishing to them adds them as well."""

    producer_id: ProducerId
    epoch: Epoch
    topic: Topic
    partition: PartitionNumber | None = None
    partitions: (
        Annotated[
            list[PartitionNumber], Meta(min_length=1, max_length=MAX_NAMED_PARTITIONS, description="Several of them.")
        ]
        | None
    ) = None
    transaction_id: TransactionIdField | None = None
    transactional_id: OwnTransactionalId | None = None


class AddAcksRequest(Request):
    """Messages that are done when the transaction is committed; until it ends nobody else gets them."""

    producer_id: ProducerId
    epoch: Epoch
    receipts: Annotated[
        list[Receipt],
        Meta(
            min_length=1, max_length=MAX_FROZEN_RECEIPTS, description="As polls answered them; all are taken, or none."
        ),
    ]
    transaction_id: TransactionIdField | None = None


class AddOffsetsRequest(Request):
    """Offsets that a member's group goes on at when the transaction is committed, as in a commit of offsets."""

    producer_id: ProducerId
    epoch: Epoch
    group: Group
    member_id: Member
    offsets: CommitField
    generation: OnlyInField | None = None
    transaction_id: TransactionIdField | None = None


class AddedResponse(Struct):
    """All of it is part of the transaction."""

    added: Annotated[bool, Meta(description="Always true; what cannot be added is an error.")]
    transaction_id: TransactionIdTold


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


class PrepareTransactionResponse(Struct):
    """What it did survives a crash."""

    status: Annotated[Literal["prepared"], Meta(description="Always prepared; what cannot be is an error.")]
    transaction_id: TransactionIdTold
    deadline: DeadlineField


class CommitTransactionResponse(Struct):
    """Readers see all of it, and that survives a crash."""

    status: Annotated[Literal["committed"], Meta(description="Always committed; what cannot be is an error.")]
    transaction_id: TransactionIdTold


class AbortTransactionResponse(Struct):
    """Nobody will ever see anything of it."""

    status: Annotated[Literal["aborted"], Meta(description="Always aborted; what cannot be is an error.")]
    transaction_id: TransactionIdTold
