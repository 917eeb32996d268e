"""Keys under which prepared transactions are committed together: who comes first with one wins.

For writers made of tasks. Each task prepares a transaction, maybe more than once; whoever drives them chooses which are
committed, and may ask again without knowing whether that was done.

The shard of a key decides, by one record in its journal (``KeyUsed``): this is the commit of all transactions that it
names, whichever shards coordinate them. What is committed under a key was prepared for that key before, so that its own
shard knows whom to ask about it (``key_outcomes``). Until a shard has noted that its transactions are committed, the
key is not forgotten, and no later key of its series is taken.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from goqueue.broker.runtime.journal import Journal
from goqueue.broker.runtime.shard_placement import SHARD_NUMBERS
from goqueue.broker.runtime.time_slices import TimeSlice
from goqueue.broker.transactions.coordinator import Coordinator
from goqueue.broker.transactions.coordinators import Coordinators
from goqueue.broker.transactions.key_outcomes import KeyOutcomes
from goqueue.broker.transactions.open_transactions import OpenTransaction, State
from goqueue.coordination.transaction_records import Decided, KeyUsed, Prepared, UsedKey
from goqueue.coordination.transactions import keys_beyond, series_of
from goqueue.model.clock import NANOS_PER_MS, Clock
from goqueue.model.config import TransactionsConfig
from goqueue.model.errors import GoQueueError, InvalidRequest, NotLeader, StorageFailed, TransactionConflict
from goqueue.model.fields import shown
from goqueue.model.logging import get_logger

log = get_logger(__name__)

MAX_KEY_LENGTH = 1_000
MAX_AT_ONCE = 10_000
"""How many transactions one ``commit_many`` takes."""
Share = dict[Coordinator, list[OpenTransaction]]
"""Transactions by their coordinators."""


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
    _coordinators: Coordinators
    _outcomes: KeyOutcomes
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
        own = self._coordinators.of_key(key)
        if self._outcomes.is_used(key):
            self._outcomes.abort_superseded()
            known = await self.committed_under(key)
            assert known is not None
            if known.is_superseded:
                raise TransactionConflict(
                    f"a later key of the series was committed already; {shown(key)} comes too late, from a copy of an "
                    "older state of whoever counts"
                )
            return known
        # Until the key is taken there is no await from here on: two who come at once must not both be the first.
        share: Share = {}
        for each in transaction_ids:
            coordinator = self._coordinators.of(each)
            share.setdefault(coordinator, []).append(_prepared(coordinator.opened.find(each)))
        messages = sum(one.messages for some in share.values() for one in some)
        used = UsedKey(list(transaction_ids), self._clock.now_ns(), messages, series_of(key)[1])
        for one in chain.from_iterable(share.values()):
            one.state = State.PREPARING_COMMIT
        work = own.ending.timeouts.spawn(self._commit_many(own, share, KeyUsed(key, used)))
        self._under_way[key] = work
        work.add_done_callback(lambda _: self._under_way.pop(key))
        for coordinator, some in share.items():
            coordinator.ending.timeouts.wait_for(work)
            for one in some:
                one.work = work
        await asyncio.shield(work)
        return ManyCommitted(key, list(transaction_ids), used.at_ns, is_new=True, messages=messages)

    def _of_its_series(self, key: str) -> asyncio.Task[None] | None:
        """What is being committed under a key, or under another of its series."""
        name, _ = series_of(key)
        return next((work for each, work in self._under_way.items() if series_of(each)[0] == name), None)

    async def _commit_many(self, own: Coordinator, share: Share, used: KeyUsed) -> None:
        others = {coordinator: some for coordinator, some in share.items() if coordinator is not own}
        try:
            await self._earlier_noted(own, used.key)
            await _bind(others, used.key)
        except GoQueueError:
            _go_back(share)
            raise
        self._outcomes.being_decided.add(used.key)
        try:
            own.own.propose([used, *(Decided(each.record()) for each in share.get(own, ()))])
        except StorageFailed:
            # The next start finds out whether it is decided; until then readers wait.
            raise
        except GoQueueError:
            self._outcomes.being_decided.discard(used.key)
            _go_back(share)
            raise
        await own.own.journal.settled()
        self._outcomes.being_decided.discard(used.key)
        stretch = TimeSlice()
        for coordinator, some in share.items():
            if coordinator is own or _noted(coordinator, some):
                for each in some:
                    await coordinator.ending.complete(each)
                    if stretch.is_over:
                        await stretch.rest()
        self._outcomes.abort_superseded()

    async def _earlier_noted(self, own: Coordinator, key: str) -> None:
        """Of a series only the last key is remembered: before it is, all that was committed under the one before must
        be known where it is coordinated, durably."""
        last = own.state.last_of_series(key)
        elsewhere: dict[Coordinator, None] = {}
        for transaction_id in () if last is None else last.transactions:
            coordinator = self._coordinators.of(transaction_id)
            if transaction_id in coordinator.state.prepared:
                raise NotLeader(f"transaction {transaction_id}, committed under the key before, is not ended so far")
            elsewhere[coordinator] = None
        await Journal.all_settled([each.own.journal for each in elsewhere])

    async def committed_under(self, key: str) -> ManyCommitted | None:
        """What was committed under a key, if anything was."""
        own = self._coordinators.of_key(key).own
        known = own.state.used_key(key)
        await own.journal.settled()
        if known is None:
            return None
        is_superseded = known.number != series_of(key)[1]
        return ManyCommitted(key, known.transactions, known.at_ns, False, known.messages, is_superseded)

    # What is meant for a key

    def check_free(self, key: str) -> None:
        """Whether a transaction may be begun that is meant for a key."""
        if len(key) > MAX_KEY_LENGTH:
            raise InvalidRequest(f"the key has {len(key)} characters; up to {MAX_KEY_LENGTH} are allowed")
        if key in self._under_way or self._coordinators.of_key(key).state.used_key(key) is not None:
            raise TransactionConflict(
                f"others were committed under the key {shown(key)} already; whoever writes for it now is too late"
            )

    def extend_prepared(self, key: str) -> None:
        """A writer still begins transactions for a key: extend the deadlines of those that are prepared for it."""
        deadline_ns = self._clock.now_ns() + self._config.prepared_timeout_ms * NANOS_PER_MS
        for each in self._coordinators.all_open():
            if each.for_key == key and each.state is State.PREPARED:
                each.deadline_ns = max(each.deadline_ns, deadline_ns)

    # Forgetting

    async def tidy(self) -> None:
        """Forget keys that expired, and the oldest of those that are too many."""
        serving = self._coordinators.serving
        if len(serving) < len(SHARD_NUMBERS):
            # Of a shard that is not led it is not known what is prepared for which key.
            return
        going = keys_beyond(
            chain.from_iterable(each.state.used_keys() for each in serving),
            self._clock.now_ns() - self._config.key_retention_ms * NANOS_PER_MS,
            self._config.max_keys,
        )
        if not going:
            return
        for coordinator in serving:
            # What may have been committed under one of these, and is not noted as that so far.
            going -= {series_of(each.for_key)[0] for each in coordinator.state.prepared.values()}
        await Journal.all_settled([each.own.journal for each in serving])
        if self._coordinators.serving != serving:
            return
        for coordinator in serving:
            coordinator.own.propose(coordinator.state.decide_forget_keys(going))


def _prepared(transaction: OpenTransaction) -> OpenTransaction:
    if transaction.state is not State.PREPARED:
        raise TransactionConflict(f"transaction {transaction.transaction_id} is {transaction.state}, not prepared")
    if transaction.is_in_doubt:
        raise transaction.doubt()
    return transaction


async def _bind(share: Share, key: str) -> None:
    """Prepare transactions for a key that were prepared for none, or for another: only then its shard may decide."""
    changed = {
        coordinator: those
        for coordinator, some in share.items()
        if (those := [each for each in some if each.for_key != key])
    }
    for coordinator, those in changed.items():
        coordinator.own.propose([Prepared(msgspec.structs.replace(each.record(), for_key=key)) for each in those])
    await Journal.all_settled([each.own.journal for each in changed])
    for each in chain.from_iterable(changed.values()):
        each.for_key = key


def _go_back(share: Share) -> None:
    """Nothing was decided."""
    for coordinator, some in share.items():
        for each in some:
            coordinator.ending.timeouts.go_back(each, State.PREPARED)


def _noted(coordinator: Coordinator, transactions: Sequence[OpenTransaction]) -> bool:
    """Note in their own shard that transactions are committed, which is decided durably; if that cannot be written they
    are in doubt there, and it is tried again."""
    try:
        coordinator.own.propose([Decided(each.record()) for each in transactions])
    except GoQueueError as error:
        log.error("committed transactions cannot be ended for now; readers wait", error=str(error))
        for each in transactions:
            coordinator.ending.timeouts.doubt(each)
        return False
    return True
