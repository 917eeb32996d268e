"""The coordinator of one shard's transactions, from the moment at which the shard is led until it is let go.

What it knows durably is in the shard's journal. Transactions that are only open are known here alone: when the shard is
led again, they are aborted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from goqueue.broker.groups.group_service import GroupService
from goqueue.broker.runtime.file_freeze import FileFreeze
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.runtime.named_timers import NamedTimers
from goqueue.broker.transactions.commit_abort import CommitAbort, KeyDecisions, TransactionCounters
from goqueue.broker.transactions.completion import TransactionCompletion
from goqueue.broker.transactions.coordinator_journal import CoordinatorJournal
from goqueue.broker.transactions.open_transactions import OpenTransactions
from goqueue.coordination.shard_state import ShardState
from goqueue.coordination.transactions import Transactions
from goqueue.model.clock import Clock
from goqueue.model.config import TransactionsConfig


@dataclass(frozen=True, slots=True)
class Common:
    """What all coordinators of a broker share."""

    groups: GroupService
    stillness: FileFreeze
    config: TransactionsConfig
    clock: Clock
    timers: NamedTimers[str]
    """By transaction."""
    tally: TransactionCounters
    keys: KeyDecisions


@dataclass(eq=False, repr=False)
class Coordinator:
    shard: int
    _journal: Journal[ShardState]
    _common: Common
    incarnation: int
    """Another number each time a shard is led; never 0. Producers notice by it that open transactions were lost."""
    is_serving: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        common = self._common
        self.own = CoordinatorJournal(self.shard, self._journal)
        self.opened = OpenTransactions(lambda each: self.state.is_committed(each))
        self.completion = TransactionCompletion(self.own, common.groups, common.stillness)
        self.ending = CommitAbort(
            self.own,
            self.opened,
            self.completion,
            common.groups,
            common.config,
            common.clock,
            common.timers,
            common.keys,
            common.tally,
        )

    @property
    def state(self) -> Transactions:
        return self.own.state

    async def let_go(self) -> None:
        """Take nothing new, and finish what was begun; the rest is for when the shard is led again."""
        self.is_serving = False
        for each in self.opened.all():
            each.is_let_go = True
        await self.ending.timeouts.stop()
        await self.completion.stop()
        self.own.is_led = False
