"""Producers with ids, and transactions over any number of partitions and groups.

What a transaction does before it is prepared or committed is written to the partitions' logs and nowhere else: a start
aborts everything that the journal does not know. A commit makes the records durable, then its decision, and only then
do readers see them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass

from goqueue.broker.alarm import Alarm
from goqueue.broker.clockwork import Clockwork
from goqueue.broker.groups import GroupService, Offsets
from goqueue.broker.journal import Journal
from goqueue.broker.open_transaction import OpenTransaction, Touch
from goqueue.broker.orders import LeaseClaim
from goqueue.broker.topic import Topic
from goqueue.broker.transaction_ends import TransactionEnds
from goqueue.coordination.transactions import (
    IDS_AT_ONCE,
    Aborted,
    Decided,
    KeyUsed,
    Prepared,
    TransactionRecord,
    Transactions,
    TransactionsEvent,
    UsedKey,
)
from goqueue.model.config import TransactionsConfig
from goqueue.model.errors import (
    GoQueueError,
    InvalidRequest,
    ProducerFenced,
    StorageFailed,
    TooManyTransactions,
    TransactionAborted,
    TransactionConflict,
    TransactionNotFound,
)
from goqueue.model.fields import shown
from goqueue.model.logging import get_logger
from goqueue.model.ports import NANOS_PER_MS, Clock, Randomness
from goqueue.storage.commit import CommitScheduler

log = get_logger(__name__)

MAX_NAME_LENGTH = 255
MAX_KEY_LENGTH = 1_000
MAX_AT_ONCE = 10_000
"""How many transactions one ``commit_many`` takes, and how many acks a transaction holds parts of."""
MAX_PARTS = 100_000
_TIMED_OUT = "it was not ended within its timeout"


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    producer_id: int
    epoch: int
    timeout_ms: int


@dataclass(slots=True)
class TransactionTally:
    """Counted since the broker started."""

    begun: int = 0
    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    fenced: int = 0
    duration_ns: int = 0
    """Of those that were committed."""


@dataclass(frozen=True, slots=True)
class ManyCommitted:
    """What is committed under a key. ``is_new``: by this very call."""

    key: str
    transactions: list[str]
    at_ns: int
    is_new: bool


class TransactionService:
    def __init__(
        self,
        journal: Journal[Transactions],
        config: TransactionsConfig,
        commits: CommitScheduler,
        clock: Clock,
        randomness: Randomness,
        clockwork: Clockwork,
    ) -> None:
        self._journal = journal
        self._config = config
        self._commits = commits
        self._clock = clock
        self._randomness = randomness
        self._next_id = 0
        self._open: dict[str, OpenTransaction] = {}
        self._by_producer: dict[int, OpenTransaction] = {}
        self._reasons: dict[str, str] = {}
        """Why transactions were aborted, of the last that were."""
        self._times = Alarm(clockwork, self._ring)
        self._ending: set[asyncio.Task[None]] = set()
        self.tally = TransactionTally()
        self._groups: GroupService
        self._ends: TransactionEnds

    @property
    def state(self) -> Transactions:
        return self._journal.machine

    # Life

    async def start(
        self,
        groups: GroupService,
        ends: TransactionEnds,
        topics: Iterable[Topic],
        topic_by_id: Callable[[str], Topic | None],
    ) -> None:
        """Take up where the journal ends: carry out what was decided, keep what is prepared, abort everything else."""
        self._groups, self._ends = groups, ends
        for record in list(self.state.decided.values()):
            await self._ends.carry_out(self._taken_up(record, topic_by_id, is_decided=True), is_commit=True)
        for record in self.state.prepared.values():
            transaction = self._taken_up(record, topic_by_id, is_decided=False)
            transaction.state = "prepared"
            self._add(transaction)
        unknown = ends.abort_unknown(topics, set(self._by_producer))
        groups.settling.thaw_unless({each.holder for each in self._open.values()})
        if unknown or self._open:
            log.info("transactions taken up", aborted=unknown, prepared=len(self._open))
        # Ids that may have been given before are not given again.
        self._next_id = self.state.reserved_ids
        for journal in groups.shards.journals:
            await journal.settled()

    def _taken_up(
        self, record: TransactionRecord, topic_by_id: Callable[[str], Topic | None], *, is_decided: bool
    ) -> OpenTransaction:
        transaction = OpenTransaction(
            record.transaction_id,
            record.producer_id,
            record.epoch,
            record.name,
            record.started_ns,
            record.deadline_ns,
            acks=list(record.acks),
            offsets={each.queue: each for each in record.offsets},
            messages=record.messages,
        )
        for touched in record.touched:
            topic = topic_by_id(touched.topic_id)
            if topic is None:
                continue
            partition = topic.partitions[touched.partition]
            if partition.log.end_offset < touched.end:
                log.error(
                    "a partition has lost records of a transaction that was made safe",
                    transaction=record.transaction_id,
                    topic=topic.name,
                    partition=touched.partition,
                )
            records = partition.producers.state.open_of(record.producer_id)
            if is_decided and (records is None or records.first >= touched.end):
                # Its marker is there. What is open, if anything, is the producer's next transaction.
                continue
            transaction.touched[partition] = Touch(topic, touched.partition, partition, touched.first, touched.end)
        return transaction

    async def stop(self) -> None:
        await asyncio.gather(*self._ending, return_exceptions=True)
        await self._ends.stop()

    def tidy(self) -> None:
        """Forget names and keys that nobody has used for long."""
        now_ns = self._clock.now_ns()
        config = self._config
        in_use = {each.name for each in self._open.values()}
        events = self.state.decide_forget(
            now_ns - config.id_expiry_ms * NANOS_PER_MS,
            now_ns - config.key_retention_ms * NANOS_PER_MS,
            config.max_keys,
            in_use,
        )
        self._journal.propose(events)

    # Producers

    async def init(self, name: str | None = None, timeout_ms: int | None = None) -> ProducerIdentity:
        """An id for a producer. Under a name it takes over: whoever had it is fenced, and what it left open ends."""
        timeout_ms = self._timeout(timeout_ms)
        if name is None:
            return ProducerIdentity(await self._fresh_id(), 0, timeout_ms)
        if not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
            raise InvalidRequest(
                f"transactional_id is {shown(name)}; 1 to {MAX_NAME_LENGTH} printable characters are allowed"
            )
        fresh_id = await self._fresh_id()
        now_ns = self._clock.now_ns()
        most = self._config.max_producers
        self._journal.propose(self.state.decide_name(name, fresh_id, timeout_ms, now_ns, most))
        # From here on the one before is fenced, and can begin nothing more.
        found = self.state.producer(name)
        assert found is not None
        for left in [each for each in self._open.values() if each.name == name]:
            self.tally.fenced += 1
            await self._end_what_was_left(left)
        await self._journal.settled()
        return ProducerIdentity(found.producer_id, found.epoch, timeout_ms)

    async def _end_what_was_left(self, left: OpenTransaction) -> None:
        if left.work is not None:
            await asyncio.wait([left.work])
        if left.transaction_id in self._open and left.state in ("ongoing", "prepared"):
            await self._to_the_end(left, self._abort(left, "its producer's id was taken over by another"))

    async def _fresh_id(self) -> int:
        """Ids come from a block that is reserved durably before any of it is given."""
        while self._next_id >= self.state.reserved_ids:
            self._journal.propose(self.state.decide_reserve())
            self._next_id = max(self._next_id, self.state.reserved_ids - IDS_AT_ONCE)
        self._next_id += 1
        given = self._next_id - 1
        await self._journal.settled()
        return given

    def check_producer(self, producer_id: int, epoch: int) -> None:
        """Raises for an id that nobody has, and for a producer that was fenced."""
        self.state.check_id(producer_id)
        name = self.state.name_of(producer_id)
        if name:
            known = self.state.producer(name)
            if known is not None and epoch != known.epoch:
                self.tally.fenced += epoch < known.epoch
                raise ProducerFenced(
                    f"producer {producer_id} ({name!r}) has epoch {known.epoch} by now; this is epoch {shown(epoch)}"
                )
        elif epoch:
            raise ProducerFenced(f"producer {producer_id} has epoch 0; this is epoch {shown(epoch)}")

    def heartbeat(self, producer_id: int, epoch: int) -> None:
        """A sign of life: raises if the producer is fenced. The timeout of a transaction goes on."""
        self.check_producer(producer_id, epoch)

    def _timeout(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            return min(self._config.timeout_ms, self._config.max_timeout_ms)
        if not 1 <= timeout_ms <= self._config.max_timeout_ms:
            raise InvalidRequest(
                f"timeout_ms is {shown(timeout_ms)}; 1 to {self._config.max_timeout_ms} are allowed "
                "(transactions.max_timeout_ms)"
            )
        return timeout_ms

    # Transactions

    def begin(self, producer_id: int, epoch: int, timeout_ms: int | None = None) -> OpenTransaction:
        """Open a transaction. One that has done nothing yet is the same when asked for again."""
        self.check_producer(producer_id, epoch)
        before = self._by_producer.get(producer_id)
        if before is not None:
            if before.state == "ongoing" and before.is_empty and before.epoch == epoch:
                return before
            raise TransactionConflict(
                f"producer {producer_id} has transaction {before.transaction_id} ({before.state}); it must end first"
            )
        if len(self._open) >= self._config.max_open:
            raise TooManyTransactions(
                f"{len(self._open)} transactions are open (transactions.max_open)", retry_after_s=1
            )
        name = self.state.name_of(producer_id)
        known = self.state.producer(name) if name else None
        if timeout_ms is None and known is not None:
            timeout_ms = known.timeout_ms
        now_ns = self._clock.now_ns()
        transaction = OpenTransaction(
            f"{producer_id}-{epoch}-{self._randomness.random_bytes(8).hex()}",
            producer_id,
            epoch,
            name,
            now_ns,
            now_ns + self._timeout(timeout_ms) * NANOS_PER_MS,
        )
        self.tally.begun += 1
        self._add(transaction)
        return transaction

    def _add(self, transaction: OpenTransaction) -> None:
        self._open[transaction.transaction_id] = transaction
        self._by_producer[transaction.producer_id] = transaction
        self._times.set(transaction.transaction_id, transaction.deadline_ns)

    def open_transactions(self) -> list[OpenTransaction]:
        """Those that have not ended, the oldest first."""
        return list(self._open.values())

    def find(self, transaction_id: str) -> OpenTransaction:
        """One that has not ended."""
        found = self._open.get(transaction_id)
        if found is None:
            reason = self._reasons.get(transaction_id)
            if reason is not None:
                raise TransactionAborted(f"transaction {transaction_id} was aborted: {reason}")
            if self.state.is_committed(transaction_id):
                raise TransactionConflict(f"transaction {transaction_id} is committed")
            raise TransactionNotFound(f"there is no transaction {shown(transaction_id)}")
        return found

    def ongoing(self, producer_id: int, epoch: int, transaction_id: str | None = None) -> OpenTransaction:
        """The transaction to which a producer may add something."""
        self.check_producer(producer_id, epoch)
        found = self.find(transaction_id) if transaction_id is not None else self._by_producer.get(producer_id)
        if found is None:
            raise TransactionNotFound(
                f"producer {producer_id} has no transaction open{self._last_reason(producer_id, epoch)}"
            )
        if found.producer_id != producer_id or found.epoch != epoch:
            raise TransactionConflict(f"transaction {found.transaction_id} is another producer's")
        found.check_ongoing()
        return found

    def check_owner(self, transaction_id: str, producer_id: int, epoch: int) -> None:
        """Whether a producer may say how a transaction ends, be it over already."""
        self.check_producer(producer_id, epoch)
        if not transaction_id.startswith(f"{producer_id}-{epoch}-"):
            raise TransactionConflict(f"transaction {shown(transaction_id)} is not of producer {producer_id}")

    def _last_reason(self, producer_id: int, epoch: int) -> str:
        start = f"{producer_id}-{epoch}-"
        reasons = [reason for each, reason in reversed(self._reasons.items()) if each.startswith(start)]
        return f"; its last one was aborted: {reasons[0]}" if reasons else ""

    # What a transaction does besides publishing

    async def add_acks(
        self, transaction: OpenTransaction, receipts: Sequence[str], claims: Sequence[LeaseClaim] = ()
    ) -> None:
        """Messages are done when the transaction is committed, all of them or none; until then nobody gets them."""
        transaction.check_ongoing()
        acks = self._groups.settling.freeze(receipts, claims, transaction.holder)
        transaction.acks += acks
        await self._frozen(transaction, {each.group for each in acks})

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
        await self._frozen(transaction, {group})

    async def _frozen(self, transaction: OpenTransaction, groups: set[str]) -> None:
        if sum(len(each.parts) for each in transaction.acks) > MAX_PARTS:
            await self._abort(transaction, f"it acks more than {MAX_PARTS} deliveries")
            raise TransactionAborted(
                f"transaction {transaction.transaction_id} was aborted: it acks more than {MAX_PARTS} deliveries"
            )
        for name in groups:
            await self._groups.shards.journal(name).settled()

    # Ends

    async def commit(self, transaction_id: str) -> None:
        """Everything of it is seen from now on. Asking again is answered the same."""
        if transaction_id not in self._open and self.state.is_committed(transaction_id):
            await self._journal.settled()
            return
        transaction = self.find(transaction_id)
        if transaction.state == "preparing_commit" and transaction.work is not None:
            await asyncio.shield(transaction.work)
            return
        if transaction.state not in ("ongoing", "prepared"):
            raise TransactionConflict(f"transaction {transaction_id} is {transaction.state.replace('_', ' ')}")
        was_prepared, transaction.state = transaction.state == "prepared", "preparing_commit"
        await self._to_the_end(transaction, self._commit(transaction, was_prepared=was_prepared))

    async def _commit(self, transaction: OpenTransaction, *, was_prepared: bool) -> None:
        if not transaction.is_empty:
            if not was_prepared:
                await self._make_safe(transaction)
            await self._decide([transaction], [])
        await self._committed(transaction)

    async def _make_safe(self, transaction: OpenTransaction) -> None:
        """Bring everything that it has written to the disk, whatever its topics promise otherwise."""
        try:
            self._check_topics(transaction)
            touches = transaction.touched.values()
            await asyncio.gather(*[self._commits.durable(each.partition.log, each.end) for each in touches])
            for name in {each.group for each in transaction.acks}:
                await self._groups.shards.journal(name).settled()
            # A topic may have been deleted meanwhile: then it cannot be committed whole.
            self._check_topics(transaction)
        except GoQueueError as error:
            reason = f"what it has written cannot be made safe: {error}"
            await self._abort(transaction, reason)
            raise TransactionAborted(f"transaction {transaction.transaction_id} was aborted: {reason}") from error

    def _check_topics(self, transaction: OpenTransaction) -> None:
        for each in transaction.touched.values():
            if each.topic.closed:
                raise TransactionAborted(f"topic {each.topic.name!r} was deleted")

    async def _decide(self, transactions: Sequence[OpenTransaction], more: Sequence[TransactionsEvent]) -> None:
        try:
            self._journal.propose([*more, *(Decided(each.record()) for each in transactions)])
            await self._journal.settled()
        except StorageFailed:
            # Whether it is decided is for the next start to say; until then readers wait.
            raise
        except GoQueueError as error:
            # Nothing was written.
            for each in transactions:
                each.state = "prepared" if more else "ongoing"
            raise error

    async def _committed(self, transaction: OpenTransaction) -> None:
        await self._ends.carry_out(transaction, is_commit=True)
        self.tally.committed += 1
        self.tally.duration_ns += self._clock.now_ns() - transaction.started_ns
        self._forget(transaction)

    async def abort(self, transaction_id: str, reason: str = "its producer asked for it") -> None:
        """Nothing of it is ever seen. Asking again is answered the same."""
        if transaction_id in self._reasons:
            return
        transaction = self.find(transaction_id)
        if transaction.state == "preparing_abort" and transaction.work is not None:
            await asyncio.shield(transaction.work)
            return
        if transaction.state not in ("ongoing", "prepared"):
            raise TransactionConflict(f"transaction {transaction_id} is {transaction.state.replace('_', ' ')}")
        await self._to_the_end(transaction, self._abort(transaction, reason))

    async def _abort(self, transaction: OpenTransaction, reason: str) -> None:
        was_prepared, transaction.state = transaction.state == "prepared", "preparing_abort"
        if was_prepared or transaction.transaction_id in self.state.prepared:
            self._journal.propose([Aborted(transaction.transaction_id)])
            await self._journal.settled()
        await self._ends.carry_out(transaction, is_commit=False)
        self.tally.aborted += 1
        self._reasons[transaction.transaction_id] = reason
        while len(self._reasons) > MAX_AT_ONCE:
            del self._reasons[next(iter(self._reasons))]
        self._forget(transaction)
        log.info("a transaction was aborted", transaction=transaction.transaction_id, reason=reason)

    def _forget(self, transaction: OpenTransaction) -> None:
        self._open.pop(transaction.transaction_id, None)
        if self._by_producer.get(transaction.producer_id) is transaction:
            del self._by_producer[transaction.producer_id]

    # For writers made of tasks

    async def prepare(self, transaction_id: str) -> None:
        """Make safe what a transaction has done, and leave it to someone else how it ends."""
        transaction = self.find(transaction_id)
        if transaction.state == "prepared":
            await self._journal.settled()
            return
        transaction.check_ongoing()
        transaction.state = "preparing"
        await self._to_the_end(transaction, self._prepare(transaction))

    async def _prepare(self, transaction: OpenTransaction) -> None:
        await self._make_safe(transaction)
        transaction.deadline_ns = self._clock.now_ns() + self._config.prepared_timeout_ms * NANOS_PER_MS
        self._journal.propose([Prepared(transaction.record())])
        await self._journal.settled()
        transaction.state = "prepared"
        self._times.set(transaction.transaction_id, transaction.deadline_ns)

    async def commit_many(self, key: str, transaction_ids: Sequence[str]) -> ManyCommitted:
        """Commit prepared transactions under a key, all or none. Who comes first with a key wins; what was committed
        then is the answer to everyone who comes later."""
        if not 1 <= len(key) <= MAX_KEY_LENGTH:
            raise InvalidRequest(f"the key has {len(key)} characters; 1 to {MAX_KEY_LENGTH} are allowed")
        if len(transaction_ids) > MAX_AT_ONCE or len(set(transaction_ids)) != len(transaction_ids):
            raise InvalidRequest(f"{len(transaction_ids)} transactions; up to {MAX_AT_ONCE}, each once, are allowed")
        known = await self.committed_under(key)
        if known is not None:
            return known
        transactions = [self.find(each) for each in transaction_ids]
        for each in transactions:
            if each.state != "prepared":
                raise TransactionConflict(f"transaction {each.transaction_id} is {each.state}, not prepared")
        used = UsedKey([each.transaction_id for each in transactions], self._clock.now_ns())
        for each in transactions:
            each.state = "preparing_commit"
        work = self._spawn(self._commit_many(transactions, KeyUsed(key, used)))
        for each in transactions:
            each.work = work
        await asyncio.shield(work)
        return ManyCommitted(key, list(transaction_ids), used.at_ns, is_new=True)

    async def _commit_many(self, transactions: Sequence[OpenTransaction], used: KeyUsed) -> None:
        await self._decide(transactions, [used])
        for each in transactions:
            await self._committed(each)

    async def committed_under(self, key: str) -> ManyCommitted | None:
        """What was committed under a key, if anything was."""
        known = self.state.used_key(key)
        await self._journal.settled()
        return None if known is None else ManyCommitted(key, known.transactions, known.at_ns, is_new=False)

    # Times

    def _ring(self, transaction_ids: list[str]) -> None:
        now_ns = self._clock.now_ns()
        for transaction_id in transaction_ids:
            transaction = self._open.get(transaction_id)
            if transaction is None:
                continue
            if transaction.deadline_ns > now_ns:
                self._times.set(transaction_id, transaction.deadline_ns)
            elif transaction.state in ("ongoing", "prepared"):
                self.tally.timed_out += 1
                log.warning(
                    "a transaction has timed out and is aborted",
                    transaction=transaction_id,
                    producer=transaction.name or transaction.producer_id,
                    state=transaction.state,
                )
                transaction.work = self._spawn(self._abort(transaction, _TIMED_OUT))

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _to_the_end(self, transaction: OpenTransaction, work: Coroutine[object, object, None]) -> None:
        """Carry it out whole even if the one who asked goes away: it may already be decided."""
        transaction.work = self._spawn(work)
        await asyncio.shield(transaction.work)

    def states(self) -> Mapping[str, int]:
        """How many transactions are in each state."""
        found: dict[str, int] = {}
        for each in self._open.values():
            found[each.state] = found.get(each.state, 0) + 1
        return found
