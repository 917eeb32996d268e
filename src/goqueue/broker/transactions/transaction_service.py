"""Producers with ids, and what they do in transactions over any number of partitions and groups.

What a transaction does before it is prepared or committed is written to the partitions' logs and nowhere else: a start
aborts everything that the journal does not know.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from goqueue.broker.groups.group_offsets import Offsets
from goqueue.broker.groups.group_service import GroupService
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.runtime.timer_service import TimerService
from goqueue.broker.transactions.commit_abort import CommitAbort
from goqueue.broker.transactions.commit_keys import CommitKeys
from goqueue.broker.transactions.completion import TransactionCompletion
from goqueue.broker.transactions.open_transactions import AbortCause, AbortReason, OpenTransaction, OpenTransactions
from goqueue.broker.transactions.producer_fencing import ProducerFencing, ProducerIdentity
from goqueue.broker.transactions.recovery import TopicById, recover
from goqueue.coordination.transactions import Transactions
from goqueue.delivery.dead_letters import MAX_REASON_LENGTH
from goqueue.delivery.settlement_requests import LeaseClaim
from goqueue.model.clock import NANOS_PER_MS, Clock, Randomness
from goqueue.model.config import TransactionsConfig
from goqueue.model.errors import GoQueueError, InvalidRequest, TooManyTransactions, TransactionConflict
from goqueue.model.fields import shown

MAX_PARTS = 100_000
"""Limit on the deliveries that one transaction acks."""
_ID = re.compile(r"\d{1,19}-\d{1,5}-[0-9a-f]{16}", re.ASCII)


class TransactionService:
    """Producers and what they do in transactions. How transactions end is up to ``ending`` and ``keys``."""

    def __init__(
        self,
        journal: Journal[Transactions],
        producers: ProducerFencing,
        groups: GroupService,
        completion: TransactionCompletion,
        config: TransactionsConfig,
        clock: Clock,
        randomness: Randomness,
        timers: TimerService,
    ) -> None:
        self._journal = journal
        self._groups = groups
        self._config = config
        self._clock = clock
        self._randomness = randomness
        self.producers = producers
        self.completion = completion
        self.incarnation = int.from_bytes(randomness.random_bytes(8)) >> 1 | 1
        """A different number after every start; never 0."""
        self.opened = OpenTransactions(lambda each: self.state.is_committed(each))
        self.ending = CommitAbort(journal, self.opened, completion, groups, config, clock, timers, self.incarnation)
        self.keys = CommitKeys(journal, self.opened, self.ending, config, clock)

    @property
    def state(self) -> Transactions:
        return self._journal.machine

    # Life

    async def start(self, topics: Iterable[Topic], topic_by_id: TopicById) -> None:
        """Resume from the journal: complete what was decided, keep what is prepared, abort everything else."""
        await recover(self.state, self.opened, self._groups, self.completion, topics, topic_by_id)
        for each in self.opened.all():
            self.ending.timeouts.watch(each)
        await self.producers.start()
        # The stop may have come between a decision and this.
        self.ending.abort_superseded()

    async def stop(self) -> None:
        await self.ending.timeouts.stop()
        await self.completion.stop()

    def tidy(self) -> None:
        """Forget transactional ids and commit keys that expired."""
        self.producers.tidy({each.name for each in self.opened.all()})

    # Producers

    async def init(
        self, name: str | None = None, timeout_ms: int | None = None, instance: str = "", *, again: bool = False
    ) -> ProducerIdentity:
        """An id for a producer. Under a name it fences the producer that had the name, and ends what that left open.

        ``again``: for an ``instance`` that had the name before; it does not take it back from another.
        """
        timeout_ms = self.producers.timeout(timeout_ms)
        if name is None:
            return ProducerIdentity(await self.producers.fresh(), 0, timeout_ms)
        found = await self.producers.taken_over(name, timeout_ms, instance, again=again)
        # From here on the producer before is fenced, and can begin nothing more.
        for left in [each for each in self.opened.all() if each.name == name]:
            self.producers.fenced += 1
            await self.ending.end_taken_over(left)
        await self._journal.settled()
        return ProducerIdentity(found.producer_id, found.epoch, timeout_ms)

    # Transactions

    def begin(self, producer_id: int, epoch: int, timeout_ms: int | None = None, for_key: str = "") -> OpenTransaction:
        """Open a transaction. One that has done nothing yet is the same when asked for again."""
        self.producers.check(producer_id, epoch)
        if timeout_ms is not None:
            self.producers.timeout(timeout_ms)
        before = self.opened.of(producer_id)
        if before is not None and before.is_same_begin(epoch, for_key):
            before.deadline_ns = self._clock.now_ns() + before.deadline_ns - before.started_ns
            before.started_ns = self._clock.now_ns()
            return before
        made_id = f"{producer_id}-{epoch}-{self._randomness.random_bytes(8).hex()}"
        return self._begin(made_id, producer_id, epoch, timeout_ms, for_key)

    def joined(
        self, transaction_id: str, producer_id: int, epoch: int, begin_timeout_ms: int | None = None, for_key: str = ""
    ) -> OpenTransaction:
        """The transaction to which a producer wants to add something. With ``begin_timeout_ms`` (0: as init said) it is
        begun if it is not known, so that nobody has to ask before; ``for_key`` is then the one that it is meant to be
        committed under."""
        if begin_timeout_ms is None or self.opened.is_known(transaction_id):
            return self.ongoing(producer_id, epoch, transaction_id)
        self.check_owner(transaction_id, producer_id, epoch)
        return self._begin(transaction_id, producer_id, epoch, begin_timeout_ms or None, for_key)

    def _begin(
        self, transaction_id: str, producer_id: int, epoch: int, timeout_ms: int | None, for_key: str
    ) -> OpenTransaction:
        if for_key:
            self.keys.check_free(for_key)
            self.keys.extend_prepared(for_key)
        before = self.opened.of(producer_id)
        if before is not None:
            raise TransactionConflict(
                f"producer {producer_id} has transaction {before.transaction_id} ({before.state}); it must end first"
            )
        if len(self.opened) >= self._config.max_open:
            raise TooManyTransactions(
                f"{len(self.opened)} transactions are open or prepared (transactions.max_open)", retry_after_s=1
            )
        name = self.state.name_of(producer_id)
        known = self.state.producer(name) if name else None
        if timeout_ms is None and known is not None:
            # It may have been asked for when more was allowed.
            timeout_ms = min(known.timeout_ms, self._config.max_timeout_ms)
        now_ns = self._clock.now_ns()
        transaction = OpenTransaction(
            transaction_id,
            producer_id,
            epoch,
            name,
            now_ns,
            now_ns + self.producers.timeout(timeout_ms) * NANOS_PER_MS,
            for_key=for_key,
        )
        self.ending.tally.begun += 1
        self.opened.add(transaction)
        self.ending.timeouts.watch(transaction)
        return transaction

    def ongoing(self, producer_id: int, epoch: int, transaction_id: str | None = None) -> OpenTransaction:
        """The transaction to which a producer may add something."""
        self.producers.check(producer_id, epoch)
        return self.opened.ongoing(producer_id, epoch, transaction_id)

    def check_owner(self, transaction_id: str, producer_id: int, epoch: int) -> None:
        """Whether a producer may say how a transaction ends, be it over already."""
        self.producers.check(producer_id, epoch)
        if not transaction_id.startswith(f"{producer_id}-{epoch}-") or _ID.fullmatch(transaction_id) is None:
            raise TransactionConflict(f"transaction {shown(transaction_id)} is not of producer {producer_id}")

    # What a transaction does besides publishing

    async def add_acks(
        self, transaction: OpenTransaction, receipts: Sequence[str], claims: Sequence[LeaseClaim] = ()
    ) -> None:
        """Messages are done when the transaction is committed, all of them or none; until then nobody gets them."""
        transaction.check_ongoing()
        async with self._all_or_none(transaction):
            self._groups.transactional_acks.freeze(receipts, claims, transaction.holder, transaction.acks)
        await self._check_size(transaction)

    async def add_offsets(
        self, transaction: OpenTransaction, group: str, member_id: str, offsets: Offsets, generation: int | None = None
    ) -> None:
        """A group goes on at these offsets when the transaction is committed."""
        transaction.check_ongoing()
        holder = transaction.holder
        async with self._all_or_none(transaction):
            later = self._groups.offsets.commit_later(group, member_id, offsets, generation, holder, transaction.acks)
        for each in later:
            before = transaction.offsets.get(each.queue)
            if before is None or before.offset < each.offset:
                transaction.offsets[each.queue] = each
        await self._check_size(transaction)

    @asynccontextmanager
    async def _all_or_none(self, transaction: OpenTransaction) -> AsyncIterator[None]:
        """End the transaction if it could hold only a part of what it was asked to ack."""
        before = len(transaction.acks)
        try:
            yield
        except GoQueueError as error:
            if len(transaction.acks) > before:
                reason = AbortReason(AbortCause.FAILED, f"it could not ack all of what it was asked to: {error}")
                await self.ending.give_up(transaction, reason)
            raise

    async def _check_size(self, transaction: OpenTransaction) -> None:
        # Nothing here waits for the disk: before it is prepared or committed, nothing is promised.
        if sum(len(each.parts) for each in transaction.acks) > MAX_PARTS:
            reason = AbortReason(AbortCause.FAILED, f"it acks more than {MAX_PARTS} deliveries")
            await self.ending.give_up(transaction, reason)

    # Ends

    async def abort_own(self, transaction_id: str, producer_id: int, epoch: int, why: str = "") -> None:
        """``ending.abort`` for its producer, whose batches may arrive later: then they must not begin it again."""
        self.check_owner(transaction_id, producer_id, epoch)
        if len(why) > MAX_REASON_LENGTH:
            raise InvalidRequest(f"the reason has {len(why)} characters; {MAX_REASON_LENGTH} are allowed")
        reason = AbortReason(AbortCause.PRODUCER, why)
        if not self.opened.is_known(transaction_id):
            self.opened.note_aborted(transaction_id, reason)
        await self.ending.abort(transaction_id, reason)
