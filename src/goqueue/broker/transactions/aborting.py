"""Aborting transactions, whoever has a reason: a producer, an operator, a timeout, or the broker that cannot go on."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from goqueue.broker.runtime.journal import Journal
from goqueue.broker.transactions.completion import TransactionCompletion
from goqueue.broker.transactions.counters import TransactionCounters
from goqueue.broker.transactions.open_transaction import OpenTransaction, State
from goqueue.broker.transactions.open_transactions import OpenTransactions
from goqueue.broker.transactions.timeouts import TransactionTimeouts
from goqueue.coordination.transaction_records import Aborted
from goqueue.coordination.transactions import Transactions
from goqueue.model.errors import GoQueueError, StorageFailed, TransactionAborted, TransactionConflict
from goqueue.model.logging import get_logger

log = get_logger(__name__)

ASKED = "its producer asked for it"
OPERATOR_ASKED = "an operator asked for it"
NOT_CHOSEN = "others were committed under the key that it was meant for"
_TAKEN_OVER = "its producer's id was taken over by another"
_TIMED_OUT = "it was not ended within its timeout"
_WANTED = (OPERATOR_ASKED, _TAKEN_OVER, NOT_CHOSEN)
"""How the reasons begin that somebody else had for an abort; all others are failures."""


class Aborting:
    def __init__(
        self,
        journal: Journal[Transactions],
        open_transactions: OpenTransactions,
        ends: TransactionCompletion,
        work: TransactionTimeouts,
        tally: TransactionCounters,
    ) -> None:
        self._journal = journal
        self._open = open_transactions
        self._ends = ends
        self._work = work
        self._tally = tally
        work.on_late = self._time_out

    async def abort(self, transaction_id: str, reason: str = ASKED) -> None:
        """Nothing of it is ever seen. Asking again is answered the same."""
        while transaction_id not in self._open.reasons:
            transaction = self._open.find(transaction_id)
            work = transaction.work
            if transaction.can_end:
                await asyncio.shield(self.begin(transaction, reason))
            elif transaction.state != "preparing_commit" and work is not None and not work.done():
                await asyncio.wait([work])
            elif transaction.state == "preparing_abort" and work is not None:
                # That has failed, and will be tried again by the next start.
                await asyncio.shield(work)
            else:
                raise TransactionConflict(f"transaction {transaction_id} is {transaction.state.replace('_', ' ')}")

    async def give_up(self, transaction: OpenTransaction, reason: str) -> NoReturn:
        """What was asked for cannot be done, and nothing else can any more."""
        await asyncio.shield(self.begin(transaction, reason))
        raise TransactionAborted(f"transaction {transaction.transaction_id} was aborted: {reason}")

    async def end_what_was_left(self, left: OpenTransaction) -> None:
        """By a producer that was taken over. Returns when it has ended; or cannot before a restart, which is for the
        journal to tell."""
        while left.transaction_id in self._open:
            if left.can_end:
                await asyncio.shield(self.begin(left, _TAKEN_OVER))
            elif left.work is not None and not left.work.done():
                await asyncio.wait([left.work])
            else:
                return

    def _time_out(self, transaction: OpenTransaction) -> None:
        self._tally.timed_out += 1
        self.begin(transaction, _TIMED_OUT)

    def begin(self, transaction: OpenTransaction, reason: str) -> asyncio.Task[None]:
        """From this very step on nothing else can be done with it."""
        before, transaction.state = transaction.state, "preparing_abort"
        transaction.work = self._work.spawn(self.aborted(transaction, reason, before))
        return transaction.work

    async def aborted(self, transaction: OpenTransaction, reason: str, before: State) -> None:
        """It is, when this returns; ``before``: what it was, for the log."""
        if transaction.transaction_id in self._journal.machine.prepared:
            try:
                self._journal.propose([Aborted(transaction.transaction_id)])
            except StorageFailed:
                raise
            except GoQueueError:
                self._work.go_back(transaction, "prepared")
                raise
            await self._journal.settled()
        # What its producer gave up is like what a consumer nacks: it may not work any better at once.
        given_up = reason.startswith(ASKED)
        await self._ends.carry_out(transaction, is_commit=False, reason=reason, backs_off=given_up)
        self._tally.aborted += 1
        self._open.forget(transaction, reason)
        # What its producer wanted is nobody else's concern.
        tell = log.debug if reason.startswith(ASKED) else log.info if reason.startswith(_WANTED) else log.warning
        tell(
            "a transaction was aborted",
            transaction=transaction.transaction_id,
            transactional_id=transaction.name,
            state=before.replace("_", " "),
            reason=reason,
        )
