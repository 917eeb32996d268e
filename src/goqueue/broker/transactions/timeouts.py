"""Tasks that prepare or end transactions, and the timeouts of transactions that no one ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from goqueue.broker.runtime.named_timers import NamedTimers
from goqueue.broker.transactions.open_transactions import OpenTransaction, OpenTransactions, State
from goqueue.model.clock import NANOS_PER_SECOND, Clock
from goqueue.model.errors import NotLeader, TransactionAborted
from goqueue.model.logging import get_logger

log = get_logger(__name__)

_TRY_AGAIN_NS = NANOS_PER_SECOND


class TransactionTimeouts:
    def __init__(
        self,
        opened: OpenTransactions,
        clock: Clock,
        timers: NamedTimers[str],
        on_late: Callable[[OpenTransaction], None],
        on_doubt: Callable[[OpenTransaction], None],
    ) -> None:
        """``on_late`` gets each transaction whose deadline has passed, and that can be ended; ``on_doubt`` those that
        are in doubt, every now and then. ``timers`` are those of all coordinators: they call ``ring``."""
        self._opened = opened
        self._clock = clock
        self._timers = timers
        self._on_late = on_late
        self._on_doubt = on_doubt
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Carry work out to the end, even if its caller goes away; raises ``NotLeader`` once the shard is let go."""
        if self._is_stopped:
            work.close()
            raise NotLeader("this broker does not lead the shard of the transaction at present")
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def wait_for(self, task: asyncio.Task[None]) -> None:
        """The work that another coordinator spawned is about a transaction of this one as well."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        # A caller that still waits gets the error as well. An abort has been logged already.
        if not isinstance(error, TransactionAborted):
            log.warning("a transaction could not be prepared or ended", error=str(error))

    def go_back(self, transaction: OpenTransaction, before: State) -> None:
        """Work that was begun failed without changing anything: it may be tried again."""
        transaction.state, transaction.work = before, None
        # The deadline may have passed meanwhile, when the transaction could not be ended.
        at_ns = max(transaction.deadline_ns, self._clock.now_ns() + _TRY_AGAIN_NS)
        self._timers.set(transaction.transaction_id, at_ns)

    def doubt(self, transaction: OpenTransaction) -> None:
        """It is prepared, and may be committed: ask again in a moment."""
        transaction.state, transaction.work, transaction.is_in_doubt = State.PREPARED, None, True
        self._timers.set(transaction.transaction_id, self._clock.now_ns() + _TRY_AGAIN_NS)

    async def stop(self) -> None:
        """Wait for everything that was begun, and begin nothing more by oneself."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._is_stopped = True
        for transaction in self._opened.all():
            self._timers.forget(transaction.transaction_id)

    def watch(self, transaction: OpenTransaction) -> None:
        """Abort it at its deadline."""
        self._timers.set(transaction.transaction_id, transaction.deadline_ns)

    def ring(self, transaction_id: str) -> None:
        """The time has come that was set for it."""
        transaction = self._opened.get(transaction_id)
        if transaction is None:
            return
        if transaction.is_in_doubt:
            self._on_doubt(transaction)
        elif transaction.deadline_ns > self._clock.now_ns():
            self.watch(transaction)
        elif transaction.can_end:
            self._on_late(transaction)
