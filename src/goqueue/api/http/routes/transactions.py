"""Producers with ids, of which a retry is not stored twice, and their transactions from begin to end."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta

from goqueue.api.http.bodies.convert import to_new_message
from goqueue.api.http.bodies.transaction_schemas import (
    MAX_FROZEN_RECEIPTS,
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
    InitProducerRequest,
    InitProducerResponse,
    PrepareTransactionRequest,
    PrepareTransactionResponse,
    ProducerHeartbeatRequest,
    ProducerHeartbeatResponse,
    TransactionalPublishRequest,
    TransactionalPublishResponse,
)
from goqueue.api.http.routes.broker_routes import BrokerRoutes
from goqueue.api.http.routes.publish import in_trace_of, trace_of
from goqueue.api.http.routing.declaration import Documented, post
from goqueue.api.http.server.request import Request
from goqueue.broker.operations import Caller, TransactionRef
from goqueue.broker.operations.limits import MAX_NAMED_PARTITIONS, MAX_RECEIPT_LENGTH
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.message import PRIORITY_LABELS
from goqueue.model.units import format_instant_ns

_MAX_ACKS_BYTES = MAX_FROZEN_RECEIPTS * (MAX_RECEIPT_LENGTH + len('"",')) + (64 << 10)
_PRODUCER = {"producer_id": 4_514_783_002_117_349, "epoch": 0, "timeout_ms": 60_000}
_ID = "4514783002117349-0-5f5e1a2b3c4d5e6f"
_BEGUN = {"transaction_id": _ID, "deadline": "2030-01-01T09:01:00Z"}
_STORED = {"partition": 0, "offset": 17, "priority": "normal", "delayed": False}
_PREPARED = {"status": "prepared", "transaction_id": _ID, "deadline": "2030-01-02T09:00:00Z"}


class TransactionRoutes(BrokerRoutes):
    """Producers with ids, and what they do in a transaction."""

    tag = "Transactions"

    @post(
        "/producers/init",
        answer=Documented("Its id and epoch.", _PRODUCER),
        summary="Get a producer's id, taking over from the producer that had its transactional id",
    )
    async def init_producer(self, caller: Caller, data: InitProducerRequest) -> InitProducerResponse:
        """The one before is fenced, and what it left open is aborted, or finished if its commit was decided."""
        found = await self._operations.producers.init(caller, data.transactional_id or None, data.timeout_ms)
        return InitProducerResponse(found.producer_id, found.epoch, found.timeout_ms)

    @post("/producers/{producer_id}/heartbeat", errors=(404, 409), summary="Ask whether a producer is still the one")
    async def heartbeat_producer(
        self,
        caller: Caller,
        producer_id: Annotated[int, Meta(description="As init answered it.")],
        data: ProducerHeartbeatRequest,
    ) -> ProducerHeartbeatResponse:
        """It is an error if someone has taken over. The end of a transaction is not put off by it."""
        self._operations.producers.heartbeat(caller, producer_id, data.epoch)
        return ProducerHeartbeatResponse(success=True)

    @post(
        "/transactions/begin",
        errors=(404, 409, 429),
        answer=Documented("It is open.", _BEGUN),
        summary="Begin a transaction",
    )
    async def begin_transaction(self, caller: Caller, data: BeginTransactionRequest) -> BeginTransactionResponse:
        """A producer has one at a time; one in which nothing was done yet is the same when asked for again."""
        begun = self._operations.transactions.begin(
            caller, data.producer_id, data.epoch, data.timeout_ms, data.for_key or "", data.transactional_id
        )
        return BeginTransactionResponse(begun.transaction_id, format_instant_ns(begun.deadline_ns))

    @post(
        "/transactions/publish",
        errors=(404, 409, 422, 429, 507),
        answer=Documented("It is part of the transaction.", _STORED),
        max_body_bytes=None,
        summary="Publish a message in a transaction",
    )
    async def publish_in_transaction(
        self, request: Request, data: TransactionalPublishRequest
    ) -> TransactionalPublishResponse:
        """Readers see it when the transaction is committed."""
        transaction = self._operations.transactions.ongoing(request.caller, _named(data))
        message = to_new_message(data, self._operations.clock.now_ns())
        message = in_trace_of(message, trace_of(request.raw_headers))
        (stored,) = await self._operations.publishing.publish(
            request.caller, data.topic, [message], transaction, data.sequence
        )
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
        errors=(404, 409),
        summary="Ask whether a transaction may write to partitions",
    )
    async def add_partition(self, caller: Caller, data: AddPartitionRequest) -> AddedResponse:
        """It is an error if one of them is not there. Publishing adds them by itself."""
        if (data.partition is None) == (data.partitions is None):
            raise InvalidRequest("give either partition or partitions")
        partitions = (data.partitions or []) if data.partition is None else [data.partition]
        transaction = self._operations.transactions.add_partitions(caller, _named(data), data.topic, partitions)
        return AddedResponse(added=True, transaction_id=transaction.transaction_id)

    @post(
        "/transactions/acks",
        errors=(404, 409, 410),
        max_body_bytes=_MAX_ACKS_BYTES,
        summary="Ack messages with a transaction, all of them or none",
    )
    async def add_acks(self, caller: Caller, data: AddAcksRequest) -> AddedResponse:
        """They are done when it is committed; until it ends nobody else gets them."""
        named = TransactionRef(data.producer_id, data.epoch, data.transaction_id)
        transaction = await self._operations.transactions.add_acks(caller, named, data.receipts)
        return AddedResponse(added=True, transaction_id=transaction.transaction_id)

    @post("/transactions/offsets", errors=(404, 409, 416), summary="Commit a group's offsets with a transaction")
    async def add_offsets(self, caller: Caller, data: AddOffsetsRequest) -> AddedResponse:
        """The group goes on there when it is committed."""
        count = sum(map(len, data.offsets.values()))
        if not 1 <= count <= MAX_NAMED_PARTITIONS:
            raise InvalidRequest(f"offsets: there are {count}; 1 to {MAX_NAMED_PARTITIONS} are allowed")
        named = TransactionRef(data.producer_id, data.epoch, data.transaction_id)
        transaction = await self._operations.transactions.add_offsets(
            caller, named, data.group, data.member_id, data.offsets, data.generation
        )
        return AddedResponse(added=True, transaction_id=transaction.transaction_id)

    @post(
        "/transactions/prepare",
        errors=(404, 409, 507),
        answer=Documented("It is safe, and can only be ended.", _PREPARED),
        summary="Make safe what a transaction did, and leave it to someone else how it ends",
    )
    async def prepare_transaction(self, caller: Caller, data: PrepareTransactionRequest) -> PrepareTransactionResponse:
        """What it did survives a crash, and nothing can be added."""
        transaction = await self._operations.transactions.prepare_own(caller, _named(data))
        deadline = format_instant_ns(transaction.deadline_ns)
        return PrepareTransactionResponse("prepared", transaction.transaction_id, deadline)

    @post("/transactions/commit", errors=(404, 409, 507), summary="Commit a transaction")
    async def commit_transaction(self, caller: Caller, data: CommitTransactionRequest) -> CommitTransactionResponse:
        """Readers see all of it from now on, and that survives a crash."""
        transaction_id = await self._operations.transactions.commit_own(caller, _named(data))
        return CommitTransactionResponse("committed", transaction_id)

    @post("/transactions/abort", errors=(404, 409), summary="Abort a transaction")
    async def abort_transaction(self, caller: Caller, data: AbortTransactionRequest) -> AbortTransactionResponse:
        """Nobody will ever see anything of it; what was acked in it comes again."""
        transaction_id = await self._operations.transactions.abort_own(caller, _named(data))
        return AbortTransactionResponse("aborted", transaction_id)


def _named(data: EndTransactionRequest | TransactionalPublishRequest | AddPartitionRequest) -> TransactionRef:
    return TransactionRef(data.producer_id, data.epoch, data.transaction_id, transactional_id=data.transactional_id)
