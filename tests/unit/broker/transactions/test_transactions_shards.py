"""A transaction is coordinated in the shard that its producer's id tells; shards are let go and led again meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest
from doubles.async_tests import until
from doubles.loop import on_a_loop
from doubles.power_loss import PowerLossDisk
from doubles.transaction_bench import OTHER, Bench, bench

from goqueue.broker.operations import IN_PROCESS
from goqueue.broker.runtime.shard_placement import SHARD_NUMBERS, shard_of_transactional_id
from goqueue.broker.shards.shard import Shard
from goqueue.broker.transactions.commit_abort import Known
from goqueue.broker.transactions.coordinator_journal import CoordinatorJournal
from goqueue.broker.transactions.open_transactions import OpenTransaction
from goqueue.broker.transactions.producer_fencing import ProducerIdentity
from goqueue.coordination.transaction_records import TransactionsEvent
from goqueue.model.errors import DiskFull, NotLeader, ProducerFenced, TransactionAborted, TransactionNotFound


def shard_of(it: Bench, producer: ProducerIdentity | OpenTransaction) -> Shard:
    number = it.transactions.coordinators.ids.shard_of(producer.producer_id)
    return it.broker.groups.shards.map.by_number[number]


def names(shard: int) -> list[str]:
    """Of transactional ids, some that are in a shard."""
    return [name for number in range(300) if shard_of_transactional_id(name := f"app {number}") == shard]


@on_a_loop
async def test_the_id_of_a_producer_tells_the_shard_of_its_name_and_others_take_turns() -> None:
    async with bench() as it:
        for name in ("a", "b", "c", "billing"):
            assert shard_of(it, await it.transactions.init(name)).number == shard_of_transactional_id(name)
        without = {shard_of(it, await it.transactions.init()).number for _ in SHARD_NUMBERS}
        assert without == set(SHARD_NUMBERS)


@on_a_loop
async def test_while_a_shard_is_let_go_its_transactions_are_refused_and_others_go_on() -> None:
    async with bench() as it:
        [name, other_name, *_], [elsewhere, *_] = names(3), names(4)
        made = await it.transactions.init(name)
        open_one = it.begin_as(made)
        await it.publish(open_one, b"open")
        other = await it.begin(elsewhere)
        await it.publish(other, b"other", topic=OTHER)
        await it.broker.leadership.let_go(shard_of(it, made))
        asked = open_one.transaction_id
        for work in (
            it.transactions.commit(asked),
            it.transactions.prepare(asked),
            it.transactions.abort(asked),
            it.publish(open_one, b"more"),
            it.transactions.init(other_name),
        ):
            with pytest.raises(NotLeader) as told:
                await work
            assert told.value.retriable
        for call in (it.transactions.begin, it.transactions.ongoing, it.transactions.producers.check):
            with pytest.raises(NotLeader):
                call(made.producer_id, made.epoch)
        with pytest.raises(NotLeader):
            it.transactions.find(asked)
        assert it.broker.operations.transactions.all_open(IN_PROCESS) == [other]
        await it.commit(other)
        assert await it.values(OTHER) == [b"other"]


@on_a_loop
async def test_what_a_producer_without_a_name_sends_outside_of_transactions_does_not_need_its_shard() -> None:
    async with bench() as it:
        made = await it.transactions.init()
        await it.broker.leadership.let_go(shard_of(it, made))
        it.transactions.producers.check(made.producer_id, made.epoch)
        with pytest.raises(ProducerFenced):
            it.transactions.producers.check(made.producer_id, 1)
        with pytest.raises(NotLeader):
            it.begin_as(made)
        # New ones get ids of shards that are led.
        given = [shard_of(it, await it.transactions.init()) for _ in SHARD_NUMBERS]
        assert all(each.is_leading for each in given)


@on_a_loop
async def test_a_shard_that_is_led_again_aborts_what_was_open_and_keeps_what_is_prepared() -> None:
    async with bench() as it:
        await it.join()
        await it.publish(None, b"a", b"b")
        some = await it.poll()
        first, second, *_ = names(5)
        prepared, left = await it.begin(first), await it.begin(second)
        await it.ack_in(prepared, some[:1])
        await it.ack_in(left, some[1:])
        await it.publish(prepared, b"prepared", topic=OTHER)
        await it.prepare(prepared)
        await it.publish(left, b"left", topic=OTHER)
        shard = shard_of(it, left)
        await it.broker.leadership.let_go(shard)
        await it.publish(None, b"behind", topic=OTHER)
        assert await it.values(OTHER) == []
        await it.broker.leadership.lead([shard])
        with pytest.raises(TransactionNotFound):
            it.transactions.find(left.transaction_id)
        assert [each.value for each in await it.poll()] == [b"b"]
        await it.transactions.commit(prepared.transaction_id)
        assert await it.values(OTHER) == [b"prepared", b"behind"]
        assert await it.poll() == []


@on_a_loop
async def test_what_was_open_when_its_shard_was_let_go_is_not_committed_without_its_first_half() -> None:
    async with bench() as it:
        made = await it.transactions.init("app")
        transaction_id = f"{made.producer_id}-{made.epoch}-{1:016x}"
        first = it.transactions.joined(transaction_id, made.producer_id, made.epoch, 0)
        await it.publish(first, b"first half")
        shard = shard_of(it, made)
        await it.broker.leadership.let_go(shard)
        await it.broker.leadership.lead([shard])
        second = it.transactions.joined(transaction_id, made.producer_id, made.epoch, 0)
        await it.publish(second, b"second half")
        with pytest.raises(TransactionAborted):
            await it.transactions.commit(transaction_id, Known(first.incarnation, 2))
        assert await it.values() == []


@on_a_loop
async def test_a_commit_that_is_under_way_is_finished_before_its_shard_is_let_go() -> None:
    async with bench() as it:
        transaction = await it.begin("app")
        await it.publish(transaction, b"v")
        shard = shard_of(it, transaction)
        committing = asyncio.create_task(it.commit(transaction))
        await asyncio.sleep(0)
        await it.broker.leadership.let_go(shard)
        await committing
        assert await it.values() == [b"v"]
        await it.broker.leadership.lead([shard])
        await it.transactions.commit(transaction.transaction_id)


@on_a_loop
async def test_timeouts_wait_while_the_shard_is_let_go() -> None:
    async with bench() as it:
        transaction = await it.begin("app")
        await it.publish(transaction, b"v")
        await it.prepare(transaction)
        shard = shard_of(it, transaction)
        await it.broker.leadership.let_go(shard)
        it.pass_ms(it.config.transactions.prepared_timeout_ms + 1)
        assert it.transactions.tally.timed_out == 0
        await it.broker.leadership.lead([shard])
        it.pass_ms(1_000)
        await until(lambda: not it.transactions.coordinators.all_open())
        assert (it.transactions.tally.timed_out, await it.values()) == (1, [])


@on_a_loop
async def test_what_was_held_for_an_abort_comes_back_when_the_shard_of_its_queue_is_led_again() -> None:
    """The coordinator is let go and led again meanwhile, and does not know any more what it had aborted."""
    async with bench() as it:
        await it.join()
        await it.publish(None, b"a")
        [got] = await it.poll()
        queues = it.broker.groups.shards.map.of_partition(it.broker.topic("t"), 0)
        own = next(each for each in SHARD_NUMBERS if each != queues.number)
        transaction = await it.begin(names(own)[0])
        await it.ack_in(transaction, [got])
        await it.broker.leadership.let_go(queues)
        await it.abort(transaction)
        shard = shard_of(it, transaction)
        await it.broker.leadership.let_go(shard)
        await it.broker.leadership.lead([shard])
        await it.broker.leadership.lead([queues])
        [again] = await it.poll()
        assert (again.value, again.count) == (b"a", 2)


# Keys, and transactions of other shards than theirs

KEY = "job#1"


async def prepared(it: Bench, value: bytes, shard: int, key: str = "") -> OpenTransaction:
    made = await it.transactions.init(names(shard)[int(key == "")])
    transaction = it.transactions.begin(made.producer_id, made.epoch, for_key=key)
    await it.publish(transaction, value)
    await it.prepare(transaction)
    return transaction


def own_of(it: Bench, key: str = KEY) -> int:
    return it.transactions.coordinators.of_key(key).shard


def shard(it: Bench, number: int) -> Shard:
    return it.broker.groups.shards.map.by_number[number]


def others_than(number: int) -> list[int]:
    return [each for each in SHARD_NUMBERS if each != number]


@pytest.mark.parametrize("key_of_those", [KEY, "", "another"])
@on_a_loop
async def test_transactions_of_several_shards_are_committed_under_a_key(key_of_those: str) -> None:
    async with bench() as it:
        own = own_of(it)
        some = [await prepared(it, b"%d" % at, at, key_of_those) for at in (own, *others_than(own)[:2])]
        ids = [each.transaction_id for each in some]
        assert (await it.transactions.keys.commit_many(KEY, ids)).is_new
        seen = await it.values()
        assert len(seen) == 3
        await it.restart()
        assert await it.values() == seen
        known = await it.transactions.keys.committed_under(KEY)
        assert known is not None and known.transactions == ids
        for each in ids:
            await it.transactions.commit(each)


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "later"])
@on_a_loop
async def test_a_decision_that_cannot_be_noted_in_all_shards_is_carried_out_in_the_end(
    monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    async with bench() as it:
        own = own_of(it)
        full, other, *_ = others_than(own)
        some = [await prepared(it, b"%d" % at, at, KEY) for at in (own, other, full)]
        propose = CoordinatorJournal.propose

        def on_a_full_disk(journal: CoordinatorJournal, events: Sequence[TransactionsEvent]) -> None:
            if journal.shard == full:
                raise DiskFull("no room")
            propose(journal, events)

        with monkeypatch.context() as patch:
            patch.setattr(CoordinatorJournal, "propose", on_a_full_disk)
            ids = [each.transaction_id for each in some]
            assert (await it.transactions.keys.commit_many(KEY, ids)).is_new
            assert it.transactions.coordinators.all_open() == some[2:]
            it.pass_ms(1_000)
            for work in (it.transactions.commit(ids[2]), it.transactions.abort(ids[2])):
                with pytest.raises(NotLeader):
                    await work
            left = it.disk.crash(Random(0))
        it.pass_ms(1_000)
        await until(lambda: not it.transactions.coordinators.all_open())
        seen = sorted(await it.values())
    if is_killed:
        async with bench(left) as it:
            assert sorted(await it.values()) == seen
            for each in ids:
                await it.transactions.commit(each)
    assert seen == sorted(b"%d" % at for at in (own, other, full))


@on_a_loop
async def test_a_prepared_transaction_is_in_doubt_while_the_shard_of_its_key_is_not_led() -> None:
    async with bench() as it:
        own = own_of(it)
        number = others_than(own)[0]
        transaction = await prepared(it, b"v", number, KEY)
        await it.broker.leadership.let_go(shard(it, own))
        await it.broker.leadership.let_go(shard(it, number))
        await it.broker.leadership.lead([shard(it, number)])
        asked = transaction.transaction_id
        for work in (
            it.transactions.commit(asked),
            it.transactions.abort(asked),
            it.transactions.init(names(number)[0]),
        ):
            with pytest.raises(NotLeader):
                await work
        it.pass_ms(10_000)
        await it.broker.leadership.lead([shard(it, own)])
        assert (await it.transactions.keys.commit_many(KEY, [asked])).is_new
        assert await it.values() == [b"v"]


@on_a_loop
async def test_the_next_key_of_a_series_waits_until_all_shards_know_of_the_one_before() -> None:
    async with bench() as it:
        own = own_of(it)
        number = others_than(own)[0]
        transaction = await prepared(it, b"v", number, KEY)
        await it.transactions.keys.commit_many(KEY, [transaction.transaction_id])
        await it.broker.leadership.let_go(shard(it, number))
        with pytest.raises(NotLeader):
            await it.transactions.keys.commit_many("job#2", [])
        await it.broker.leadership.lead([shard(it, number)])
        assert (await it.transactions.keys.commit_many("job#2", [])).is_new


@on_a_loop
async def test_a_key_whose_shard_is_let_go_takes_nothing() -> None:
    async with bench() as it:
        own = own_of(it)
        transaction = await prepared(it, b"v", others_than(own)[0], KEY)
        await it.broker.leadership.let_go(shard(it, own))
        made = await it.transactions.init()
        for work in (
            it.transactions.keys.commit_many(KEY, [transaction.transaction_id]),
            it.transactions.keys.committed_under(KEY),
        ):
            with pytest.raises(NotLeader):
                await work
        if shard_of(it, made).is_leading:
            with pytest.raises(NotLeader):
                it.transactions.begin(made.producer_id, made.epoch, for_key=KEY)
        assert it.transactions.find(transaction.transaction_id).state == "prepared"


async def seen_after_a_power_loss(left: PowerLossDisk) -> list[bytes]:
    async with bench(left) as it:
        return await it.values()


@pytest.mark.parametrize("then", ["nothing", "the next key", "the key is forgotten"])
@pytest.mark.parametrize("seed", range(6))
@on_a_loop
async def test_what_was_committed_under_a_key_of_another_shard_stays_so_after_a_power_loss(
    then: str, seed: int
) -> None:
    """Of the record in its own shard nobody waits that it is durable."""
    async with bench() as it:
        key = "once" if then == "the key is forgotten" else KEY
        own = own_of(it, key)
        number = others_than(own)[0]
        # To begin with it is prepared for no key, or for this one.
        transaction = await prepared(it, b"v", number, "" if then == "nothing" else key)
        await it.transactions.keys.commit_many(key, [transaction.transaction_id])
        if then == "the next key":
            await it.transactions.keys.commit_many("job#2", [])
        elif then == "the key is forgotten":
            it.pass_ms(it.config.transactions.key_retention_ms + 1)
            await it.transactions.tidy()
            assert await it.transactions.keys.committed_under(key) is None
        left = it.disk.crash(Random(seed))
    assert await seen_after_a_power_loss(left) == [b"v"]
