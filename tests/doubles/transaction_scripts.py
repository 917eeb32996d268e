"""Short lives of transactions on a disk that may lose power at any call; what their producers were told must hold.

A script runs once. Before every call that changes the disk, what a power loss would leave now is put aside together
with what was told so far. Afterwards a broker is started on each of these disks: every transaction is there whole or
not at all, in all of its topics and groups.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal

import goqueue.broker.transactions.completion
import goqueue.storage.log.group_commit
from doubles import coordinators
from doubles.group_ledger import settled
from doubles.group_scripts import CONFIG
from doubles.inline import InlineExecutor
from doubles.ledger import Broken
from doubles.power_loss import PowerLossDisk
from goqueue.broker.broker import Broker
from goqueue.broker.groups.membership import Join
from goqueue.broker.partitions.read import Bounds
from goqueue.broker.queues.polling import PollBounds
from goqueue.broker.transactions.open_transactions import OpenTransaction, holder_of
from goqueue.broker.transactions.producer_fencing import ProducerIdentity
from goqueue.delivery.settlement_requests import SettlementRequest, Verb
from goqueue.model.errors import TransactionAborted, TransactionNotFound, UnknownProducer
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage
from goqueue.simulation.ports import SimulatedRandomness
from goqueue.wire.decoding import decode_run

INPUT, LASTING, LOOSE = "in", "lasting", "loose"
"""Topics: what groups read, one that is durable at once, and one that is made durable now and then."""
QUEUE, STREAM = "queue", "stream"
_INPUTS = 6
_START_AGAIN = 0.2
"""How often the broker is started once more after a crash, and must tell the same."""

Script = Callable[["Stage"], Awaitable[None]]
State = Literal["open", "preparing", "prepared", "committing", "committed", "aborting", "aborted"]


@dataclass
class Unit:
    """What belongs to one transaction, and how far it is: what was asked for, or answered."""

    state: State = "open"
    written: set[tuple[str, bytes]] = field(default_factory=set)
    acked: set[bytes] = field(default_factory=set)
    offset: int = 0
    key: str = ""
    """Under which it was to be committed."""
    key_holds: bool = False
    """Whether something was committed under it."""
    for_key: str = ""
    """Which it was begun for: if others were committed under it, it is aborted."""

    def copy(self) -> Unit:
        return replace(self, written=set(self.written), acked=set(self.acked))

    def may_be(self, *, seen: bool, prepared: bool) -> bool:
        if prepared:
            return self.state in ("preparing", "prepared", "committing", "aborting") and not seen
        if seen:
            return self.state in ("committing", "committed")
        # One that is prepared stays so, and so does what was committed.
        return self.state not in ("committed", "prepared") and not (self.state == "committing" and self.key_holds)


@dataclass
class Told:
    units: dict[str, Unit] = field(default_factory=dict)
    given: dict[str, list[ProducerIdentity]] = field(default_factory=dict)
    """By transactional id; the empty one for those that have none."""
    keys: dict[str, list[str]] = field(default_factory=dict)
    by_id: dict[str, int] = field(default_factory=dict)
    """Offsets of messages that were published with a dedup id."""
    sent: set[bytes] = field(default_factory=set)
    """Their values, be they answered or not."""

    def copy(self) -> Told:
        return Told(
            {name: unit.copy() for name, unit in self.units.items()},
            {name: list(some) for name, some in self.given.items()},
            dict(self.keys),
            dict(self.by_id),
            set(self.sent),
        )


class Stage:
    def __init__(self, rng: Random, outcomes: int) -> None:
        self.rng = rng
        self.outcomes = outcomes
        self.told = Told()
        self.disk = PowerLossDisk()
        self.randomness = SimulatedRandomness(Random(7))
        self.left: list[tuple[PowerLossDisk, Told]] = []
        self.members: dict[str, str] = {}
        self._serial = 0
        self.broker: Broker

    def _put_aside(self) -> None:
        for _ in range(self.outcomes):
            self.left.append((self.disk.crash(self.rng), self.told.copy()))

    # Life

    async def start(self) -> None:
        self.broker = await started(self.disk, self.randomness)

    async def set_up(self) -> None:
        """From the end of this on the power may go."""
        await self.start()
        for name, fsync in ((INPUT, "always"), (LASTING, "always"), (LOOSE, "interval")):
            await self.broker.create_topic(name, {"fsync": fsync, "retry_backoff_ms": 0, "max_retries": 100})
        await self.broker.publish(INPUT, [NewMessage(b"input %d" % number) for number in range(_INPUTS)])
        await self.join()
        self.disk.before_call = self._put_aside

    async def join(self) -> None:
        for group, settings in ((QUEUE, {"kind": "shared"}), (STREAM, {"kind": "range", "mode": "stream"})):
            self.members[group] = (
                await self.broker.groups.membership.join(group, Join("c", [INPUT], settings))
            ).member_id

    def _begun_again(self) -> None:
        for unit in self.told.units.values():
            if unit.state == "open":
                unit.state = "aborted"

    async def restart(self) -> None:
        await self.broker.close()
        self.disk.release_locks()
        await self.start()
        self._begun_again()

    async def lose_power(self) -> None:
        """Go on with what is left."""
        before, self.disk = self.disk, self.disk.crash(self.rng)
        before.before_call = lambda: None
        abandoned = self.broker
        self.disk.before_call = self._put_aside
        # As soon as the next broker has begun, what was open is over.
        self._begun_again()
        await self.start()
        await abandoned.close()

    # Producers

    async def init(self, name: str = "") -> ProducerIdentity:
        made = await self.broker.transactions.init(name or None)
        self.told.given.setdefault(name, []).append(made)
        return made

    async def begin(self, producer: ProducerIdentity | None = None, for_key: str = "") -> OpenTransaction:
        made = producer or await self.init()
        begun = self.broker.transactions.begin(made.producer_id, made.epoch, for_key=for_key)
        self.told.units[begun.transaction_id] = Unit(for_key=for_key)
        return begun

    def unit(self, transaction: OpenTransaction) -> Unit:
        return self.told.units[transaction.transaction_id]

    async def publish(self, transaction: OpenTransaction, *topics: str, **options: object) -> None:
        for topic in topics:
            self._serial += 1
            value = b"output %d" % self._serial
            self.unit(transaction).written.add((topic, value))
            [outcome] = await self.broker.publish(topic, [NewMessage(value, **options)], transaction)  # type: ignore[arg-type]
            assert isinstance(outcome, Published), outcome

    async def ack(self, transaction: OpenTransaction, count: int) -> None:
        found = await self.broker.groups.polling.poll(QUEUE, self.members[QUEUE], PollBounds(count, 1 << 20))
        got = [(each, message) for each in found for message in decode_run(each.run)[0]]
        assert len(got) == count
        self.unit(transaction).acked |= {message.value for _, message in got}
        receipts = [each.receipt(message.offset) or "" for each, message in got]
        await self.broker.transactions.add_acks(transaction, receipts)

    async def go_on_at(self, transaction: OpenTransaction, offset: int) -> None:
        self.unit(transaction).offset = offset
        generation = self.broker.groups.shards.find(STREAM).group.state.generation
        offsets = {INPUT: {0: offset}}
        await self.broker.transactions.add_offsets(transaction, STREAM, self.members[STREAM], offsets, generation)

    async def commit(self, transaction: OpenTransaction) -> None:
        await self._do(transaction, "committing", self.broker.transactions.commit, "committed")

    async def abort(self, transaction: OpenTransaction) -> None:
        await self._do(transaction, "aborting", self.broker.transactions.abort, "aborted")

    async def prepare(self, transaction: OpenTransaction) -> None:
        await self._do(transaction, "preparing", self.broker.transactions.prepare, "prepared")

    async def _do(
        self, transaction: OpenTransaction, asked: State, work: Callable[[str], Awaitable[None]], answered: State
    ) -> None:
        self.unit(transaction).state = asked
        await work(transaction.transaction_id)
        self.unit(transaction).state = answered

    async def commit_many(self, key: str, *transactions: OpenTransaction) -> None:
        for each in transactions:
            self.unit(each).state, self.unit(each).key = "committing", key
        names = [each.transaction_id for each in transactions]
        for name, unit in self.told.units.items():
            if unit.for_key == key and name not in names:
                unit.state = "aborting"
        made = await self.broker.transactions.keys.commit_many(key, names)
        assert made.is_new
        self.told.keys[key] = names
        for each in transactions:
            self.unit(each).state = "committed"

    async def until_ended(self, *transactions: OpenTransaction) -> None:
        """Nobody asks for it: others were committed under their key."""
        for each in transactions:
            await _until_ended(self.broker, each.transaction_id)
            self.unit(each).state = "aborted"

    async def publish_once(self, dedup_id: str) -> None:
        self.told.sent.add(dedup_id.encode())
        [outcome] = await self.broker.publish(LASTING, [NewMessage(dedup_id.encode(), dedup_id=dedup_id)])
        assert isinstance(outcome, Published), outcome
        if self.told.by_id.setdefault(dedup_id, outcome.offset) != outcome.offset:
            raise Broken(f"{dedup_id} has two places")

    async def look_up(self, key: str) -> None:
        """Someone else asks for a key, at any time."""
        for _ in range(6):
            known = await self.broker.transactions.keys.committed_under(key)
            if known is not None:
                self.told.keys[key] = known.transactions
                return
            await asyncio.sleep(0)


async def _until_ended(broker: Broker, name: str) -> None:
    for _ in range(1_000):
        if name not in {each.transaction_id for each in broker.transactions.coordinators.all_open()}:
            return
        await asyncio.sleep(0)
    raise Broken(f"{name} does not end")


async def started(disk: PowerLossDisk, randomness: SimulatedRandomness | None = None) -> Broker:
    """With ``randomness`` ids are the same in each run: the shards of topics follow from them."""
    broker = Broker(CONFIG, files=disk, randomness=randomness)
    await broker.start()
    return broker


# Scripts


async def read_process_write(stage: Stage) -> None:
    first, second = await stage.begin(), await stage.begin()
    await stage.publish(first, LASTING, LOOSE)
    await stage.ack(first, 2)
    await stage.go_on_at(first, 2)
    await stage.publish(second, LOOSE, LASTING)
    await stage.ack(second, 1)
    await stage.commit(first)
    await stage.publish(second, LASTING)
    await stage.abort(second)
    third = await stage.begin()
    await stage.publish(third, LOOSE)
    await stage.ack(third, 2)
    await stage.go_on_at(third, 5)
    await stage.commit(third)


async def one_after_the_other(stage: Stage) -> None:
    producer = await stage.init("name")
    for end in (stage.commit, stage.abort, stage.commit):
        transaction = await stage.begin(producer)
        await stage.publish(transaction, LASTING, LOOSE)
        await stage.ack(transaction, 1)
        await end(transaction)


async def take_over(stage: Stage) -> None:
    for turn in range(3):
        producer = await stage.init("name")
        transaction = await stage.begin(producer)
        await stage.publish(transaction, LOOSE, LASTING)
        await stage.ack(transaction, 1)
        if turn == 1:
            await stage.prepare(transaction)
        stage.unit(transaction).state = "aborting"
    await stage.init("name")
    await stage.init("other")
    await stage.init()


async def tasks_of_a_job(stage: Stage) -> None:
    tasks = [await stage.begin() for _ in range(3)]
    for each, topics in zip(tasks, ((LASTING, LOOSE), (LOOSE,), (LASTING,)), strict=True):
        await stage.publish(each, *topics)
    await stage.ack(tasks[0], 2)
    await stage.go_on_at(tasks[1], 3)
    for each in tasks:
        await stage.prepare(each)
    await asyncio.gather(stage.commit_many("job 1", tasks[0], tasks[1]), stage.look_up("job 1"))
    await stage.abort(tasks[2])
    last = await stage.begin()
    await stage.publish(last, LOOSE)
    await stage.prepare(last)
    await stage.commit(last)


async def second_run_of_a_job(stage: Stage) -> None:
    killed, slow, first, second = [await stage.begin(for_key="job 2") for _ in range(4)]
    for each, topics in zip(
        (killed, slow, first, second), ((LOOSE,), (LOOSE, LASTING), (LOOSE,), (LASTING,)), strict=True
    ):
        await stage.publish(each, *topics)
    await stage.ack(slow, 2)
    await stage.ack(second, 1)
    await asyncio.gather(*[stage.prepare(each) for each in (slow, first, second)])
    await stage.commit_many("job 2", first, second)
    await stage.until_ended(killed, slow)
    # What is written next is not held up.
    last = await stage.begin()
    await stage.publish(last, LOOSE)
    await stage.commit(last)


async def stop_in_between(stage: Stage) -> None:
    producer = await stage.init("name")
    first, kept, left = await stage.begin(producer), await stage.begin(), await stage.begin()
    for each in (first, kept, left):
        await stage.publish(each, LASTING, LOOSE)
        await stage.ack(each, 1)
    await stage.prepare(kept)
    await stage.commit(first)
    await stage.restart()
    second = await stage.begin(producer)
    await stage.publish(second, LOOSE)
    await stage.commit(second)
    await stage.commit(kept)
    await stage.restart()
    await stage.init("name")


async def lose_power_twice(stage: Stage) -> None:
    producer = await stage.init("name")
    for _ in range(2):
        transaction = await stage.begin(producer)
        await stage.publish(transaction, LASTING, LOOSE)
        await stage.ack(transaction, 1)
        await stage.commit(transaction)
        left = await stage.begin(producer)
        await stage.publish(left, LASTING, LOOSE)
        await stage.ack(left, 1)
        await stage.lose_power()
        await stage.join()


async def at_once(stage: Stage) -> None:
    transactions = [await stage.begin() for _ in range(4)]
    for each in transactions:
        await stage.publish(each, LOOSE, LASTING)
    ends = (stage.commit, stage.abort, stage.commit, stage.prepare)
    await asyncio.gather(*[end(each) for end, each in zip(ends, transactions, strict=True)])


async def ids_of_many_lives(stage: Stage) -> None:
    for _ in range(2):
        await asyncio.gather(*[stage.init() for _ in range(3)])
        await stage.lose_power()
        await stage.init("name")
        await stage.restart()


async def known_by_an_id(stage: Stage) -> None:
    await asyncio.gather(stage.publish_once("a"), stage.publish_once("a"))
    await stage.publish_once("b")
    await stage.lose_power()
    await asyncio.gather(stage.publish_once("a"), stage.publish_once("c"), stage.publish_once("c"))


SCRIPTS: tuple[Script, ...] = (
    known_by_an_id,
    ids_of_many_lives,
    tasks_of_a_job,
    take_over,
    read_process_write,
    one_after_the_other,
    at_once,
    stop_in_between,
    lose_power_twice,
    second_run_of_a_job,
)


def run_transaction_script(script: Script, seed: int, *, outcomes: int = 1, every: int = 1) -> int:
    """Raises ``Broken`` if a crash at some call can break a promise. Returns how many crashes were tried.

    ``every``: of so many calls, only one is looked at; which one depends on the seed.
    """
    before = goqueue.storage.log.group_commit.ThreadPoolExecutor, goqueue.broker.transactions.completion._GATHERING_S
    goqueue.storage.log.group_commit.ThreadPoolExecutor = lambda *_, **__: InlineExecutor()  # type: ignore[assignment,misc]
    goqueue.broker.transactions.completion._GATHERING_S = 0.0
    try:
        stage = Stage(Random(seed), outcomes)
        try:
            asyncio.run(_play(stage, script))
        except Broken as error:
            raise Broken(f"{script.__name__} with seed {seed}: {error}") from error
        chosen = range(seed % every, len(stage.left), every)
        for place in chosen:
            disk, told = stage.left[place]
            try:
                asyncio.run(_check(disk, told, Random(seed + place)))
            except Exception as error:
                raise Broken(f"{script.__name__} with seed {seed}, crash {place}: {error!r}") from error
        return len(chosen)
    finally:
        goqueue.storage.log.group_commit.ThreadPoolExecutor, goqueue.broker.transactions.completion._GATHERING_S = (
            before  # type: ignore[misc]
        )


async def _play(stage: Stage, script: Script) -> None:
    await stage.set_up()
    await script(stage)
    await stage.broker.close()


# Checking


async def _check(disk: PowerLossDisk, told: Told, rng: Random) -> None:
    broker = await started(disk)
    try:
        if broker.damage():
            raise Broken(f"a power loss looks like damage: {broker.damage()}")
        await _check_keys(broker, told)
        await _check_producers(broker, told)
        ends = await _check_transactions(broker, told, rng)
        await _check_ids(broker, told)
        await _check_done(broker, told, ends)
        await _goes_on(broker)
    finally:
        await broker.close()
    if rng.random() < _START_AGAIN:
        await _check_again(disk, told, ends)


async def _check_again(disk: PowerLossDisk, told: Told, ends: dict[str, bool]) -> None:
    disk.release_locks()
    broker = await started(disk)
    try:
        # The same again: what was seen stays, and what was not does not come.
        seen = await _seen(broker)
        for name, is_seen in ends.items():
            _whole(name, told.units[name], seen)
            if told.units[name].written and is_seen != (told.units[name].written <= seen.keys()):
                raise Broken(f"{name} was {'' if is_seen else 'not '}seen, and is so no more after another start")
    finally:
        await broker.close()


async def _seen(broker: Broker) -> Counter[tuple[str, bytes]]:
    found: Counter[tuple[str, bytes]] = Counter()
    for topic in (LASTING, LOOSE):
        read = await broker.read(topic, 0, Bounds(1 << 24), offset=0)
        found.update((topic, message.value) for message in read.messages)
    if twice := [each for each, times in found.items() if times > 1]:
        raise Broken(f"seen twice: {twice}")
    return found


def _whole(name: str, unit: Unit, seen: Counter[tuple[str, bytes]]) -> bool:
    """Whether a transaction's records are seen: all, or none."""
    there = unit.written & seen.keys()
    if there and there != unit.written:
        raise Broken(f"{name} is torn: {sorted(there)} of {sorted(unit.written)}")
    return bool(there)


async def _check_keys(broker: Broker, told: Told) -> None:
    for key, names in told.keys.items():
        known = await broker.transactions.keys.committed_under(key)
        if known is None or known.transactions != names:
            raise Broken(f"{key} was told to stand for {names}, and stands for {known}")
    for name, unit in told.units.items():
        if unit.key:
            known = await broker.transactions.keys.committed_under(unit.key)
            unit.key_holds = known is not None
            if known is not None and name not in known.transactions:
                raise Broken(f"{name} is not among {known.transactions}")
        if unit.for_key:
            known = await broker.transactions.keys.committed_under(unit.for_key)
            if known is not None and name not in known.transactions:
                await _until_ended(broker, name)


async def _check_ids(broker: Broker, told: Told) -> None:
    for dedup_id, offset in told.by_id.items():
        [again] = await broker.publish(LASTING, [NewMessage(dedup_id.encode(), dedup_id=dedup_id)])
        if not isinstance(again, Published) or again.offset != offset or not again.is_duplicate:
            raise Broken(f"{dedup_id} was told to be at {offset}, and is {again}")
    await _seen(broker)


async def _check_producers(broker: Broker, told: Told) -> None:
    known = {each.producer_id: each for some in told.given.values() for each in some}
    fresh = await broker.transactions.init()
    if fresh.producer_id in known:
        raise Broken(f"producer id {fresh.producer_id} was given twice")
    for each in told.given.get("", []):
        try:
            broker.transactions.producers.check(each.producer_id, each.epoch)
        except UnknownProducer as error:
            raise Broken(f"an id that was given is not known: {error}") from None
    for name, some in told.given.items():
        if name:
            last = some[-1]
            broker.transactions.producers.check(last.producer_id, _epoch_of(broker, name))
            if _epoch_of(broker, name) < last.epoch:
                raise Broken(f"epoch {last.epoch} of {name!r} was told of, and is given again")


def _epoch_of(broker: Broker, name: str) -> int:
    found = coordinators.named(broker, name)
    return -1 if found is None else found.epoch


async def _check_transactions(broker: Broker, told: Told, rng: Random) -> dict[str, bool]:
    """How each of them ended. Those that are prepared are ended here, one way or the other."""
    seen = await _seen(broker)
    prepared = {each.transaction_id for each in broker.transactions.coordinators.all_open()}
    if unknown := prepared - told.units.keys():
        raise Broken(f"transactions that nobody began: {unknown}")
    # What lies behind an open transaction is not seen, whatever it is.
    for name in sorted(prepared):
        _check_frozen(broker, name, told.units[name])
        if told.units[name].written & seen.keys():
            raise Broken(f"{name} is prepared, and some of it is seen")
        if not told.units[name].may_be(seen=False, prepared=True):
            raise Broken(f"{name} is prepared, and was {told.units[name].state}")
    for name in sorted(prepared):
        is_commit = rng.random() < 0.5
        await (broker.transactions.commit if is_commit else broker.transactions.abort)(name)
    ends: dict[str, bool] = {}
    seen = await _seen(broker)
    for name, unit in told.units.items():
        is_seen = _whole(name, unit, seen)
        if name not in prepared and unit.written and not unit.may_be(seen=is_seen, prepared=False):
            raise Broken(f"{name} was {unit.state}, and is {'' if is_seen else 'not '}seen")
        ends[name] = is_seen
        try:
            await broker.transactions.commit(name)
            is_committed = True
        except (TransactionNotFound, TransactionAborted):
            is_committed = False
        if is_committed != is_seen:
            raise Broken(f"{name} is {'' if is_seen else 'not '}seen, and said to be the opposite")
    written = {each for unit in told.units.values() for each in unit.written} | {(LASTING, each) for each in told.sent}
    if made_up := seen.keys() - written:
        raise Broken(f"nobody has written {made_up}")
    return ends


def _check_frozen(broker: Broker, name: str, unit: Unit) -> None:
    """Whether a transaction that is prepared still holds what was acked in it."""
    queues = broker.groups.shards.find(QUEUE).queues()
    held = sum(queue.leases.in_hand(holder_of(name)) for queue in queues)
    if held != len(unit.acked):
        raise Broken(f"{name} is prepared with {len(unit.acked)} acks, and holds {held} messages")


async def _check_done(broker: Broker, told: Told, ends: dict[str, bool]) -> None:
    """Acks and offsets count if and only if their transaction was committed."""
    await settled(broker)
    done = {value for name, is_seen in ends.items() if is_seen for value in told.units[name].acked}
    offset = max([0, *(told.units[name].offset for name, is_seen in ends.items() if is_seen)])
    [stream] = broker.groups.offsets.lag(STREAM)
    if stream.committed != offset:
        raise Broken(f"the stream is at {stream.committed}, and was moved to {offset}")
    joined = await broker.groups.membership.join(QUEUE, Join("after", [INPUT], {"kind": "shared"}))
    for member in list(broker.groups.shards.find(QUEUE).group.state.members):
        if member != joined.member_id:
            await broker.groups.membership.leave(QUEUE, member)
    found: list[bytes] = []
    while got := await broker.groups.polling.poll(QUEUE, joined.member_id, PollBounds(100, 1 << 20)):
        for each in got:
            messages = decode_run(each.run)[0]
            found += [message.value for message in messages]
            receipts = [each.receipt(message.offset) or "" for message in messages]
            await broker.groups.settling.settle_receipts(receipts, SettlementRequest(Verb.ACK))
    expected = {b"input %d" % number for number in range(_INPUTS)} - done
    if sorted(found) != sorted(expected):
        raise Broken(f"of the group's messages {sorted(found)} are left, and should be {sorted(expected)}")


async def _goes_on(broker: Broker) -> None:
    made = await broker.transactions.init("after")
    begun = broker.transactions.begin(made.producer_id, made.epoch)
    for topic in (LASTING, LOOSE):
        [outcome] = await broker.publish(topic, [NewMessage(b"after")], begun)
        if not isinstance(outcome, Published):
            raise Broken(f"nothing can be published afterwards: {outcome!r}")
    await broker.transactions.commit(begun.transaction_id)
    if not {(LASTING, b"after"), (LOOSE, b"after")} <= (await _seen(broker)).keys():
        raise Broken("what is committed afterwards is not seen")
