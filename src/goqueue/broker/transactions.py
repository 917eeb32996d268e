"""Producers with ids, and transactions over any number of partitions and groups.

What a transaction does before it is prepared or committed is written to the partitions' logs and nowhere else: a start
aborts everything that the journal does not know. A commit makes the records durable, then its decision, and only then
do readers see them.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from goqueue.broker.alarm import Alarm
from goqueue.broker.clockwork import Clockwork
from goqueue.broker.dead_letter_topics import MAX_REASON_LENGTH
from goqueue.broker.groups import GroupService, Offsets
from goqueue.broker.journal import Journal
from goqueue.broker.open_transaction import OpenTransaction, State, Touch
from goqueue.broker.open_transactions import OpenTransactions
from goqueue.broker.orders import LeaseClaim
from goqueue.broker.pacing import Stretch
from goqueue.broker.producer_ids import ProducerIdentity, ProducerIds
from goqueue.broker.topic import Topic
from goqueue.broker.transaction_ends import TransactionEnds
from goqueue.coordination.transactions import (
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
)
from goqueue.model.fields import shown
from goqueue.model.logging import get_logger
from goqueue.model.ports import NANOS_PER_MS, NANOS_PER_SECOND, Clock, Randomness
from goqueue.storage.commit import CommitScheduler

log = get_logger(__name__)

MAX_KEY_LENGTH = 1_000
MAX_AT_ONCE = 10_000
"""How many transactions one ``commit_many`` takes, and how many acks a transaction holds parts of."""
MAX_PARTS = 100_000
_ID = re.compile(r"\d{1,19}-\d{1,5}-[0-9a-f]{16}", re.ASCII)
_ASKED = "its producer asked for it"
_TIMED_OUT = "it was not ended within its timeout"
_TAKEN_OVER = "its producer's id was taken over by another"
OPERATOR_ASKED = "an operator asked for it"
_WANTED = (OPERATOR_ASKED, _TAKEN_OVER)
"""How the reasons begin that somebody else had for an abort; all others are failures."""
_TRY_AGAIN_NS = NANOS_PER_SECOND
_MOST_NAMED = 5
"""How many transactions one line of the log names."""


class Known(NamedTuple):
    """What a producer that has begun a transaction itself was told of it: in which life of the broker all of it was
    done, and how many messages it has."""

    incarnation: int
    messages: int


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
        self._ids = ProducerIds(journal, config, clock)
        self.incarnation = int.from_bytes(randomness.random_bytes(8)) >> 1 | 1
        """Another one after every start; never 0."""
        self._open = OpenTransactions(lambda each: self.state.is_committed(each))
        self._keys_under_way: dict[str, asyncio.Task[None]] = {}
        self._times = Alarm(clockwork, self._ring)
        self._ending: set[asyncio.Task[None]] = set()
        self.tally = TransactionTally()
        self.on_committed: Callable[[int], None] = _ignore
        """Told how many nanoseconds each took that was committed, from its begin."""
        self._groups: GroupService
        self._ends: TransactionEnds

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
        ends: TransactionEnds,
        topics: Iterable[Topic],
        topic_by_id: Callable[[str], Topic | None],
    ) -> None:
        """Take up where the journal ends: carry out what was decided, keep what is prepared, abort everything else."""
        self._groups, self._ends = groups, ends
        # All of them are looked at before anything is written.
        decided = [self._taken_up(each, topic_by_id, is_decided=True) for each in self.state.decided.values()]
        for transaction, marked in decided:
            await ends.carry_out(transaction, is_commit=True, marked=marked)
        for record in self.state.prepared.values():
            transaction, _ = self._taken_up(record, topic_by_id, is_decided=False)
            transaction.state = "prepared"
            self._add(transaction)
            for offset in transaction.offsets.values():
                groups.settling.expect(offset, transaction.holder)
        kept = {(partition, each.producer_id) for each in self._open.all() for partition in each.touched}
        unknown = ends.abort_unknown(topics, kept)
        ends.thaw_others(lambda: {each.holder for each in self._open.all()})
        if unknown or self._open:
            log.info(
                "transactions taken up",
                aborted=len(unknown),
                aborted_of=[self.state.name_of(each) or each for each in sorted(unknown)[:_MOST_NAMED]],
                prepared=len(self._open),
                prepared_ids=[each.transaction_id for each in self._open.all()[:_MOST_NAMED]],
            )
        self._ids.start()

    def _taken_up(
        self, record: TransactionRecord, topic_by_id: Callable[[str], Topic | None], *, is_decided: bool
    ) -> tuple[OpenTransaction, list[Touch]]:
        """A transaction as the journal knows it, and where it has its marker already."""
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
        marked: list[Touch] = []
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
            touch = Touch(topic, touched.partition, partition, touched.first, touched.end)
            records = partition.producers.state.open_of(record.producer_id)
            if is_decided and (records is None or records.first >= touched.end):
                # What is open there, if anything, is the producer's next transaction.
                marked.append(touch)
            else:
                transaction.touched[partition] = touch
                if is_decided:
                    self._ends.cut_off(touch, record.producer_id)
        return transaction, marked

    async def stop(self) -> None:
        await asyncio.gather(*self._ending, return_exceptions=True)
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
            await self._end_what_was_left(left)
        await self._journal.settled()
        return ProducerIdentity(found.producer_id, found.epoch, timeout_ms)

    async def _end_what_was_left(self, left: OpenTransaction) -> None:
        """Returns when it has ended; or cannot before a restart, which is for the journal to tell."""
        while left.transaction_id in self._open:
            if left.can_end:
                await asyncio.shield(self._begin_abort(left, _TAKEN_OVER))
            elif left.work is not None and not left.work.done():
                await asyncio.wait([left.work])
            else:
                return

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

    def begin(self, producer_id: int, epoch: int, timeout_ms: int | None = None) -> OpenTransaction:
        """Open a transaction. One that has done nothing yet is the same when asked for again."""
        self.check_producer(producer_id, epoch)
        if timeout_ms is not None:
            self._ids.timeout(timeout_ms)
        before = self._open.of(producer_id)
        if before is not None and before.state == "ongoing" and before.is_empty and before.epoch == epoch:
            before.deadline_ns = self._clock.now_ns() + before.deadline_ns - before.started_ns
            before.started_ns = self._clock.now_ns()
            return before
        return self._begin(f"{producer_id}-{epoch}-{self._randomness.random_bytes(8).hex()}", producer_id, timeout_ms)

    def joined(
        self, transaction_id: str, producer_id: int, epoch: int, begin_timeout_ms: int | None = None
    ) -> OpenTransaction:
        """The transaction to which a producer wants to add something. With ``begin_timeout_ms`` (0: as init said) it is
        begun if it is not known, so that nobody has to ask before."""
        if begin_timeout_ms is None or self._open.is_known(transaction_id):
            return self.ongoing(producer_id, epoch, transaction_id)
        self.check_owner(transaction_id, producer_id, epoch)
        return self._begin(transaction_id, producer_id, begin_timeout_ms or None)

    def _begin(self, transaction_id: str, producer_id: int, timeout_ms: int | None) -> OpenTransaction:
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
        )
        self.tally.begun += 1
        self._add(transaction)
        return transaction

    def _add(self, transaction: OpenTransaction) -> None:
        self._open.add(transaction)
        self._times.set(transaction.transaction_id, transaction.deadline_ns)

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
            self._groups.settling.freeze(receipts, claims, transaction.holder, transaction.acks)
        except GoQueueError as error:
            if len(transaction.acks) > before:
                await self._give_up(transaction, f"it could not ack all of what it was asked to: {error}")
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
            await self._give_up(transaction, f"it acks more than {MAX_PARTS} deliveries")

    async def _give_up(self, transaction: OpenTransaction, reason: str) -> NoReturn:
        await asyncio.shield(self._begin_abort(transaction, reason))
        raise TransactionAborted(f"transaction {transaction.transaction_id} was aborted: {reason}")

    # Ends

    async def _check_whole(self, transaction: OpenTransaction, knows: Known | None) -> None:
        """A start aborts what is open. What comes after it may have begun the transaction anew, without the rest."""
        if knows is None or transaction.state != "ongoing":
            return
        if knows != Known(self.incarnation, transaction.messages):
            await self._give_up(transaction, "the broker was started again while it was open")

    async def commit(self, transaction_id: str, knows: Known | None = None) -> None:
        """Everything of it is seen from now on. Asking again is answered the same."""
        if transaction_id not in self._open and self._open.is_committed(transaction_id):
            # Durably: it is open until then.
            return
        transaction = self.find(transaction_id)
        await self._check_whole(transaction, knows)
        if transaction.state != "preparing_commit" or transaction.work is None:
            if not transaction.can_end:
                raise TransactionConflict(f"transaction {transaction_id} is {transaction.state.replace('_', ' ')}")
            before, transaction.state = transaction.state, "preparing_commit"
            transaction.work = self._spawn(self._commit(transaction, before))
        # To the end even if the one who asked goes away: it may already be decided.
        await asyncio.shield(transaction.work)

    async def _commit(self, transaction: OpenTransaction, before: State) -> None:
        if transaction.is_empty and before != "prepared":
            self._open.note_empty(transaction)
        else:
            if before != "prepared":
                await self._make_safe(transaction)
            await self._decide([transaction], [], before)
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
            before, transaction.state = transaction.state, "preparing_abort"
            await self._abort(transaction, reason, before)
            raise TransactionAborted(f"transaction {transaction.transaction_id} was aborted: {reason}") from error

    def _check_topics(self, transaction: OpenTransaction) -> None:
        for each in transaction.touched.values():
            if each.topic.closed:
                raise TransactionAborted(f"topic {each.topic.name!r} was deleted")

    async def _decide(
        self, transactions: Sequence[OpenTransaction], more: Sequence[TransactionsEvent], before: State
    ) -> None:
        try:
            self._journal.propose([*more, *(Decided(each.record()) for each in transactions)])
        except StorageFailed:
            # Whether it is decided is for the next start to say; until then readers wait.
            raise
        except GoQueueError:
            # Nothing was written: it may be tried again.
            for each in transactions:
                self._go_back(each, before)
            raise
        await self._journal.settled()

    def _go_back(self, transaction: OpenTransaction, before: State) -> None:
        """What was begun cannot be done now, and has changed nothing."""
        transaction.state, transaction.work = before, None
        # Its time may have come meanwhile, and nobody have seen to it.
        at_ns = max(transaction.deadline_ns, self._clock.now_ns() + _TRY_AGAIN_NS)
        self._times.set(transaction.transaction_id, at_ns)

    async def _committed(self, transaction: OpenTransaction) -> None:
        await self._ends.carry_out(transaction, is_commit=True)
        self.tally.committed += 1
        took_ns = self._clock.now_ns() - transaction.started_ns
        self.tally.duration_ns += took_ns
        self.on_committed(took_ns)
        self._open.forget(transaction)

    async def abort(self, transaction_id: str, reason: str = _ASKED) -> None:
        """Nothing of it is ever seen. Asking again is answered the same."""
        while transaction_id not in self._open.reasons:
            transaction = self.find(transaction_id)
            work = transaction.work
            if transaction.can_end:
                await asyncio.shield(self._begin_abort(transaction, reason))
            elif transaction.state != "preparing_commit" and work is not None and not work.done():
                await asyncio.wait([work])
            elif transaction.state == "preparing_abort" and work is not None:
                # That has failed, and will be tried again by the next start.
                await asyncio.shield(work)
            else:
                raise TransactionConflict(f"transaction {transaction_id} is {transaction.state.replace('_', ' ')}")

    async def abort_own(self, transaction_id: str, producer_id: int, epoch: int, why: str = "") -> None:
        """The same for its producer, whose batches may come behind this: then they must not begin it."""
        self.check_owner(transaction_id, producer_id, epoch)
        if len(why) > MAX_REASON_LENGTH:
            raise InvalidRequest(f"the reason has {len(why)} characters; {MAX_REASON_LENGTH} are allowed")
        reason = f"{_ASKED}: {why}" if why else _ASKED
        if not self._open.is_known(transaction_id):
            self._open.note_aborted(transaction_id, reason)
        await self.abort(transaction_id, reason)

    def _begin_abort(self, transaction: OpenTransaction, reason: str) -> asyncio.Task[None]:
        """From this very step on nothing else can be done with it."""
        before, transaction.state = transaction.state, "preparing_abort"
        transaction.work = self._spawn(self._abort(transaction, reason, before))
        return transaction.work

    async def _abort(self, transaction: OpenTransaction, reason: str, before: State) -> None:
        if transaction.transaction_id in self.state.prepared:
            try:
                self._journal.propose([Aborted(transaction.transaction_id)])
            except StorageFailed:
                raise
            except GoQueueError:
                self._go_back(transaction, "prepared")
                raise
            await self._journal.settled()
        # What its producer gave up is like what a consumer nacks: it may not work any better at once.
        given_up = reason.startswith(_ASKED)
        await self._ends.carry_out(transaction, is_commit=False, reason=reason, backs_off=given_up)
        self.tally.aborted += 1
        self._open.forget(transaction, reason)
        # What its producer wanted is nobody else's concern.
        tell = log.debug if reason.startswith(_ASKED) else log.info if reason.startswith(_WANTED) else log.warning
        tell(
            "a transaction was aborted",
            transaction=transaction.transaction_id,
            transactional_id=transaction.name,
            state=before.replace("_", " "),
            reason=reason,
        )

    # For writers made of tasks

    async def prepare(self, transaction_id: str, knows: Known | None = None) -> None:
        """Make safe what a transaction has done, and leave it to someone else how it ends."""
        transaction = self.find(transaction_id)
        await self._check_whole(transaction, knows)
        if transaction.state == "prepared":
            return
        if transaction.state != "preparing" or transaction.work is None:
            transaction.check_ongoing()
            transaction.state = "preparing"
            transaction.work = self._spawn(self._prepare(transaction))
        await asyncio.shield(transaction.work)

    async def _prepare(self, transaction: OpenTransaction) -> None:
        await self._make_safe(transaction)
        before_ns = transaction.deadline_ns
        transaction.deadline_ns = self._clock.now_ns() + self._config.prepared_timeout_ms * NANOS_PER_MS
        try:
            self._journal.propose([Prepared(transaction.record())])
        except StorageFailed:
            # Whether it is prepared is for the next start to say.
            raise
        except GoQueueError:
            transaction.deadline_ns = before_ns
            self._go_back(transaction, "ongoing")
            raise
        await self._journal.settled()
        transaction.state = "prepared"
        self._times.set(transaction.transaction_id, transaction.deadline_ns)

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
        while (before := self._keys_under_way.get(key)) is not None:
            await asyncio.wait([before])
        if self.state.used_key(key) is not None:
            known = await self.committed_under(key)
            assert known is not None
            return known
        # Until the key is taken there is no await from here on: two who come at once must not both be the first.
        transactions = [self.find(each) for each in transaction_ids]
        for each in transactions:
            if each.state != "prepared":
                raise TransactionConflict(f"transaction {each.transaction_id} is {each.state}, not prepared")
        used = UsedKey([each.transaction_id for each in transactions], self._clock.now_ns())
        for each in transactions:
            each.state = "preparing_commit"
        work = self._keys_under_way[key] = self._spawn(self._commit_many(transactions, KeyUsed(key, used)))
        work.add_done_callback(lambda _: self._keys_under_way.pop(key))
        for each in transactions:
            each.work = work
        await asyncio.shield(work)
        return ManyCommitted(key, list(transaction_ids), used.at_ns, is_new=True)

    async def _commit_many(self, transactions: Sequence[OpenTransaction], used: KeyUsed) -> None:
        await self._decide(transactions, [used], "prepared")
        stretch = Stretch()
        for each in transactions:
            await self._committed(each)
            if stretch.is_over:
                await stretch.rest()

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
            elif transaction.can_end:
                self.tally.timed_out += 1
                self._begin_abort(transaction, _TIMED_OUT)

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        # Whoever asked for it is told as well, if anyone did. That it was aborted instead is in the log already.
        if not isinstance(error, TransactionAborted):
            log.warning("a transaction could not be prepared or ended", error=str(error))


def _ignore(took_ns: int) -> None:
    """Nobody measures."""
