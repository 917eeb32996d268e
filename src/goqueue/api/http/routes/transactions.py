"""What a producer does in a transaction, from its begin to its end."""

from __future__ import annotations

from typing import Any

from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody
from msgspec import UNSET

from goqueue.api.http.bodies.convert import to_new_message
from goqueue.api.http.bodies.errors import documented
from goqueue.api.http.bodies.transaction_schemas import (
    MAX_FROZEN_RECEIPTS,
    MAX_NAMED_PARTITIONS,
    AbortTransactionRequest,
    AbortTransactionResponse,
    AddAcksRequest,
    AddedResponse,
    AddOffsetsRequest,
    AddPartitionRequest,
    BeginTransactionRequest,
    BeginTransactionResponse,
    CommitTransactionRequest,
    CommitTransactionResponse,
    EndTransactionRequest,
    PrepareTransactionRequest,
    PrepareTransactionResponse,
    TransactionalPublishRequest,
    TransactionalPublishResponse,
)
from goqueue.api.http.routes.publish import in_trace_of, trace_of
from goqueue.api.http.server.openapi import answer
from goqueue.broker.broker import Broker
from goqueue.broker.transactions.transaction_service import TransactionService
from goqueue.delivery.receipts import MAX_RECEIPT_LENGTH
from goqueue.model.errors import GoQueueError, InvalidRequest, TransactionConflict
from goqueue.model.fields import shown
from goqueue.model.message import PRIORITY_LABELS
from goqueue.model.units import format_instant_ns

_TAGS = ["Transactions"]
_MAX_ACKS_BYTES = MAX_FROZEN_RECEIPTS * (MAX_RECEIPT_LENGTH + len('"",')) + (64 << 10)
_ID = "4514783002117349-0-5f5e1a2b3c4d5e6f"
_BEGUN = {"transaction_id": _ID, "deadline": "2030-01-01T09:01:00Z"}
_STORED = {"partition": 0, "offset": 17, "priority": "normal", "delayed": False}
_PREPARED = {"status": "prepared", "transaction_id": _ID, "deadline": "2030-01-02T09:00:00Z"}


def transaction_routes(broker: Broker) -> list[HTTPRouteHandler]:
    return [*_routes_of_work(broker), *_routes_of_groups(broker), *_routes_of_ends(broker)]


def _routes_of_work(broker: Broker) -> list[HTTPRouteHandler]:
    transactions = broker.transactions

    @post(
        "/transactions/begin",
        tags=_TAGS,
        status_code=200,
        responses={
            **documented(404, 409, 413, 429),
            200: answer(BeginTransactionResponse, "It is open.", _BEGUN),
        },
        summary="Begin a transaction",
    )
    async def begin_transaction(data: JSONBody[BeginTransactionRequest]) -> BeginTransactionResponse:
        """A producer has one at a time; one in which nothing was done yet is the same when asked for again."""
        broker.check_open()
        _check_name(transactions, data.producer_id, data.epoch, data.transactional_id)
        begun = transactions.begin(data.producer_id, data.epoch, data.timeout_ms, data.for_key or "")
        return BeginTransactionResponse(begun.transaction_id, format_instant_ns(begun.deadline_ns))

    @post(
        "/transactions/publish",
        tags=_TAGS,
        status_code=200,
        responses={
            **documented(404, 409, 413, 415, 422, 429, 507),
            200: answer(TransactionalPublishResponse, "It is part of the transaction.", _STORED),
        },
        request_max_body_size=None,
        summary="Publish a message in a transaction",
    )
    async def publish_in_transaction(
        request: Request[Any, Any, Any], data: JSONBody[TransactionalPublishRequest]
    ) -> TransactionalPublishResponse:
        """Readers see it when the transaction is committed."""
        _check_name(transactions, data.producer_id, data.epoch, data.transactional_id)
        transaction = transactions.ongoing(data.producer_id, data.epoch, data.transaction_id)
        message = to_new_message(data, broker.clock.now_ns())
        message = in_trace_of(message, trace_of(request.scope["headers"]))
        (stored,) = await broker.publish(data.topic, [message], transaction, data.sequence)
        if isinstance(stored, GoQueueError):
            raise stored
        due_ns = stored.deliver_at_ns
        return TransactionalPublishResponse(
            stored.partition,
            stored.offset,
            PRIORITY_LABELS[stored.priority],
            due_ns is not None,
            UNSET if due_ns is None else format_instant_ns(due_ns),
        )

    @post(
        "/transactions/add-partition",
        tags=_TAGS,
        status_code=200,
        responses=documented(404, 409, 413),
        summary="Ask whether a transaction may write to partitions",
    )
    async def add_partition(data: JSONBody[AddPartitionRequest]) -> AddedResponse:
        """It is an error if one of them is not there. Publishing adds them by itself."""
        if (data.partition is None) == (data.partitions is None):
            raise InvalidRequest("give either partition or partitions")
        _check_name(transactions, data.producer_id, data.epoch, data.transactional_id)
        transaction = transactions.ongoing(data.producer_id, data.epoch, data.transaction_id)
        topic = broker.topic(data.topic)
        for number in (data.partitions or []) if data.partition is None else [data.partition]:
            topic.partition(number)
        return AddedResponse(added=True, transaction_id=transaction.transaction_id)

    return [begin_transaction, publish_in_transaction, add_partition]


def _routes_of_groups(broker: Broker) -> list[HTTPRouteHandler]:
    transactions = broker.transactions

    @post(
        "/transactions/acks",
        tags=_TAGS,
        status_code=200,
        responses=documented(404, 409, 410, 413),
        request_max_body_size=_MAX_ACKS_BYTES,
        summary="Ack messages with a transaction, all of them or none",
    )
    async def add_acks(data: JSONBody[AddAcksRequest]) -> AddedResponse:
        """They are done when it is committed; until it ends nobody else gets them."""
        transaction = transactions.ongoing(data.producer_id, data.epoch, data.transaction_id)
        await transactions.add_acks(transaction, data.receipts)
        return AddedResponse(added=True, transaction_id=transaction.transaction_id)

    @post(
        "/transactions/offsets",
        tags=_TAGS,
        status_code=200,
        responses=documented(404, 409, 413, 416),
        summary="Commit a group's offsets with a transaction",
    )
    async def add_offsets(data: JSONBody[AddOffsetsRequest]) -> AddedResponse:
        """The group goes on there when it is committed."""
        count = sum(map(len, data.offsets.values()))
        if not 1 <= count <= MAX_NAMED_PARTITIONS:
            raise InvalidRequest(f"offsets: there are {count}; 1 to {MAX_NAMED_PARTITIONS} are allowed")
        transaction = transactions.ongoing(data.producer_id, data.epoch, data.transaction_id)
        await transactions.add_offsets(transaction, data.group, data.member_id, data.offsets, data.generation)
        return AddedResponse(added=True, transaction_id=transaction.transaction_id)

    return [add_acks, add_offsets]


def _routes_of_ends(broker: Broker) -> list[HTTPRouteHandler]:
    transactions = broker.transactions

    @post(
        "/transactions/prepare",
        tags=_TAGS,
        status_code=200,
        responses={
            **documented(404, 409, 413, 507),
            200: answer(PrepareTransactionResponse, "It is safe, and can only be ended.", _PREPARED),
        },
        summary="Make safe what a transaction did, and leave it to someone else how it ends",
    )
    async def prepare_transaction(data: JSONBody[PrepareTransactionRequest]) -> PrepareTransactionResponse:
        """What it did survives a crash, and nothing can be added."""
        # Found before: once it is prepared, someone else may end it any moment.
        transaction = transactions.find(_own(transactions, data))
        await transactions.preparing.prepare(transaction.transaction_id)
        deadline = format_instant_ns(transaction.deadline_ns)
        return PrepareTransactionResponse("prepared", transaction.transaction_id, deadline)

    @post(
        "/transactions/commit",
        tags=_TAGS,
        status_code=200,
        responses=documented(404, 409, 413, 507),
        summary="Commit a transaction",
    )
    async def commit_transaction(data: JSONBody[CommitTransactionRequest]) -> CommitTransactionResponse:
        """Readers see all of it from now on, and that survives a crash."""
        transaction_id = _own(transactions, data)
        await transactions.committing.commit(transaction_id)
        return CommitTransactionResponse("committed", transaction_id)

    @post(
        "/transactions/abort",
        tags=_TAGS,
        status_code=200,
        responses=documented(404, 409, 413),
        summary="Abort a transaction",
    )
    async def abort_transaction(data: JSONBody[AbortTransactionRequest]) -> AbortTransactionResponse:
        """Nobody will ever see anything of it; what was acked in it comes again."""
        transaction_id = _own(transactions, data)
        await transactions.abort_own(transaction_id, data.producer_id, data.epoch)
        return AbortTransactionResponse("aborted", transaction_id)

    return [prepare_transaction, commit_transaction, abort_transaction]


def _check_name(transactions: TransactionService, producer_id: int, epoch: int, given: str | None) -> None:
    """Whether the producer is still the one, and the transactional id its own, if there is one in the request."""
    transactions.check_producer(producer_id, epoch)
    own = transactions.state.name_of(producer_id)
    if given and given != own:
        told = f"its own is {shown(own)}" if own else "it has none"
        raise TransactionConflict(
            f"transactional_id is {shown(given)}, which is not that of producer {producer_id}; {told}"
        )


def _own(transactions: TransactionService, data: EndTransactionRequest) -> str:
    """Which transaction is to be ended: one that may be over by now if it is named, else the one that is open."""
    _check_name(transactions, data.producer_id, data.epoch, data.transactional_id)
    if data.transaction_id is not None:
        transactions.check_owner(data.transaction_id, data.producer_id, data.epoch)
        return data.transaction_id
    try:
        return transactions.ongoing(data.producer_id, data.epoch).transaction_id
    except TransactionConflict:
        # It is open and takes nothing more: it is prepared, or someone is ending it.
        for each in transactions.open_transactions():
            if (each.producer_id, each.epoch) == (data.producer_id, data.epoch):
                return each.transaction_id
        raise
