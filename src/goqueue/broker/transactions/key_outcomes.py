"""What became of transactions that are prepared for a key, of which the shard of the key decides.

A coordinator that takes its shard up again asks here whether what it finds prepared was committed. If the shard of the
key is not led, that is not known: until it is, the transaction is in doubt, and is neither committed nor aborted.
"""

from __future__ import annotations

from goqueue.broker.partitions.running_topics import RunningTopics
from goqueue.broker.runtime.shard_placement import shard_of_commit_key
from goqueue.broker.transactions.coordinator import Coordinator
from goqueue.broker.transactions.coordinators import Coordinators
from goqueue.broker.transactions.open_transactions import AbortCause, AbortReason, OpenTransaction, State
from goqueue.broker.transactions.recovery import decided
from goqueue.coordination.transaction_records import Decided, TransactionRecord
from goqueue.model.clock import Clock
from goqueue.model.errors import GoQueueError, StorageFailed
from goqueue.model.logging import get_logger

log = get_logger(__name__)


class KeyOutcomes:
    def __init__(self, coordinators: Coordinators, topics: RunningTopics, clock: Clock) -> None:
        self._coordinators = coordinators
        self._topics = topics
        self._clock = clock
        self.being_decided: set[str] = set()
        """Keys under which something is to be committed, by a record that may not be durable."""

    def is_used(self, key: str) -> bool:
        """Whether anything was committed under a key, as far as that is known here."""
        coordinator = self._coordinators.by_shard.get(shard_of_commit_key(key))
        return coordinator is not None and coordinator.state.used_key(key) is not None

    def is_committed(self, prepared: TransactionRecord | OpenTransaction) -> bool | None:
        """Whether it was committed under its key; ``None`` if that is not known here."""
        if not prepared.for_key:
            return False
        coordinator = self._coordinators.by_shard.get(shard_of_commit_key(prepared.for_key))
        if coordinator is None:
            return None
        used = coordinator.state.used_key(prepared.for_key)
        if used is not None and prepared.transaction_id in used.transactions:
            return True
        # A record that could not be made durable may be found by the next start all the same.
        return False if coordinator.own.journal.log.failure is None else None

    # The rest is what coordinators have done (``KeyDecisions``)

    def abort_superseded(self) -> None:
        """Abort transactions that were meant for a key under which others were committed: their tasks were killed, or
        came second. No one else would end them, and readers would wait behind them."""
        for coordinator in self._coordinators.serving:
            for each in coordinator.opened.all():
                if each.for_key and each.can_end and self._is_over(each.for_key):
                    # If that fails, the timeout tries it again.
                    each.deadline_ns = min(each.deadline_ns, self._clock.now_ns())
                    coordinator.ending.begin_abort(each, AbortReason(AbortCause.NOT_CHOSEN))

    def _is_over(self, key: str) -> bool:
        return key not in self.being_decided and self.is_used(key)

    def clear_doubts(self) -> None:
        """Find out about all transactions that are in doubt, as far as that is possible by now."""
        for coordinator in self._coordinators.serving:
            for each in coordinator.opened.all():
                if each.is_in_doubt:
                    self.clear_doubt(each)

    def clear_doubt(self, transaction: OpenTransaction) -> None:
        """Find out about a transaction that is in doubt, or try it again later."""
        coordinator = self._coordinators.of(transaction.transaction_id)
        is_committed = self.is_committed(transaction)
        if is_committed is None:
            coordinator.ending.timeouts.doubt(transaction)
        elif is_committed:
            self._finish(coordinator, transaction)
        else:
            transaction.is_in_doubt = False
            coordinator.ending.timeouts.watch(transaction)
            self.abort_superseded()

    def _finish(self, coordinator: Coordinator, transaction: OpenTransaction) -> None:
        record = coordinator.state.prepared[transaction.transaction_id]
        try:
            coordinator.own.propose([Decided(record)])
        except StorageFailed as error:
            log.error(
                "a transaction that is committed cannot be ended until the broker is restarted",
                transaction=transaction.transaction_id,
                error=str(error),
            )
        except GoQueueError:
            coordinator.ending.timeouts.doubt(transaction)
        else:
            transaction.state, transaction.is_in_doubt = State.PREPARING_COMMIT, False
            transaction.work = coordinator.ending.timeouts.spawn(self._complete(coordinator, transaction, record))

    async def _complete(
        self, coordinator: Coordinator, transaction: OpenTransaction, record: TransactionRecord
    ) -> None:
        found, marked = decided(record, self._topics.by_id.get, coordinator.completion)
        # Nothing of it is open any more but what is left to do.
        transaction.touched = found.touched
        await coordinator.ending.complete(transaction, marked)
