"""Producers and transactions, call by call."""

from __future__ import annotations

from goqueue.api.calls.batches import transaction_ref
from goqueue.api.calls.group_messages import to_claims, to_offsets
from goqueue.broker.operations import Caller, Known, ManyCommitted, OpenTransaction, Operations, TransactionRef
from goqueue.wire.proto import goqueue_pb2 as pb


class TransactionCalls:
    """The service ``Transactions``."""

    def __init__(self, operations: Operations) -> None:
        self._transactions = operations.transactions
        self._producers = operations.producers

    async def InitProducer(self, caller: Caller, request: pb.InitProducerRequest) -> pb.InitProducerResponse:
        found = await self._producers.init(
            caller,
            request.transactional_id or None,
            request.timeout_ms or None,
            request.instance,
            again=request.again,
        )
        return pb.InitProducerResponse(producer_id=found.producer_id, epoch=found.epoch, timeout_ms=found.timeout_ms)

    async def HeartbeatProducer(
        self, caller: Caller, request: pb.HeartbeatProducerRequest
    ) -> pb.HeartbeatProducerResponse:
        self._producers.heartbeat(caller, request.producer_id, request.epoch)
        return pb.HeartbeatProducerResponse()

    async def BeginTransaction(
        self, caller: Caller, request: pb.BeginTransactionRequest
    ) -> pb.BeginTransactionResponse:
        begun = self._transactions.begin(
            caller, request.producer_id, request.epoch, request.timeout_ms or None, request.for_key
        )
        return pb.BeginTransactionResponse(transaction_id=begun.transaction_id, deadline_ns=begun.deadline_ns)

    async def AddAcks(self, caller: Caller, request: pb.AddAcksRequest) -> pb.TransactionEnd:
        claims = to_claims(request)
        transaction = await self._transactions.add_acks(caller, _named(request), request.receipts, claims)
        return pb.TransactionEnd(incarnation=transaction.incarnation)

    async def AddOffsets(self, caller: Caller, request: pb.AddOffsetsRequest) -> pb.TransactionEnd:
        offsets = to_offsets(request.offsets)
        transaction = await self._transactions.add_offsets(
            caller, _named(request), request.group, request.member_id, offsets, request.generation or None
        )
        return pb.TransactionEnd(incarnation=transaction.incarnation)

    # Ends

    async def PrepareTransaction(self, caller: Caller, request: pb.TransactionRequest) -> pb.TransactionEnd:
        transaction = await self._transactions.prepare(caller, request.transaction_id, _named(request), _known(request))
        return pb.TransactionEnd(incarnation=transaction.incarnation)

    async def CommitTransaction(self, caller: Caller, request: pb.TransactionRequest) -> pb.TransactionEnd:
        await self._transactions.commit(caller, request.transaction_id, _named(request), _known(request))
        return pb.TransactionEnd()

    async def AbortTransaction(self, caller: Caller, request: pb.TransactionRequest) -> pb.TransactionEnd:
        if request.producer_id:
            await self._transactions.abort_own(caller, _named(request), request.reason)
        else:
            await self._transactions.abort(caller, request.transaction_id)
        return pb.TransactionEnd()

    async def CommitMany(self, caller: Caller, request: pb.CommitManyRequest) -> pb.CommittedKey:
        found = await self._transactions.commit_many(caller, request.key, list(request.transaction_ids))
        return _to_key(request.key, found)

    async def FindCommitted(self, caller: Caller, request: pb.FindCommittedRequest) -> pb.CommittedKey:
        return _to_key(request.key, await self._transactions.committed_under(caller, request.key))

    # Looking

    async def ListTransactions(
        self, caller: Caller, request: pb.ListTransactionsRequest
    ) -> pb.ListTransactionsResponse:
        return pb.ListTransactionsResponse(
            transactions=[_to_transaction(each) for each in self._transactions.all_open(caller)]
        )

    async def DescribeTransaction(self, caller: Caller, request: pb.DescribeTransactionRequest) -> pb.Transaction:
        return _to_transaction(self._transactions.describe(caller, request.transaction_id))

    async def TransactionStats(
        self, caller: Caller, request: pb.TransactionStatsRequest
    ) -> pb.TransactionStatsResponse:
        stats = self._transactions.stats(caller)
        tally, states = stats.tally, stats.by_state
        return pb.TransactionStatsResponse(
            active=sum(states.values()),
            prepared=states.get("prepared", 0),
            begun=tally.begun,
            committed=tally.committed,
            aborted=tally.aborted,
            timed_out=tally.timed_out,
            mean_duration_ns=tally.duration_ns // tally.committed if tally.committed else 0,
        )


def _named(request: pb.AddAcksRequest | pb.AddOffsetsRequest | pb.TransactionRequest) -> TransactionRef:
    return transaction_ref(request, request.producer_id, request.epoch)


def _known(request: pb.TransactionRequest) -> Known | None:
    return Known(request.incarnation, request.messages) if request.HasField("messages") else None


def _to_key(key: str, found: ManyCommitted | None) -> pb.CommittedKey:
    if found is None:
        return pb.CommittedKey(key=key)
    return pb.CommittedKey(
        key=key,
        found=True,
        transaction_ids=found.transactions,
        committed_at_ns=found.at_ns,
        is_new=found.is_new,
        messages=found.messages,
        is_superseded=found.is_superseded,
    )


def _to_transaction(each: OpenTransaction) -> pb.Transaction:
    return pb.Transaction(
        transaction_id=each.transaction_id,
        producer_id=each.producer_id,
        epoch=each.epoch,
        transactional_id=each.name,
        state=each.state,
        started_at_ns=each.started_ns,
        deadline_ns=each.deadline_ns,
        messages=each.messages,
        partitions=[
            pb.TouchedPartition(
                topic=touch.topic.name, partition=touch.number, first_offset=touch.first, end_offset=touch.end
            )
            for touch in each.touched.values()
        ],
        groups=each.groups,
        for_key=each.for_key,
    )
