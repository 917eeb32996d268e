"""Operations on transactions: begin, add to, prepare, commit, abort, look at."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goqueue.broker.groups.group_offsets import Offsets
from goqueue.broker.operations.caller import Caller
from goqueue.broker.operations.gate import Resource, ResourceOperations, Served, operation
from goqueue.broker.transactions.commit_abort import Known, TransactionCounters
from goqueue.broker.transactions.commit_keys import ManyCommitted
from goqueue.broker.transactions.open_transactions import AbortCause, AbortReason, OpenTransaction
from goqueue.broker.transactions.producer_fencing import ProducerIdentity
from goqueue.broker.transactions.transaction_service import TransactionService
from goqueue.delivery.events import total
from goqueue.delivery.settlement_requests import LeaseClaim
from goqueue.model.errors import TransactionConflict, TransactionNotFound
from goqueue.model.fields import shown


@dataclass(frozen=True, slots=True)
class TransactionRef:
    """A producer's transaction, as the producer names it."""

    producer_id: int
    epoch: int
    transaction_id: str | None = None
    """``None``: the one that the producer has open."""
    begin_timeout_ms: int | None = None
    """Unless ``None``, the transaction is begun if it is not known; 0: with the producer's timeout."""
    for_key: str = ""
    """The key that it is meant to be committed under, if it is begun now."""
    transactional_id: str | None = None
    """If given, it must be the producer's own."""


@dataclass(frozen=True, slots=True)
class TransactionStats:
    """``tally`` goes on counting: read it now."""

    tally: TransactionCounters
    fenced: int
    """How often producers were fenced or refused because they were."""
    by_state: Mapping[str, int]


class ProducerOperations(ResourceOperations):
    """Producers with ids, whose retries are not stored twice."""

    @operation("producers.init", Resource.PRODUCER, Served.WHILE_ACCEPTING)
    def init(
        self,
        caller: Caller,
        transactional_id: str | None,
        timeout_ms: int | None = None,
        instance: str = "",
        *,
        again: bool = False,
    ) -> Coroutine[Any, Any, ProducerIdentity]:
        """An id and an epoch. Under a transactional id the producer before is fenced, and what it left open ends."""
        return self._host.transactions.init(transactional_id, timeout_ms, instance, again=again)

    @operation("producers.heartbeat", Resource.PRODUCER)
    def heartbeat(self, caller: Caller, producer_id: int, epoch: int) -> None:
        """Raise if the producer is fenced."""
        self._host.transactions.producers.check(producer_id, epoch)


class TransactionOperations(ResourceOperations):
    """What a transaction does is durable once it is prepared or committed."""

    @operation("transactions.begin", Resource.PRODUCER, Served.WHILE_ACCEPTING)
    def begin(
        self,
        caller: Caller,
        producer_id: int,
        epoch: int,
        timeout_ms: int | None = None,
        for_key: str = "",
        transactional_id: str | None = None,
    ) -> OpenTransaction:
        """Open a transaction. One in which nothing was done yet is the same when asked for again."""
        _check_name(self._host.transactions, producer_id, epoch, transactional_id)
        return self._host.transactions.begin(producer_id, epoch, timeout_ms, for_key)

    @operation("transactions.find_ongoing", Resource.TRANSACTION)
    def ongoing(self, caller: Caller, transaction: TransactionRef) -> OpenTransaction:
        """The transaction to which a producer may add something; begun if the reference says so."""
        return find_ongoing(self._host.transactions, transaction)

    @operation("transactions.add_partitions", Resource.TRANSACTION)
    def add_partitions(
        self, caller: Caller, transaction: TransactionRef, topic: str, partitions: Iterable[int]
    ) -> OpenTransaction:
        """Raise unless the transaction may write to these partitions; publishing adds them by itself."""
        ongoing = find_ongoing(self._host.transactions, transaction)
        found = self._host.topics.find(topic)
        for number in partitions:
            found.partition(number)
        return ongoing

    @operation("transactions.add_acks", Resource.TRANSACTION)
    async def add_acks(
        self, caller: Caller, transaction: TransactionRef, receipts: Sequence[str], claims: Sequence[LeaseClaim] = ()
    ) -> OpenTransaction:
        """Messages are acked when the transaction is committed, all of them or none; until it ends no one gets them."""
        ongoing = find_ongoing(self._host.transactions, transaction)
        await self._host.transactions.add_acks(ongoing, receipts, claims)
        return ongoing

    @operation("transactions.add_offsets", Resource.TRANSACTION)
    async def add_offsets(
        self,
        caller: Caller,
        transaction: TransactionRef,
        group: str,
        member_id: str,
        offsets: Offsets,
        generation: int | None = None,
    ) -> OpenTransaction:
        """A group goes on at these offsets when the transaction is committed."""
        ongoing = find_ongoing(self._host.transactions, transaction)
        await self._host.transactions.add_offsets(ongoing, group, member_id, offsets, generation)
        return ongoing

    # Ends

    @operation("transactions.prepare_own", Resource.TRANSACTION)
    async def prepare_own(self, caller: Caller, transaction: TransactionRef) -> OpenTransaction:
        """``prepare`` for the producer of a transaction, which may leave out its id."""
        return await self._host.transactions.prepare(self._own(transaction))

    @operation("transactions.commit_own", Resource.TRANSACTION)
    async def commit_own(self, caller: Caller, transaction: TransactionRef) -> str:
        """``commit`` for the producer of a transaction, which may leave out its id; return the id."""
        transaction_id = self._own(transaction)
        await self._host.transactions.commit(transaction_id)
        return transaction_id

    @operation("transactions.abort_own", Resource.TRANSACTION)
    async def abort_own(self, caller: Caller, transaction: TransactionRef, reason: str = "") -> str:
        """Abort a producer's transaction, which may be one that the broker does not know yet; return its id."""
        transaction_id = self._own(transaction)
        await self._host.transactions.abort_own(transaction_id, transaction.producer_id, transaction.epoch, reason)
        return transaction_id

    def _own(self, named: TransactionRef) -> str:
        """Which transaction is to be ended: one that may be over by now if it is named, else the one that is open."""
        transactions = self._host.transactions
        _check_name(transactions, named.producer_id, named.epoch, named.transactional_id)
        if named.transaction_id is not None:
            transactions.check_owner(named.transaction_id, named.producer_id, named.epoch)
            return named.transaction_id
        try:
            return transactions.ongoing(named.producer_id, named.epoch).transaction_id
        except TransactionConflict:
            # It is open and takes nothing more: it is prepared, or someone is ending it.
            found = transactions.coordinators.of_producer(named.producer_id).opened.of(named.producer_id)
            if found is not None and found.epoch == named.epoch:
                return found.transaction_id
            raise

    @operation("transactions.prepare", Resource.TRANSACTION)
    def prepare(
        self, caller: Caller, transaction_id: str, by: TransactionRef | None = None, knows: Known | None = None
    ) -> Coroutine[Any, Any, OpenTransaction]:
        """Make durable what a transaction did, and leave it to others how it ends.

        ``by``: the producer that asks, whose it must be unless the id is 0; with a timeout the transaction is begun if
        it is not known. ``knows``: what its producer knows to be part of it.
        """
        transactions = self._host.transactions
        if by is not None:
            _check_owner(transactions, transaction_id, by)
            if by.begin_timeout_ms is not None:
                try:
                    transactions.find(transaction_id)
                except TransactionNotFound:
                    # Not when it is asked for again: then it may be prepared by now.
                    find_ongoing(transactions, by)
        return transactions.prepare(transaction_id, knows)

    @operation("transactions.commit", Resource.TRANSACTION)
    def commit(
        self, caller: Caller, transaction_id: str, by: TransactionRef | None = None, knows: Known | None = None
    ) -> Coroutine[Any, Any, None]:
        """Let readers see all of a transaction. ``by`` and ``knows`` as for ``prepare``."""
        if by is not None:
            _check_owner(self._host.transactions, transaction_id, by)
        return self._host.transactions.commit(transaction_id, knows)

    @operation("transactions.abort", Resource.TRANSACTION)
    def abort(self, caller: Caller, transaction_id: str, reason: str | None = None) -> Coroutine[Any, Any, None]:
        """Abort anyone's transaction, for operators."""
        return self._host.transactions.abort(transaction_id, AbortReason(AbortCause.OPERATOR, reason or ""))

    @operation("transactions.commit_many", Resource.COMMIT_KEY)
    def commit_many(self, caller: Caller, key: str, transaction_ids: list[str]) -> Coroutine[Any, Any, ManyCommitted]:
        """Commit prepared transactions under a key, all or none; the first request with a key decides."""
        return self._host.transactions.keys.commit_many(key, transaction_ids)

    @operation("transactions.find_committed", Resource.COMMIT_KEY)
    def committed_under(self, caller: Caller, key: str) -> Coroutine[Any, Any, ManyCommitted | None]:
        """What was committed under a key, if anything was and it is not forgotten."""
        return self._host.transactions.keys.committed_under(key)

    # Looking

    @operation("transactions.list", Resource.BROKER)
    def all_open(self, caller: Caller) -> list[OpenTransaction]:
        """Transactions that have not ended, the oldest first."""
        return self._host.transactions.coordinators.all_open()

    @operation("transactions.describe", Resource.TRANSACTION)
    def describe(self, caller: Caller, transaction_id: str) -> OpenTransaction:
        """A transaction that has not ended. Raises ``TransactionAborted`` or ``TransactionConflict`` for one that was
        aborted or committed."""
        return self._host.transactions.find(transaction_id)

    @operation("transactions.stats", Resource.BROKER)
    def stats(self, caller: Caller) -> TransactionStats:
        """How many transactions there are by state, and what became of others since the broker started."""
        transactions = self._host.transactions
        return TransactionStats(transactions.tally, transactions.producers.fenced, transactions.coordinators.states())


def find_ongoing(transactions: TransactionService, named: TransactionRef) -> OpenTransaction:
    """The transaction to which a producer may add something."""
    if named.transactional_id:
        _check_name(transactions, named.producer_id, named.epoch, named.transactional_id)
    if named.transaction_id is None:
        return transactions.ongoing(named.producer_id, named.epoch)
    return transactions.joined(
        named.transaction_id, named.producer_id, named.epoch, named.begin_timeout_ms, named.for_key
    )


def acks_in(transaction: OpenTransaction) -> int:
    """How many messages a transaction acks."""
    return sum(total(acked.parts) for acked in transaction.acks)


def _check_owner(transactions: TransactionService, transaction_id: str, by: TransactionRef) -> None:
    if by.producer_id:
        transactions.check_owner(transaction_id, by.producer_id, by.epoch)


def _check_name(transactions: TransactionService, producer_id: int, epoch: int, given: str | None) -> None:
    """Whether the producer is not fenced, and the transactional id its own, if there is one in the request."""
    transactions.producers.check(producer_id, epoch)
    own = transactions.coordinators.name_of(producer_id)
    if given and given != own:
        told = f"its own is {shown(own)}" if own else "it has none"
        raise TransactionConflict(
            f"transactional_id is {shown(given)}, which is not that of producer {producer_id}; {told}"
        )
