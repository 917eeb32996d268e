"""Producers and transactions, call by call."""

from __future__ import annotations

from goqueue.api.grpc.calls import Calls, answered
from goqueue.api.grpc.errors import Context
from goqueue.api.grpc.group_messages import to_claims, to_offsets
from goqueue.broker.broker import Broker
from goqueue.broker.transactions.commit_keys import ManyCommitted
from goqueue.broker.transactions.durability import Known
from goqueue.broker.transactions.open_transaction import OpenTransaction
from goqueue.model.errors import TransactionNotFound
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.proto import goqueue_pb2_grpc as pb_grpc


class TransactionsService(pb_grpc.TransactionsServicer):
    """Thin: decodes, asks the broker, encodes."""

    def __init__(self, broker: Broker, calls: Calls) -> None:
        self._broker = broker
        self.calls = calls

    @answered
    async def InitProducer(  # noqa: N802
        self, request: pb.InitProducerRequest, context: Context
    ) -> pb.InitProducerResponse:
        self._broker.check_open()
        found = await self._broker.transactions.init(
            request.transactional_id or None, request.timeout_ms or None, request.instance, again=request.again
        )
        return pb.InitProducerResponse(producer_id=found.producer_id, epoch=found.epoch, timeout_ms=found.timeout_ms)

    @answered
    async def HeartbeatProducer(  # noqa: N802
        self, request: pb.HeartbeatProducerRequest, context: Context
    ) -> pb.HeartbeatProducerResponse:
        self._broker.transactions.heartbeat(request.producer_id, request.epoch)
        return pb.HeartbeatProducerResponse()

    @answered
    async def BeginTransaction(  # noqa: N802
        self, request: pb.BeginTransactionRequest, context: Context
    ) -> pb.BeginTransactionResponse:
        self._broker.check_open()
        begun = self._broker.transactions.begin(
            request.producer_id, request.epoch, request.timeout_ms or None, request.for_key
        )
        return pb.BeginTransactionResponse(transaction_id=begun.transaction_id, deadline_ns=begun.deadline_ns)

    @answered
    async def AddAcks(self, request: pb.AddAcksRequest, context: Context) -> pb.TransactionEnd:  # noqa: N802
        transaction = self._ongoing(request)
        claims = to_claims(request)
        await self._broker.transactions.add_acks(transaction, request.receipts, claims)
        return self._end()

    @answered
    async def AddOffsets(self, request: pb.AddOffsetsRequest, context: Context) -> pb.TransactionEnd:  # noqa: N802
        transaction = self._ongoing(request)
        offsets = to_offsets(request.offsets)
        generation = request.generation or None
        await self._broker.transactions.add_offsets(transaction, request.group, request.member_id, offsets, generation)
        return self._end()

    def _ongoing(self, request: pb.AddAcksRequest | pb.AddOffsetsRequest | pb.TransactionRequest) -> OpenTransaction:
        begin_timeout_ms = request.begin.timeout_ms if request.HasField("begin") else None
        return self._broker.transactions.joined(
            request.transaction_id, request.producer_id, request.epoch, begin_timeout_ms, request.begin.for_key
        )

    def _end(self) -> pb.TransactionEnd:
        return pb.TransactionEnd(incarnation=self._broker.transactions.incarnation)

    # Ends

    @answered
    async def PrepareTransaction(  # noqa: N802
        self, request: pb.TransactionRequest, context: Context
    ) -> pb.TransactionEnd:
        self._check(request)
        if request.HasField("begin"):
            try:
                self._broker.transactions.find(request.transaction_id)
            except TransactionNotFound:
                # Not when it is asked for again: then it may be prepared by now.
                self._ongoing(request)
        await self._broker.transactions.preparing.prepare(request.transaction_id, _known(request))
        return self._end()

    @answered
    async def CommitTransaction(  # noqa: N802
        self, request: pb.TransactionRequest, context: Context
    ) -> pb.TransactionEnd:
        self._check(request)
        await self._broker.transactions.committing.commit(request.transaction_id, _known(request))
        return self._end()

    @answered
    async def AbortTransaction(  # noqa: N802
        self, request: pb.TransactionRequest, context: Context
    ) -> pb.TransactionEnd:
        transactions = self._broker.transactions
        if request.producer_id:
            await transactions.abort_own(request.transaction_id, request.producer_id, request.epoch, request.reason)
        else:
            await transactions.aborting.abort(request.transaction_id, "an operator asked for it")
        return self._end()

    def _check(self, request: pb.TransactionRequest) -> None:
        if request.producer_id:
            self._broker.transactions.check_owner(request.transaction_id, request.producer_id, request.epoch)

    @answered
    async def CommitMany(self, request: pb.CommitManyRequest, context: Context) -> pb.CommittedKey:  # noqa: N802
        found = await self._broker.transactions.keys.commit_many(request.key, list(request.transaction_ids))
        return _to_key(request.key, found)

    @answered
    async def FindCommitted(  # noqa: N802
        self, request: pb.FindCommittedRequest, context: Context
    ) -> pb.CommittedKey:
        return _to_key(request.key, await self._broker.transactions.keys.committed_under(request.key))

    # Looking

    @answered
    async def ListTransactions(  # noqa: N802
        self, request: pb.ListTransactionsRequest, context: Context
    ) -> pb.ListTransactionsResponse:
        return pb.ListTransactionsResponse(
            transactions=[_to_transaction(each) for each in self._broker.transactions.open_transactions()]
        )

    @answered
    async def DescribeTransaction(  # noqa: N802
        self, request: pb.DescribeTransactionRequest, context: Context
    ) -> pb.Transaction:
        return _to_transaction(self._broker.transactions.find(request.transaction_id))

    @answered
    async def TransactionStats(  # noqa: N802
        self, request: pb.TransactionStatsRequest, context: Context
    ) -> pb.TransactionStatsResponse:
        tally, states = self._broker.transactions.tally, self._broker.transactions.states()
        return pb.TransactionStatsResponse(
            active=sum(states.values()),
            prepared=states.get("prepared", 0),
            begun=tally.begun,
            committed=tally.committed,
            aborted=tally.aborted,
            timed_out=tally.timed_out,
            mean_duration_ns=tally.duration_ns // tally.committed if tally.committed else 0,
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
