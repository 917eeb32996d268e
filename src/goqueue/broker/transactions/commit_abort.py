"""Preparing, committing and aborting transactions.

What a transaction did is made durable first, then the decision is journaled, and only then do readers see its records.
An abort is journaled only for a transaction that was prepared: what the journal does not know is aborted anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn, Protocol

from goqueue.broker.groups.group_service import GroupService
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.runtime.named_timers import NamedTimers
from goqueue.broker.transactions.completion import TransactionCompletion
from goqueue.broker.transactions.coordinator_journal import CoordinatorJournal
from goqueue.broker.transactions.open_transactions import (
    AbortCause,
    AbortReason,
    OpenTransaction,
    OpenTransactions,
    State,
    Touch,
)
from goqueue.broker.transactions.timeouts import TransactionTimeouts
from goqueue.coordination.transaction_records import Aborted, Decided, Prepared
from goqueue.model.clock import NANOS_PER_MS, NANOS_PER_SECOND, Clock
from goqueue.model.config import TransactionsConfig
from goqueue.model.errors import GoQueueError, StorageFailed, TransactionAborted, TransactionConflict
from goqueue.model.logging import get_logger
from goqueue.observe.histogram import Histogram

log = get_logger(__name__)

_DURATION_BOUNDS_S = (
    0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0
)  # fmt: skip
_AS_ASKED = (AbortCause.OPERATOR, AbortCause.TAKEN_OVER, AbortCause.NOT_CHOSEN)
"""Aborts that someone other than the producer wanted; all others are failures."""


@dataclass(slots=True)
class TransactionCounters:
    """Counts since the start."""

    begun: int = 0
    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    duration_ns: int = 0
    """Sum over the committed transactions, from begin to commit."""
    durations: Histogram = field(default_factory=lambda: Histogram(_DURATION_BOUNDS_S))


class Known(NamedTuple):
    """What a producer knows of a transaction that it began itself: during which life of its coordinator it did
    everything in it, and how many messages it has."""

    incarnation: int
    messages: int


class KeyDecisions(Protocol):
    """What is committed under keys, in whichever shard that is decided."""

    def abort_superseded(self) -> None:
        """Abort transactions that were meant for a key under which others were committed."""

    def clear_doubt(self, transaction: OpenTransaction) -> None:
        """Find out about one that is in doubt, or try it again later."""


@dataclass(eq=False, repr=False)
class CommitAbort:
    _own: CoordinatorJournal
    _opened: OpenTransactions
    _completion: TransactionCompletion
    _groups: GroupService
    _config: TransactionsConfig
    _clock: Clock
    _timers: NamedTimers[str]
    _keys: KeyDecisions
    _tally: TransactionCounters

    def __post_init__(self) -> None:
        self.timeouts = TransactionTimeouts(
            self._opened, self._clock, self._timers, self._time_out, self._keys.clear_doubt
        )

    # Prepare

    async def prepare(self, transaction_id: str, knows: Known | None = None) -> OpenTransaction:
        """Make durable what a transaction did; someone else decides how it ends. Repeating it is harmless."""
        transaction = self._opened.find(transaction_id)
        await self._check_whole(transaction, knows)
        if transaction.state is State.PREPARED:
            return transaction
        if transaction.state is not State.PREPARING or transaction.work is None:
            transaction.check_ongoing()
            transaction.work = self.timeouts.spawn(self._prepare(transaction))
            transaction.state = State.PREPARING
        await asyncio.shield(transaction.work)
        return transaction

    async def _prepare(self, transaction: OpenTransaction) -> None:
        await self._make_durable(transaction)
        before_ns = transaction.deadline_ns
        transaction.deadline_ns = self._clock.now_ns() + self._config.prepared_timeout_ms * NANOS_PER_MS
        try:
            self._own.propose([Prepared(transaction.record())])
        except StorageFailed:
            # The next start finds out whether it is prepared.
            raise
        except GoQueueError:
            transaction.deadline_ns = before_ns
            self.timeouts.go_back(transaction, State.ONGOING)
            raise
        await self._own.journal.settled()
        transaction.state = State.PREPARED
        self.timeouts.watch(transaction)
        if transaction.for_key:
            self._keys.abort_superseded()

    async def _check_whole(self, transaction: OpenTransaction, knows: Known | None) -> None:
        """When a shard is led again, its open transactions are aborted. A batch that arrives after that may have begun
        one again, without what came before."""
        if knows is None or transaction.state is not State.ONGOING:
            return
        if knows != (transaction.incarnation, transaction.messages):
            await self.give_up(transaction, AbortReason(AbortCause.RESTARTED))

    async def _make_durable(self, transaction: OpenTransaction) -> None:
        """Bring everything that it has written to the disk, whatever the fsync policy of its topics; abort it if that
        fails."""
        try:
            _check_there(transaction)
            touches = transaction.touched.values()
            await asyncio.gather(*[each.partition.durable(each.end) for each in touches])
            shards = self._groups.shards.map
            await Journal.all_settled(shards.journals_of_queues({each.queue for each in transaction.acks}))
            # If a part of it has gone meanwhile, the transaction cannot be committed as a whole.
            _check_there(transaction)
        except GoQueueError as error:
            reason = AbortReason(AbortCause.FAILED, f"what it has written cannot be made safe: {error}")
            before, transaction.state = transaction.state, State.PREPARING_ABORT
            await self._abort(transaction, reason, before)
            raise TransactionAborted(f"transaction {transaction.transaction_id} was aborted: {reason}") from error

    # Commit

    async def commit(self, transaction_id: str, knows: Known | None = None) -> None:
        """Let readers see everything of a transaction. Repeating it is harmless."""
        transaction = self._opened.get(transaction_id)
        if transaction is None:
            if self._opened.is_committed(transaction_id):
                # Durably: until then it is open.
                return
            transaction = self._opened.find(transaction_id)
        await self._check_whole(transaction, knows)
        before = transaction.state
        if before is not State.PREPARING_COMMIT or transaction.work is None:
            if before is not State.ONGOING and before is not State.PREPARED:
                raise TransactionConflict(f"transaction {transaction_id} is {before.words}")
            if transaction.is_in_doubt:
                raise transaction.doubt()
            transaction.work = self.timeouts.spawn(self._commit(transaction, before))
            transaction.state = State.PREPARING_COMMIT
        # It continues even if the caller goes away: the commit may already be decided.
        await asyncio.shield(transaction.work)

    async def _commit(self, transaction: OpenTransaction, before: State) -> None:
        if before is State.PREPARED:
            await self._decide(transaction, before)
        elif transaction.is_empty:
            self._opened.note_empty(transaction)
        else:
            await self._make_durable(transaction)
            await self._decide(transaction, before)
        await self.complete(transaction)

    async def _decide(self, transaction: OpenTransaction, before: State) -> None:
        """Journal that it is committed; ``before`` is its state to go back to if nothing could be written."""
        try:
            self._own.propose([Decided(transaction.record())])
        except StorageFailed:
            # The next start finds out whether it is decided; until then readers wait.
            raise
        except GoQueueError:
            self.timeouts.go_back(transaction, before)
            raise
        await self._own.journal.settled()

    async def complete(self, transaction: OpenTransaction, marked: Sequence[Touch] = ()) -> None:
        """A commit was decided; readers see the transaction when this returns. ``marked`` is where it has its marker
        already."""
        await self._completion.carry_out(transaction, is_commit=True, marked=marked)
        took_ns = self._clock.now_ns() - transaction.started_ns
        self._tally.committed += 1
        self._tally.duration_ns += took_ns
        self._tally.durations.observe(took_ns / NANOS_PER_SECOND)
        self._opened.forget(transaction)

    # Abort

    async def abort(self, transaction_id: str, reason: AbortReason) -> None:
        """Hide everything of a transaction for good. Repeating it is harmless."""
        while transaction_id not in self._opened.reasons:
            transaction = self._opened.find(transaction_id)
            if transaction.is_in_doubt:
                raise transaction.doubt()
            work = transaction.work
            if transaction.can_end:
                await asyncio.shield(self.begin_abort(transaction, reason))
            elif transaction.state is not State.PREPARING_COMMIT and work is not None and not work.done():
                await asyncio.wait([work])
            elif transaction.state is State.PREPARING_ABORT and work is not None:
                # It has failed; the next start tries it again.
                await asyncio.shield(work)
            else:
                raise TransactionConflict(f"transaction {transaction_id} is {transaction.state.words}")

    async def give_up(self, transaction: OpenTransaction, reason: AbortReason) -> NoReturn:
        """Abort a transaction that cannot do what it was asked to, and raise."""
        await asyncio.shield(self.begin_abort(transaction, reason))
        raise TransactionAborted(f"transaction {transaction.transaction_id} was aborted: {reason}")

    async def end_taken_over(self, left: OpenTransaction) -> None:
        """Abort what a fenced producer left open, or wait for its end. Returns as well if it cannot end before a
        restart: then the journal raises."""
        while left.transaction_id in self._opened:
            if left.is_in_doubt:
                raise left.doubt()
            if left.can_end:
                await asyncio.shield(self.begin_abort(left, AbortReason(AbortCause.TAKEN_OVER)))
            elif left.work is not None and not left.work.done():
                await asyncio.wait([left.work])
            else:
                return

    def _time_out(self, transaction: OpenTransaction) -> None:
        self._tally.timed_out += 1
        self.begin_abort(transaction, AbortReason(AbortCause.TIMED_OUT))

    def begin_abort(self, transaction: OpenTransaction, reason: AbortReason) -> asyncio.Task[None]:
        """From this step on nothing else can be done with the transaction."""
        work = transaction.work = self.timeouts.spawn(self._abort(transaction, reason, transaction.state))
        transaction.state = State.PREPARING_ABORT
        return work

    async def _abort(self, transaction: OpenTransaction, reason: AbortReason, before: State) -> None:
        """``before`` is the state in which it was, for the log."""
        if transaction.transaction_id in self._own.state.prepared:
            try:
                self._own.propose([Aborted(transaction.transaction_id)])
            except StorageFailed:
                raise
            except GoQueueError:
                self.timeouts.go_back(transaction, State.PREPARED)
                raise
            await self._own.journal.settled()
        is_wanted = reason.cause is AbortCause.PRODUCER
        # Like a nack: another attempt at once may fail for the same reason.
        await self._completion.carry_out(transaction, is_commit=False, reason=str(reason), backs_off=is_wanted)
        self._tally.aborted += 1
        self._opened.forget(transaction, reason)
        write = log.debug if is_wanted else log.info if reason.cause in _AS_ASKED else log.warning
        write(
            "a transaction was aborted",
            transaction=transaction.transaction_id,
            transactional_id=transaction.name,
            state=before.words,
            reason=str(reason),
        )


def _check_there(transaction: OpenTransaction) -> None:
    for each in transaction.touched.values():
        if each.topic.closed:
            raise TransactionAborted(f"topic {each.topic.name!r} was deleted")
        if each.partition.log.kept_since(each.truncations) < each.end:
            raise TransactionAborted(f"partition {each.partition.place} was cut back")
