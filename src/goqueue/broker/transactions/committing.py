"""Committing transactions: what they have written is made safe, then the decision, and only then do readers see it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from goqueue.broker.runtime.journal import Journal
from goqueue.broker.transactions.completion import TransactionCompletion
from goqueue.broker.transactions.counters import TransactionCounters
from goqueue.broker.transactions.durability import Known, TransactionDurability
from goqueue.broker.transactions.open_transaction import OpenTransaction, State
from goqueue.broker.transactions.open_transactions import OpenTransactions
from goqueue.broker.transactions.timeouts import TransactionTimeouts
from goqueue.coordination.transaction_records import Decided, TransactionsEvent
from goqueue.coordination.transactions import Transactions
from goqueue.model.clock import Clock
from goqueue.model.errors import GoQueueError, StorageFailed, TransactionConflict


class Committing:
    def __init__(
        self,
        journal: Journal[Transactions],
        open_transactions: OpenTransactions,
        safekeeping: TransactionDurability,
        ends: TransactionCompletion,
        work: TransactionTimeouts,
        tally: TransactionCounters,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._open = open_transactions
        self._safekeeping = safekeeping
        self._ends = ends
        self._work = work
        self._tally = tally
        self._clock = clock

    async def commit(self, transaction_id: str, knows: Known | None = None) -> None:
        """Everything of it is seen from now on. Asking again is answered the same."""
        if transaction_id not in self._open and self._open.is_committed(transaction_id):
            # Durably: it is open until then.
            return
        transaction = self._open.find(transaction_id)
        await self._safekeeping.check_whole(transaction, knows)
        if transaction.state != "preparing_commit" or transaction.work is None:
            if not transaction.can_end:
                raise TransactionConflict(f"transaction {transaction_id} is {transaction.state.replace('_', ' ')}")
            before, transaction.state = transaction.state, "preparing_commit"
            transaction.work = self._work.spawn(self._commit(transaction, before))
        # To the end even if the one who asked goes away: it may already be decided.
        await asyncio.shield(transaction.work)

    async def _commit(self, transaction: OpenTransaction, before: State) -> None:
        if transaction.is_empty and before != "prepared":
            self._open.note_empty(transaction)
        else:
            if before != "prepared":
                await self._safekeeping.make_safe(transaction)
            await self.decide([transaction], [], before)
        await self.committed(transaction)

    async def decide(
        self, transactions: Sequence[OpenTransaction], more: Sequence[TransactionsEvent], before: State
    ) -> None:
        """That they are committed, all or none, together with ``more``; ``before``: what they were."""
        try:
            self._journal.propose([*more, *(Decided(each.record()) for each in transactions)])
        except StorageFailed:
            # Whether it is decided is for the next start to say; until then readers wait.
            raise
        except GoQueueError:
            # Nothing was written: it may be tried again.
            for each in transactions:
                self._work.go_back(each, before)
            raise
        await self._journal.settled()

    async def committed(self, transaction: OpenTransaction) -> None:
        """It was decided; readers see it when this returns."""
        await self._ends.carry_out(transaction, is_commit=True)
        self._tally.note_committed(self._clock.now_ns() - transaction.started_ns)
        self._open.forget(transaction)
