"""Keys under which prepared transactions are committed together: who comes first with one wins.

For writers made of tasks. Each task prepares a transaction, maybe more than once; whoever drives them chooses which are
committed, and may ask again without knowing whether that was done.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from goqueue.broker.runtime.journal import Journal
from goqueue.broker.runtime.time_slices import TimeSlice
from goqueue.broker.transactions.commit_abort import CommitAbort
from goqueue.broker.transactions.open_transactions import OpenTransaction, OpenTransactions, State
from goqueue.coordination.transaction_records import KeyUsed, UsedKey
from goqueue.coordination.transactions import Transactions, series_of
from goqueue.model.clock import NANOS_PER_MS, Clock
from goqueue.model.config import TransactionsConfig
from goqueue.model.errors import InvalidRequest, TransactionConflict
from goqueue.model.fields import shown

MAX_KEY_LENGTH = 1_000
MAX_AT_ONCE = 10_000
"""How many transactions one ``commit_many`` takes."""


@dataclass(frozen=True, slots=True)
class ManyCommitted:
    """What is committed under a key. ``is_new``: by this very call."""

    key: str
    transactions: list[str]
    at_ns: int
    is_new: bool
    messages: int = 0
    is_superseded: bool = False
    """A later one of its series was committed since: what was committed under this one is not known any more."""


@dataclass(eq=False, repr=False)
class CommitKeys:
    _journal: Journal[Transactions]
    _opened: OpenTransactions
    _ending: CommitAbort
    _config: TransactionsConfig
    _clock: Clock
    _under_way: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)

    # Committing

    async def commit_many(self, key: str, transaction_ids: Sequence[str]) -> ManyCommitted:
        """Commit prepared transactions under a key, all or none. Who comes first with a key wins; what was committed
        then is the answer to everyone who comes later."""
        if not 1 <= len(key) <= MAX_KEY_LENGTH:
            raise InvalidRequest(f"the key has {len(key)} characters; 1 to {MAX_KEY_LENGTH} are allowed")
        if len(transaction_ids) > MAX_AT_ONCE:
            raise InvalidRequest(f"{len(transaction_ids)} transactions; up to {MAX_AT_ONCE} are allowed")
        if len(set(transaction_ids)) != len(transaction_ids):
            twice = Counter(transaction_ids).most_common(1)[0][0]
            raise InvalidRequest(f"transaction {shown(twice)} is named more than once; name each once")
        while (before := self._of_its_series(key)) is not None:
            await asyncio.wait([before])
        if self._is_used(key):
            self._ending.abort_superseded()
            known = await self.committed_under(key)
            assert known is not None
            if known.is_superseded:
                raise TransactionConflict(
                    f"a later key of the series was committed already; {shown(key)} comes too late, from a copy of an "
                    "older state of whoever counts"
                )
            return known
        # Until the key is taken there is no await from here on: two who come at once must not both be the first.
        transactions = [self._opened.find(each) for each in transaction_ids]
        for each in transactions:
            if each.state is not State.PREPARED:
                raise TransactionConflict(f"transaction {each.transaction_id} is {each.state}, not prepared")
        messages = sum(each.messages for each in transactions)
        used = UsedKey(
            [each.transaction_id for each in transactions], self._clock.now_ns(), messages, series_of(key)[1]
        )
        for each in transactions:
            each.state = State.PREPARING_COMMIT
        work = self._under_way[key] = self._ending.timeouts.spawn(self._commit_many(transactions, KeyUsed(key, used)))
        work.add_done_callback(lambda _: self._under_way.pop(key))
        for each in transactions:
            each.work = work
        await asyncio.shield(work)
        return ManyCommitted(key, list(transaction_ids), used.at_ns, is_new=True, messages=messages)

    def _of_its_series(self, key: str) -> asyncio.Task[None] | None:
        """What is being committed under a key, or under another of its series."""
        name, _ = series_of(key)
        return next((work for each, work in self._under_way.items() if series_of(each)[0] == name), None)

    async def _commit_many(self, transactions: Sequence[OpenTransaction], used: KeyUsed) -> None:
        await self._ending.decide(transactions, [used], State.PREPARED)
        stretch = TimeSlice()
        for each in transactions:
            await self._ending.complete(each)
            if stretch.is_over:
                await stretch.rest()
        self._ending.abort_superseded()

    async def committed_under(self, key: str) -> ManyCommitted | None:
        """What was committed under a key, if anything was."""
        known = self._journal.machine.used_key(key)
        await self._journal.settled()
        if known is None:
            return None
        is_superseded = known.number != series_of(key)[1]
        return ManyCommitted(key, known.transactions, known.at_ns, False, known.messages, is_superseded)

    def _is_used(self, key: str) -> bool:
        return self._journal.machine.used_key(key) is not None

    # What is meant for a key

    def check_free(self, key: str) -> None:
        """Whether a transaction may be begun that is meant for a key."""
        if len(key) > MAX_KEY_LENGTH:
            raise InvalidRequest(f"the key has {len(key)} characters; up to {MAX_KEY_LENGTH} are allowed")
        if key in self._under_way or self._is_used(key):
            raise TransactionConflict(
                f"others were committed under the key {shown(key)} already; whoever writes for it now is too late"
            )

    def extend_prepared(self, key: str) -> None:
        """A writer still begins transactions for a key: extend the deadlines of those that are prepared for it."""
        deadline_ns = self._clock.now_ns() + self._config.prepared_timeout_ms * NANOS_PER_MS
        for each in self._opened.all():
            if each.for_key == key and each.state is State.PREPARED:
                each.deadline_ns = max(each.deadline_ns, deadline_ns)
