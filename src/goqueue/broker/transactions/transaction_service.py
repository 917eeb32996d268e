"""Producers with ids, and transactions over any number of partitions and groups.

What a transaction does before it is prepared or committed is written to the partitions' logs and nowhere else: a start
aborts everything that the journal does not know. A commit makes the records durable, then its decision, and only then
do readers see them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from goqueue.broker.groups.group_service import GroupService, Offsets
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.runtime.timer_service import TimerService
from goqueue.broker.transactions.aborting import ASKED, Aborting
from goqueue.broker.transactions.commit_keys import CommitKeys
from goqueue.broker.transactions.committing import Committing
from goqueue.broker.transactions.completion import TransactionCompletion
from goqueue.broker.transactions.counters import TransactionCounters
from goqueue.broker.transactions.durability import TransactionDurability
from goqueue.broker.transactions.open_transaction import OpenTransaction
from goqueue.broker.transactions.open_transactions import OpenTransactions
from goqueue.broker.transactions.preparing import Preparing
from goqueue.broker.transactions.producer_ids import ProducerIdentity, ProducerIds
from goqueue.broker.transactions.recovery import TopicById, recover
from goqueue.broker.transactions.timeouts import TransactionTimeouts
from goqueue.coordination.transactions import Transactions
from goqueue.delivery.dead_letters import MAX_REASON_LENGTH
from goqueue.delivery.settlement_requests import LeaseClaim
from goqueue.model.clock import NANOS_PER_MS, Clock, Randomness
from goqueue.model.config import TransactionsConfig
from goqueue.model.errors import (
    GoQueueError,
    InvalidRequest,
    ProducerFenced,
    TooManyTransactions,
    TransactionConflict,
)
from goqueue.model.fields import shown

MAX_PARTS = 100_000
"""How many deliveries a transaction may ack."""
_ID = re.compile(r"\d{1,19}-\d{1,5}-[0-9a-f]{16}", re.ASCII)


class TransactionService:
    """The broker's face for producers and what they do in transactions; how these end is for ``committing``,
    ``aborting``, ``preparing`` and ``keys``, which are there from the start on."""

    def __init__(
        self,
        journal: Journal[Transactions],
        config: TransactionsConfig,
        clock: Clock,
        randomness: Randomness,
        clockwork: TimerService,
    ) -> None:
        self._journal = journal
        self._config = config
        self._clock = clock
        self._randomness = randomness
        self._ids = ProducerIds(journal, config, clock, randomness)
        self.incarnation = int.from_bytes(randomness.random_bytes(8)) >> 1 | 1
        """Another one after every start; never 0."""
        self._open = OpenTransactions(lambda each: self.state.is_committed(each))
        self._work = TransactionTimeouts(self._open, clock, clockwork)
        self.tally = TransactionCounters()
        self._groups: GroupService
        self._ends: TransactionCompletion
        self.aborting: Aborting
        self.committing: Committing
        self.keys: CommitKeys
        self.preparing: Preparing

    @property
    def state(self) -> Transactions:
        return self._journal.machine

    @property
    def held_up(self) -> Mapping[str, str]:
        """Transactions that could not be ended everywhere, and why."""
        return self._ends.held_up

    # Life

    async def start(
        self,
        groups: GroupService,
        ends: TransactionCompletion,
        topics: Iterable[Topic],
        topic_by_id: TopicById,
    ) -> None:
        """Take up where the journal ends: carry out what was decided, keep what is prepared, abort everything else."""
        self._groups, self._ends = groups, ends
        journal, opened, work = self._journal, self._open, self._work
        self.aborting = Aborting(journal, opened, ends, work, self.tally)
        safekeeping = TransactionDurability(groups, self.aborting, self.incarnation)
        self.committing = Committing(journal, opened, safekeeping, ends, work, self.tally, self._clock)
        self.keys = CommitKeys(journal, opened, self.committing, self.aborting, work, self._config, self._clock)
        self.preparing = Preparing(journal, opened, safekeeping, self.keys, work, self._config, self._clock)
        await recover(self.state, opened, groups, ends, topics, topic_by_id)
        for each in opened.all():
            work.watch(each)
        await self._ids.start()
        # The stop may have come between a decision and this.
        self.keys.abort_the_others()

    async def stop(self) -> None:
        await self._work.stop()
        await self._ends.stop()

    def tidy(self) -> None:
        """Forget names and keys that nobody has used for long."""
        self._ids.tidy({each.name for each in self._open.all()})

    # Producers

    async def init(
        self, name: str | None = None, timeout_ms: int | None = None, instance: str = "", *, again: bool = False
    ) -> ProducerIdentity:
        """An id for a producer. Under a name it takes over: whoever had it is fenced, and what it left open ends.

        ``again``: for an ``instance`` that had the name before; it does not take it back from another.
        """
        timeout_ms = self._ids.timeout(timeout_ms)
        if name is None:
            return ProducerIdentity(await self._ids.fresh(), 0, timeout_ms)
        found = await self._ids.taken_over(name, timeout_ms, instance, again=again)
        # From here on the one before is fenced, and can begin nothing more.
        for left in [each for each in self._open.all() if each.name == name]:
            self.tally.fenced += 1
            await self.aborting.end_what_was_left(left)
        await self._journal.settled()
        return ProducerIdentity(found.producer_id, found.epoch, timeout_ms)

    def check_producer(self, producer_id: int, epoch: int) -> None:
        """Raises for an id that nobody has, and for a producer that was fenced."""
        try:
            self._ids.check(producer_id, epoch)
        except ProducerFenced:
            self.tally.fenced += 1
            raise

    def heartbeat(self, producer_id: int, epoch: int) -> None:
        """A sign of life: raises if the producer is fenced. The timeout of a transaction goes on."""
        self.check_producer(producer_id, epoch)

    # Transactions

    def begin(self, producer_id: int, epoch: int, timeout_ms: int | None = None, for_key: str = "") -> OpenTransaction:
        """Open a transaction. One that has done nothing yet is the same when asked for again."""
        self.check_producer(producer_id, epoch)
        if timeout_ms is not None:
            self._ids.timeout(timeout_ms)
        before = self._open.of(producer_id)
        if before is not None and before.is_same_begin(epoch, for_key):
            before.deadline_ns = self._clock.now_ns() + before.deadline_ns - before.started_ns
            before.started_ns = self._clock.now_ns()
            return before
        made_id = f"{producer_id}-{epoch}-{self._randomness.random_bytes(8).hex()}"
        return self._begin(made_id, producer_id, timeout_ms, for_key)

    def joined(
        self,
        transaction_id: str,
        producer_id: int,
        epoch: int,
        begin_timeout_ms: int | None = None,
        for_key: str = "",
    ) -> OpenTransaction:
        """The transaction to which a producer wants to add something. With ``begin_timeout_ms`` (0: as init said) it is
        begun if it is not known, so that nobody has to ask before; ``for_key`` is then the one that it is meant to be
        committed under."""
        if begin_timeout_ms is None or self._open.is_known(transaction_id):
            return self.ongoing(producer_id, epoch, transaction_id)
        self.check_owner(transaction_id, producer_id, epoch)
        return self._begin(transaction_id, producer_id, begin_timeout_ms or None, for_key)

    def _begin(
        self, transaction_id: str, producer_id: int, timeout_ms: int | None, for_key: str = ""
    ) -> OpenTransaction:
        if for_key:
            self.keys.check_free(for_key)
            self.keys.bear_with_others(for_key)
        before = self._open.of(producer_id)
        if before is not None:
            raise TransactionConflict(
                f"producer {producer_id} has transaction {before.transaction_id} ({before.state}); it must end first"
            )
        if len(self._open) >= self._config.max_open:
            raise TooManyTransactions(
                f"{len(self._open)} transactions are open or prepared (transactions.max_open)", retry_after_s=1
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
            int(transaction_id.split("-")[1]),
            name,
            now_ns,
            now_ns + self._ids.timeout(timeout_ms) * NANOS_PER_MS,
            for_key=for_key,
        )
        self.tally.begun += 1
        self._open.add(transaction)
        self._work.watch(transaction)
        return transaction

    def open_transactions(self) -> list[OpenTransaction]:
        """Those that have not ended, the oldest first."""
        return self._open.all()

    def states(self) -> Mapping[str, int]:
        """How many transactions are in each state."""
        return self._open.states()

    def find(self, transaction_id: str) -> OpenTransaction:
        """One that has not ended."""
        return self._open.find(transaction_id)

    def ongoing(self, producer_id: int, epoch: int, transaction_id: str | None = None) -> OpenTransaction:
        """The transaction to which a producer may add something."""
        self.check_producer(producer_id, epoch)
        return self._open.ongoing(producer_id, epoch, transaction_id)

    def check_owner(self, transaction_id: str, producer_id: int, epoch: int) -> None:
        """Whether a producer may say how a transaction ends, be it over already."""
        self.check_producer(producer_id, epoch)
        if not transaction_id.startswith(f"{producer_id}-{epoch}-") or _ID.fullmatch(transaction_id) is None:
            raise TransactionConflict(f"transaction {shown(transaction_id)} is not of producer {producer_id}")

    # What a transaction does besides publishing

    async def add_acks(
        self, transaction: OpenTransaction, receipts: Sequence[str], claims: Sequence[LeaseClaim] = ()
    ) -> None:
        """Messages are done when the transaction is committed, all of them or none; until then nobody gets them."""
        transaction.check_ongoing()
        before = len(transaction.acks)
        try:
            self._groups.transactional_acks.freeze(receipts, claims, transaction.holder, transaction.acks)
        except GoQueueError as error:
            if len(transaction.acks) > before:
                await self.aborting.give_up(transaction, f"it could not ack all of what it was asked to: {error}")
            raise
        await self._check_size(transaction)

    async def add_offsets(
        self,
        transaction: OpenTransaction,
        group: str,
        member_id: str,
        offsets: Offsets,
        generation: int | None = None,
    ) -> None:
        """A group goes on at these offsets when the transaction is committed."""
        transaction.check_ongoing()
        later, acks = self._groups.commit_later(group, member_id, offsets, generation, transaction.holder)
        transaction.acks += acks
        for each in later:
            before = transaction.offsets.get(each.queue)
            if before is None or before.offset < each.offset:
                transaction.offsets[each.queue] = each
        await self._check_size(transaction)

    async def _check_size(self, transaction: OpenTransaction) -> None:
        # Nothing here waits for the disk: before it is prepared or committed, nothing is promised.
        if sum(len(each.parts) for each in transaction.acks) > MAX_PARTS:
            await self.aborting.give_up(transaction, f"it acks more than {MAX_PARTS} deliveries")

    # Ends

    async def abort_own(self, transaction_id: str, producer_id: int, epoch: int, why: str = "") -> None:
        """``aborting.abort`` for its producer, whose batches may come behind this: then they must not begin it."""
        self.check_owner(transaction_id, producer_id, epoch)
        if len(why) > MAX_REASON_LENGTH:
            raise InvalidRequest(f"the reason has {len(why)} characters; {MAX_REASON_LENGTH} are allowed")
        reason = f"{ASKED}: {why}" if why else ASKED
        if not self._open.is_known(transaction_id):
            self._open.note_aborted(transaction_id, reason)
        await self.aborting.abort(transaction_id, reason)
