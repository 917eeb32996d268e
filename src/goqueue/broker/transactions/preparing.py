"""Preparing transactions: what they have done is safe, and someone else decides how they end."""

from __future__ import annotations

import asyncio

from goqueue.broker.runtime.journal import Journal
from goqueue.broker.transactions.commit_keys import CommitKeys
from goqueue.broker.transactions.durability import Known, TransactionDurability
from goqueue.broker.transactions.open_transaction import OpenTransaction
from goqueue.broker.transactions.open_transactions import OpenTransactions
from goqueue.broker.transactions.timeouts import TransactionTimeouts
from goqueue.coordination.transaction_records import Prepared
from goqueue.coordination.transactions import Transactions
from goqueue.model.clock import NANOS_PER_MS, Clock
from goqueue.model.config import TransactionsConfig
from goqueue.model.errors import GoQueueError, StorageFailed


class Preparing:
    def __init__(
        self,
        journal: Journal[Transactions],
        open_transactions: OpenTransactions,
        safekeeping: TransactionDurability,
        keys: CommitKeys,
        work: TransactionTimeouts,
        config: TransactionsConfig,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._open = open_transactions
        self._safekeeping = safekeeping
        self._keys = keys
        self._work = work
        self._config = config
        self._clock = clock

    async def prepare(self, transaction_id: str, knows: Known | None = None) -> None:
        """Make safe what a transaction has done, and leave it to someone else how it ends."""
        transaction = self._open.find(transaction_id)
        await self._safekeeping.check_whole(transaction, knows)
        if transaction.state == "prepared":
            return
        if transaction.state != "preparing" or transaction.work is None:
            transaction.check_ongoing()
            transaction.state = "preparing"
            transaction.work = self._work.spawn(self._prepare(transaction))
        await asyncio.shield(transaction.work)

    async def _prepare(self, transaction: OpenTransaction) -> None:
        await self._safekeeping.make_safe(transaction)
        before_ns = transaction.deadline_ns
        transaction.deadline_ns = self._clock.now_ns() + self._config.prepared_timeout_ms * NANOS_PER_MS
        try:
            self._journal.propose([Prepared(transaction.record())])
        except StorageFailed:
            # Whether it is prepared is for the next start to say.
            raise
        except GoQueueError:
            transaction.deadline_ns = before_ns
            self._work.go_back(transaction, "ongoing")
            raise
        await self._journal.settled()
        transaction.state = "prepared"
        self._work.watch(transaction)
        if transaction.for_key:
            self._keys.abort_the_others()
