"""Producers and transactions, call by call."""

from __future__ import annotations

from goqueue.api.grpc.calls import Calls, answered, caller_of
from goqueue.api.grpc.errors import Context
from goqueue.api.grpc.group_messages import to_claims, to_offsets
from goqueue.broker.operations import Known, ManyCommitted, OpenTransaction, Operations, TransactionRef
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.proto import goqueue_pb2_grpc as pb_grpc


class TransactionsService(pb_grpc.TransactionsServicer):
    """Thin: decodes, asks the broker, encodes."""

    def __init__(self, operations: Operations, calls: Calls) -> None:
        self._transactions = operations.transactions
        self._producers = operations.producers
        self.calls = calls

    @answered
    async def InitProducer(self, request: pb.InitProducerRequest, context: Context) -> pb.InitProducerResponse:
        found = await self._producers.init(
            caller_of(context),
            request.transactional_id or None,
            request.timeout_ms or None,
            request.instance,
            again=request.again,
        )
        return pb.InitProducerResponse(producer_id=found.producer_id, epoch=found.epoch, timeout_ms=found.timeout_ms)

    @answered
    async def HeartbeatProducer(
        self, request: pb.HeartbeatProducerRequest, context: Context
    ) -> pb.HeartbeatProducerResponse:
        self._producers.heartbeat(caller_of(context), request.producer_id, request.epoch)
        return pb.HeartbeatProducerResponse()

    @answered
    async def BeginTransaction(
        self, request: pb.BeginTransactionRequest, context: Context
    ) -> pb.BeginTransactionResponse:
        begun = self._transactions.begin(
            caller_of(context), request.producer_id, request.epoch, request.timeout_ms or None, request.for_key
        )
        return pb.BeginTransactionResponse(transaction_id=begun.transaction_id, deadline_ns=begun.deadline_ns)

    @answered
    async def AddAcks(self, request: pb.AddAcksRequest, context: Context) -> pb.TransactionEnd:
        claims = to_claims(request)
        transaction = await self._transactions.add_acks(caller_of(context), _named(request), request.receipts, claims)
        return pb.TransactionEnd(incarnation=transaction.incarnation)

    @answered
    async def AddOffsets(self, request: pb.AddOffsetsRequest, context: Context) -> pb.TransactionEnd:
        offsets = to_offsets(request.offsets)
        transaction = await self._transactions.add_offsets(
            caller_of(context), _named(request), request.group, request.member_id, offsets, request.generation or None
        )
        return pb.TransactionEnd(incarnation=transaction.incarnation)

    # Ends

    @answered
    async def PrepareTransaction(self, request: pb.TransactionRequest, context: Context) -> pb.TransactionEnd:
        transaction = await self._transactions.prepare(
            caller_of(context), request.transaction_id, _named(request), _known(request)
        )
        return pb.TransactionEnd(incarnation=transaction.incarnation)

    @answered
    async def CommitTransaction(self, request: pb.TransactionRequest, context: Context) -> pb.TransactionEnd:
        await self._transactions.commit(caller_of(context), request.transaction_id, _named(request), _known(request))
        return pb.TransactionEnd()

    @answered
    async def AbortTransaction(self, request: pb.TransactionRequest, context: Context) -> pb.TransactionEnd:
        if request.producer_id:
            await self._transactions.abort_own(caller_of(context), _named(request), request.reason)
        else:
            await self._transactions.abort(caller_of(context), request.transaction_id)
        return pb.TransactionEnd()

    @answered
    async def CommitMany(self, request: pb.CommitManyRequest, context: Context) -> pb.CommittedKey:
        found = await self._transactions.commit_many(caller_of(context), request.key, list(request.transaction_ids))
        return _to_key(request.key, found)

    @answered
    async def FindCommitted(self, request: pb.FindCommittedRequest, context: Context) -> pb.CommittedKey:
        return _to_key(request.key, await self._transactions.committed_under(caller_of(context), request.key))

    # Looking

    @answered
    async def ListTransactions(
        self, request: pb.ListTransactionsRequest, context: Context
    ) -> pb.ListTransactionsResponse:
        return pb.ListTransactionsResponse(
            transactions=[_to_transaction(each) for each in self._transactions.all_open(caller_of(context))]
        )

    @answered
    async def DescribeTransaction(self, request: pb.DescribeTransactionRequest, context: Context) -> pb.Transaction:
        return _to_transaction(self._transactions.describe(caller_of(context), request.transaction_id))

    @answered
    async def TransactionStats(
        self, request: pb.TransactionStatsRequest, context: Context
    ) -> pb.TransactionStatsResponse:
        stats = self._transactions.stats(caller_of(context))
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
    begin_timeout_ms = request.begin.timeout_ms if request.HasField("begin") else None
    return TransactionRef(
        request.producer_id, request.epoch, request.transaction_id, begin_timeout_ms, request.begin.for_key
    )


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
