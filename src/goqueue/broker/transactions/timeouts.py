"""What is being done to prepare or to end transactions, and the times at which nobody waits for them any longer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from goqueue.broker.runtime.named_timers import NamedTimers
from goqueue.broker.runtime.timer_service import TimerService
from goqueue.broker.transactions.open_transaction import OpenTransaction, State
from goqueue.broker.transactions.open_transactions import OpenTransactions
from goqueue.model.clock import NANOS_PER_SECOND, Clock
from goqueue.model.errors import TransactionAborted
from goqueue.model.logging import get_logger

log = get_logger(__name__)

_TRY_AGAIN_NS = NANOS_PER_SECOND


class TransactionTimeouts:
    """``on_late`` is told of each transaction whose time has come, and that can be ended."""

    def __init__(self, open_transactions: OpenTransactions, clock: Clock, clockwork: TimerService) -> None:
        self._open = open_transactions
        self._clock = clock
        self._times = NamedTimers(clockwork, self._ring)
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_late: Callable[[OpenTransaction], None]

    def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """To the end, even if the one who asked goes away."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        # Whoever asked for it is told as well, if anyone did. That it was aborted instead is in the log already.
        if not isinstance(error, TransactionAborted):
            log.warning("a transaction could not be prepared or ended", error=str(error))

    def go_back(self, transaction: OpenTransaction, before: State) -> None:
        """What was begun cannot be done now, and has changed nothing."""
        transaction.state, transaction.work = before, None
        # Its time may have come meanwhile, and nobody have seen to it.
        at_ns = max(transaction.deadline_ns, self._clock.now_ns() + _TRY_AGAIN_NS)
        self._times.set(transaction.transaction_id, at_ns)

    async def stop(self) -> None:
        """Everything that was begun has come to its end."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Times

    def watch(self, transaction: OpenTransaction) -> None:
        """Until its deadline."""
        self._times.set(transaction.transaction_id, transaction.deadline_ns)

    def _ring(self, transaction_ids: list[str]) -> None:
        now_ns = self._clock.now_ns()
        for transaction_id in transaction_ids:
            transaction = self._open.get(transaction_id)
            if transaction is None:
                continue
            if transaction.deadline_ns > now_ns:
                self.watch(transaction)
            elif transaction.can_end:
                self.on_late(transaction)
