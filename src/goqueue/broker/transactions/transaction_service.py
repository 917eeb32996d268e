"""Producers with ids, and what they do in transactions over any number of partitions and groups.

What a transaction does before it is prepared or committed is written to the partitions' logs and nowhere else: when the
shard of its coordinator is led again, everything is aborted that the journal does not know.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from goqueue.broker.groups.group_offsets import Offsets
from goqueue.broker.groups.group_service import GroupService
from goqueue.broker.partitions.running_topics import RunningTopics
from goqueue.broker.runtime.file_freeze import FileFreeze
from goqueue.broker.runtime.named_timers import NamedTimers
from goqueue.broker.runtime.timer_service import TimerService
from goqueue.broker.shards.shard import Shard
from goqueue.broker.transactions.commit_abort import Known, TransactionCounters
from goqueue.broker.transactions.commit_keys import CommitKeys
from goqueue.broker.transactions.coordinator import Common, Coordinator
from goqueue.broker.transactions.coordinators import Coordinators
from goqueue.broker.transactions.key_outcomes import KeyOutcomes
from goqueue.broker.transactions.open_transactions import AbortCause, AbortReason, OpenTransaction
from goqueue.broker.transactions.producer_fencing import ProducerFencing, ProducerIdentity
from goqueue.broker.transactions.recovery import recover
from goqueue.broker.transactions.thawing import Thawing
from goqueue.coordination.transaction_records import producer_of
from goqueue.delivery.dead_letters import MAX_REASON_LENGTH
from goqueue.delivery.settlement_requests import LeaseClaim
from goqueue.model.clock import NANOS_PER_MS, Clock, Randomness
from goqueue.model.config import TransactionsConfig
from goqueue.model.errors import GoQueueError, InvalidRequest, TooManyTransactions, TransactionConflict
from goqueue.model.fields import shown

MAX_PARTS = 100_000
"""Limit on the deliveries that one transaction acks."""
_BY_PRODUCER = AbortReason(AbortCause.PRODUCER)


class TransactionService:
    """Each transaction has its coordinator, in the shard that its producer's id tells."""

    def __init__(
        self,
        coordinators: Coordinators,
        producers: ProducerFencing,
        groups: GroupService,
        topics: RunningTopics,
        stillness: FileFreeze,
        config: TransactionsConfig,
        clock: Clock,
        randomness: Randomness,
        timers: TimerService,
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._config = config
        self._clock = clock
        self._randomness = randomness
        self.coordinators = coordinators
        self.producers = producers
        self.tally = TransactionCounters()
        self._outcomes = KeyOutcomes(coordinators, topics, clock)
        self.keys = CommitKeys(coordinators, self._outcomes, config, clock)
        self._thawing = Thawing(coordinators, groups.transactional_acks)
        self._common = Common(
            groups, stillness, config, clock, NamedTimers[str](timers, self._ring), self.tally, self._outcomes
        )

    # Life

    async def start(self) -> None:
        """After all shards are led."""
        await self.lead(self._groups.shards.all)
        await self.producers.start()

    async def lead(self, shards: Sequence[Shard]) -> None:
        """Coordinate what these shards have, which are led by now: complete what was decided, keep what is prepared,
        abort everything else."""
        taken = [Coordinator(each.number, each.journal, self._common, self._incarnation()) for each in shards]
        self.coordinators.by_shard |= {each.shard: each for each in taken}
        await recover(taken, self.coordinators, self._outcomes.is_committed, self._groups, self._topics)
        for coordinator in taken:
            coordinator.is_serving = True
            for each in coordinator.opened.all():
                coordinator.ending.timeouts.watch(each)
        self._outcomes.clear_doubts()
        self._thawing.thaw()
        # What was decided before may have had no time for this.
        self._outcomes.abort_superseded()

    def _incarnation(self) -> int:
        """A number other than any before, and never 0."""
        return int.from_bytes(self._randomness.random_bytes(8)) >> 1 | 1

    async def let_go(self, shard: Shard) -> None:
        """Finish what is under way; what is open is aborted when the shard is led again."""
        coordinator = self.coordinators.by_shard.get(shard.number)
        if coordinator is not None:
            await coordinator.let_go()
            self.coordinators.by_shard.pop(shard.number, None)

    async def stop(self) -> None:
        await self._thawing.stop()
        await asyncio.gather(*[self.let_go(each) for each in self._groups.shards.all])

    async def tidy(self) -> None:
        """Forget transactional ids and commit keys that expired."""
        self.producers.tidy()
        await self.keys.tidy()

    def _ring(self, transaction_ids: list[str]) -> None:
        for transaction_id in transaction_ids:
            producer_id = producer_of(transaction_id)
            assert producer_id is not None
            coordinator = self.coordinators.by_shard.get(self.coordinators.ids.shard_of(producer_id))
            if coordinator is not None and coordinator.is_serving:
                coordinator.ending.timeouts.ring(transaction_id)

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
        coordinator = self.coordinators.of_name(name)
        for left in [each for each in coordinator.opened.all() if each.name == name]:
            self.producers.fenced += 1
            await coordinator.ending.end_taken_over(left)
        await coordinator.own.journal.settled()
        return ProducerIdentity(found.producer_id, found.epoch, timeout_ms)

    # Transactions

    def begin(self, producer_id: int, epoch: int, timeout_ms: int | None = None, for_key: str = "") -> OpenTransaction:
        """Open a transaction. One that has done nothing yet is the same when asked for again."""
        self.producers.check(producer_id, epoch)
        if timeout_ms is not None:
            self.producers.timeout(timeout_ms)
        before = self.coordinators.of_producer(producer_id).opened.of(producer_id)
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
        if begin_timeout_ms is None:
            return self.ongoing(producer_id, epoch, transaction_id)
        self.producers.check(producer_id, epoch)
        if self.coordinators.of_producer(producer_id).opened.is_known(transaction_id):
            return self.ongoing(producer_id, epoch, transaction_id)
        self.check_owner(transaction_id, producer_id, epoch)
        return self._begin(transaction_id, producer_id, epoch, begin_timeout_ms or None, for_key)

    def _begin(
        self, transaction_id: str, producer_id: int, epoch: int, timeout_ms: int | None, for_key: str
    ) -> OpenTransaction:
        if for_key:
            self.keys.check_free(for_key)
            self.keys.extend_prepared(for_key)
        coordinator = self.coordinators.of_producer(producer_id)
        before = coordinator.opened.of(producer_id)
        if before is not None:
            raise TransactionConflict(
                f"producer {producer_id} has transaction {before.transaction_id} ({before.state}); it must end first"
            )
        if (count := self.coordinators.open_count()) >= self._config.max_open:
            raise TooManyTransactions(
                f"{count} transactions are open or prepared (transactions.max_open)", retry_after_s=1
            )
        name = coordinator.state.name_of(producer_id)
        known = coordinator.state.producer(name) if name else None
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
            incarnation=coordinator.incarnation,
        )
        self.tally.begun += 1
        coordinator.opened.add(transaction)
        coordinator.ending.timeouts.watch(transaction)
        return transaction

    def ongoing(self, producer_id: int, epoch: int, transaction_id: str | None = None) -> OpenTransaction:
        """The transaction to which a producer may add something."""
        self.producers.check(producer_id, epoch)
        coordinators = self.coordinators
        coordinator = coordinators.of(transaction_id) if transaction_id else coordinators.of_producer(producer_id)
        return coordinator.opened.ongoing(producer_id, epoch, transaction_id)

    def check_owner(self, transaction_id: str, producer_id: int, epoch: int) -> None:
        """Whether a producer may say how a transaction ends, be it over already."""
        self.producers.check(producer_id, epoch)
        if not transaction_id.startswith(f"{producer_id}-{epoch}-") or producer_of(transaction_id) is None:
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
                await self.coordinators.of(transaction.transaction_id).ending.give_up(transaction, reason)
            raise

    async def _check_size(self, transaction: OpenTransaction) -> None:
        # Nothing here waits for the disk: before it is prepared or committed, nothing is promised.
        if sum(len(each.parts) for each in transaction.acks) > MAX_PARTS:
            reason = AbortReason(AbortCause.FAILED, f"it acks more than {MAX_PARTS} deliveries")
            await self.coordinators.of(transaction.transaction_id).ending.give_up(transaction, reason)

    # Looking

    def find(self, transaction_id: str) -> OpenTransaction:
        """A transaction that has not ended."""
        return self.coordinators.of(transaction_id).opened.find(transaction_id)

    def held_up(self) -> dict[str, str]:
        """Transactions that could not be ended everywhere, and why."""
        return {name: why for each in self.coordinators.serving for name, why in each.completion.held_up.items()}

    # Ends

    async def prepare(self, transaction_id: str, knows: Known | None = None) -> OpenTransaction:
        """Make durable what a transaction did; someone else decides how it ends. Repeating it is harmless."""
        return await self.coordinators.of(transaction_id).ending.prepare(transaction_id, knows)

    async def commit(self, transaction_id: str, knows: Known | None = None) -> None:
        """Let readers see everything of a transaction. Repeating it is harmless."""
        await self.coordinators.of(transaction_id).ending.commit(transaction_id, knows)

    async def abort(self, transaction_id: str, reason: AbortReason = _BY_PRODUCER) -> None:
        """Hide everything of a transaction for good. Repeating it is harmless."""
        await self.coordinators.of(transaction_id).ending.abort(transaction_id, reason)

    async def abort_own(self, transaction_id: str, producer_id: int, epoch: int, why: str = "") -> None:
        """``ending.abort`` for its producer, whose batches may arrive later: then they must not begin it again."""
        self.check_owner(transaction_id, producer_id, epoch)
        if len(why) > MAX_REASON_LENGTH:
            raise InvalidRequest(f"the reason has {len(why)} characters; {MAX_REASON_LENGTH} are allowed")
        reason = AbortReason(AbortCause.PRODUCER, why)
        opened = self.coordinators.of(transaction_id).opened
        if not opened.is_known(transaction_id):
            opened.note_aborted(transaction_id, reason)
        await self.abort(transaction_id, reason)
