"""Producers and transactions, from their begin to their end, and across restarts."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import Any

import pytest
from doubles import coordinators
from doubles.async_tests import until
from doubles.group_movers import shard_of
from doubles.loop import on_a_loop
from doubles.transaction_bench import OTHER, TOPIC, Bench, bench

import goqueue.broker.transactions.completion
import goqueue.broker.transactions.thawing
import goqueue.coordination.issued_ids
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.shards.shard import Shard
from goqueue.broker.transactions.completion import TransactionCompletion
from goqueue.broker.transactions.producer_fencing import ProducerIdentity
from goqueue.coordination.shard_state import ShardState
from goqueue.model.errors import (
    DiskFull,
    GoQueueError,
    InvalidRequest,
    Overloaded,
    ProducerFenced,
    StorageFailed,
    TooManyTransactions,
    TransactionAborted,
    TransactionConflict,
    TransactionNotFound,
    UnknownProducer,
)

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


async def all_done(it: Bench) -> None:
    """Everything that is being prepared or ended has come to its end."""
    await until(lambda: coordinators.are_idle(it.broker))


def held_back(it: Bench) -> asyncio.Event:
    """Until it is opened, nobody hears that the journals of shards are durable."""
    gate = asyncio.Event()
    settled = Journal.settled

    async def later(journal: Journal[ShardState]) -> None:
        await gate.wait()
        await settled(journal)

    for each in coordinators.all_of(it.broker):
        each.own.journal.settled = partial(later, each.own.journal)  # type: ignore[method-assign]
    return gate


# Producers


@on_a_loop
async def test_a_producer_without_a_name_gets_an_id_of_its_own() -> None:
    async with bench() as it:
        ids = [await it.transactions.init() for _ in range(3)]
        assert len({each.producer_id for each in ids}) == 3
        assert {each.epoch for each in ids} == {0}


@on_a_loop
async def test_an_id_is_never_given_twice_over_restarts_and_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goqueue.coordination.issued_ids, "AT_ONCE", 8)
    async with bench() as it:
        given: list[int] = []
        for turn in range(4):
            for number in range(1 + 3 * turn):
                name = f"{turn} {number}" if number % 2 else None
                given.append((await it.transactions.init(name)).producer_id)
            given += [each.producer_id for each in await asyncio.gather(*[it.transactions.init() for _ in range(9)])]
            await it.restart()
        assert len(set(given)) == len(given)
        for each in given:
            if it.transactions.coordinators.name_of(each) == "":
                it.transactions.producers.check(each, 0)


@on_a_loop
async def test_whoever_begins_under_a_name_fences_the_one_before_also_after_a_restart() -> None:
    async with bench() as it:
        old = await it.transactions.init("name")
        new = await it.transactions.init("name")
        assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 1)
        for _ in range(2):
            for work in (it.transactions.begin, it.transactions.producers.check, it.transactions.ongoing):
                with pytest.raises(ProducerFenced):
                    work(old.producer_id, old.epoch)
            it.transactions.producers.check(new.producer_id, new.epoch)
            await it.restart()


@on_a_loop
async def test_an_id_that_nobody_was_given_is_unknown() -> None:
    async with bench() as it:
        await it.transactions.init()
        for producer_id in (-1, 0, 10**9):
            with pytest.raises(UnknownProducer):
                it.transactions.begin(producer_id, 0)
        plain = await it.transactions.init()
        with pytest.raises(ProducerFenced):
            it.transactions.begin(plain.producer_id, 1)


@on_a_loop
async def test_the_epoch_after_the_last_is_the_first_of_another_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goqueue.coordination.transactions, "MAX_EPOCH", 2)
    async with bench() as it:
        made = [await it.transactions.init("name") for _ in range(5)]
        assert [each.epoch for each in made] == [0, 1, 2, 0, 1]
        assert len({each.producer_id for each in made}) == 2
        for old in made[:-1]:
            with pytest.raises(ProducerFenced):
                it.transactions.begin(old.producer_id, old.epoch)


@on_a_loop
async def test_a_name_that_nobody_uses_is_forgotten_and_its_producer_is_fenced_for_good() -> None:
    async with bench(id_expiry_ms=HOUR_MS, max_producers=1) as it:
        old = await it.transactions.init("name")
        with pytest.raises(Overloaded):
            await it.transactions.init("another")
        it.pass_ms(HOUR_MS + 1)
        await it.transactions.tidy()
        for _ in range(2):
            with pytest.raises(ProducerFenced):
                it.transactions.begin(old.producer_id, old.epoch)
            await it.restart()
        new = await it.transactions.init("another")
        it.transactions.begin(new.producer_id, new.epoch)


@on_a_loop
async def test_a_name_that_is_used_is_not_forgotten_over_restarts_either() -> None:
    async with bench(id_expiry_ms=HOUR_MS) as it:
        made = await it.transactions.init("name")
        for turn in range(12):
            it.pass_ms(HOUR_MS // 3)
            it.transactions.producers.check(made.producer_id, made.epoch)
            await it.transactions.tidy()
            if turn % 3 == 2:
                await it.restart()
                await it.transactions.tidy()
        it.transactions.begin(made.producer_id, made.epoch)


@on_a_loop
async def test_taking_over_a_name_aborts_what_was_left_open_or_prepared() -> None:
    async with bench() as it:
        for is_prepared in (False, True):
            left = await it.begin("name")
            await it.publish(left, b"v")
            if is_prepared:
                await it.transactions.prepare(left.transaction_id)
            made = await it.transactions.init("name")
            with pytest.raises(TransactionAborted, match="taken over"):
                await it.commit(left)
            with pytest.raises(TransactionAborted):
                await it.transactions.keys.commit_many(f"key {is_prepared}", [left.transaction_id])
            next_one = it.begin_as(made)
            await it.publish(next_one, b"next")
            await it.abort(next_one)
        assert await it.values() == []


@on_a_loop
@pytest.mark.parametrize("work", ["commit", "prepare", "abort", "commit_many"])
async def test_taking_over_while_a_transaction_is_being_ended_waits_for_that(work: str) -> None:
    async with bench() as it:
        left = await it.begin("name")
        await it.publish(left, b"v")
        if work == "commit_many":
            await it.transactions.prepare(left.transaction_id)
            begun = asyncio.create_task(it.transactions.keys.commit_many("key", [left.transaction_id]))
        else:
            begun = asyncio.create_task(getattr(it, work)(left))
        await asyncio.sleep(0)
        made, other = await asyncio.gather(it.transactions.init("name"), it.transactions.init("name"))
        await begun
        assert {made.epoch, other.epoch} == {1, 2}
        assert it.transactions.coordinators.all_open() == []
        is_committed = work.startswith("commit")
        assert await it.values() == ([b"v"] if is_committed else [])
        it.begin_as(made if made.epoch == 2 else other)


@on_a_loop
async def test_names_and_timeouts_are_checked() -> None:
    async with bench(max_timeout_ms=MINUTE_MS) as it:
        for name in ("", "x" * 256, "new\nline"):
            with pytest.raises(InvalidRequest):
                await it.transactions.init(name)
        for timeout_ms in (0, MINUTE_MS + 1):
            with pytest.raises(InvalidRequest):
                await it.transactions.init("name", timeout_ms)


# Beginning


@on_a_loop
async def test_a_transaction_that_has_done_nothing_is_the_same_when_it_is_begun_again() -> None:
    async with bench() as it:
        made = await it.transactions.init()
        first = it.begin_as(made)
        assert it.begin_as(made) is first
        await it.publish(first, b"v")
        with pytest.raises(TransactionConflict, match="must end first"):
            it.begin_as(made)
        await it.commit(first)
        assert it.begin_as(made).transaction_id != first.transaction_id


@on_a_loop
async def test_only_so_many_transactions_are_open_or_prepared() -> None:
    async with bench(max_open=2) as it:
        first, _ = await it.begin(), await it.prepared(b"v")
        with pytest.raises(TooManyTransactions):
            await it.begin()
        await it.commit(first)
        await it.begin()


@on_a_loop
async def test_nothing_can_be_added_to_a_transaction_that_is_not_ongoing() -> None:
    async with bench() as it:
        transaction = await it.begin()
        await it.publish(transaction, b"v")
        await it.transactions.prepare(transaction.transaction_id)
        with pytest.raises(TransactionConflict, match="prepared"):
            await it.publish(transaction, b"w")
        with pytest.raises(TransactionConflict, match="prepared"):
            await it.transactions.add_acks(transaction, [])
        with pytest.raises(TransactionConflict):
            it.begin_as(ProducerIdentity(transaction.producer_id, transaction.epoch, 1))
        await it.commit(transaction)
        with pytest.raises(TransactionConflict, match="committed"):
            it.transactions.ongoing(transaction.producer_id, transaction.epoch, transaction.transaction_id)
        assert await it.values() == [b"v"]


# Ending


@on_a_loop
async def test_ending_a_transaction_again_is_answered_the_same_and_the_other_end_is_refused() -> None:
    async with bench() as it:
        for has_written in (True, False):
            committed, aborted = await it.begin(), await it.begin()
            for each in (committed, aborted) if has_written else ():
                await it.publish(each, b"%d" % each.producer_id)
            for _ in range(2):
                await it.commit(committed)
                await it.abort(aborted)
            with pytest.raises(TransactionConflict, match="committed"):
                await it.abort(committed)
            with pytest.raises(TransactionAborted):
                await it.commit(aborted)
            with pytest.raises(TransactionAborted):
                await it.transactions.prepare(aborted.transaction_id)
        with pytest.raises(TransactionNotFound):
            await it.transactions.commit("1-0-abc")
        assert len(await it.values()) == 1
        assert (it.transactions.tally.committed, it.transactions.tally.aborted) == (2, 2)


@on_a_loop
async def test_a_commit_is_known_after_a_restart() -> None:
    async with bench() as it:
        transaction = await it.begin()
        await it.publish(transaction, b"v")
        await it.commit(transaction)
        await it.restart()
        await it.commit(transaction)
        with pytest.raises(TransactionConflict, match="committed"):
            await it.abort(transaction)
        assert await it.values() == [b"v"]


@on_a_loop
async def test_an_empty_transaction_that_is_prepared_can_be_committed_and_leaves_nothing() -> None:
    async with bench() as it:
        transaction = await it.begin()
        await it.transactions.prepare(transaction.transaction_id)
        await it.commit(transaction)
        await it.commit(transaction)
        await it.restart()
        assert it.transactions.coordinators.all_open() == []
        await it.commit(transaction)


@on_a_loop
@pytest.mark.parametrize("ends", [("commit", "commit"), ("abort", "abort"), ("commit", "abort"), ("abort", "commit")])
async def test_of_two_who_end_a_transaction_at_once_the_first_decides(ends: tuple[str, str]) -> None:
    async with bench() as it:
        transaction = await it.begin()
        await it.publish(transaction, b"v")
        await it.publish(transaction, b"v", topic=OTHER)
        work = [getattr(it, end)(transaction) for end in ends]
        first, second = await asyncio.gather(*work, return_exceptions=True)
        assert first is None
        assert (second is None) == (ends[0] == ends[1])
        seen = [b"v"] if ends[0] == "commit" else []
        assert await it.values() == seen
        assert await it.values(OTHER) == seen
        await it.restart()
        assert await it.values() == seen
        assert await it.values(OTHER) == seen


@on_a_loop
async def test_a_commit_is_carried_out_to_its_end_when_the_one_who_asked_goes_away() -> None:
    async with bench() as it:
        transaction = await it.begin()
        await it.publish(transaction, b"v")
        asked = asyncio.create_task(it.commit(transaction))
        await asyncio.sleep(0)
        asked.cancel()
        await all_done(it)
        assert await it.values() == [b"v"]
        assert it.transactions.coordinators.all_open() == []


# Times


@on_a_loop
async def test_a_transaction_is_aborted_when_its_time_is_up_whatever_its_producer_says() -> None:
    async with bench() as it:
        first, second = await it.begin(), await it.begin("name", timeout_ms=10_000)
        for each in (first, second):
            await it.publish(each, b"v")
        await it.publish(None, b"behind")
        it.pass_ms(9_999)
        it.transactions.producers.check(second.producer_id, second.epoch)
        assert len(it.transactions.coordinators.all_open()) == 2
        it.pass_ms(1)
        await all_done(it)
        assert it.transactions.coordinators.all_open() == [first]
        with pytest.raises(TransactionAborted, match="within its timeout"):
            await it.commit(second)
        it.pass_ms(50_000)
        await all_done(it)
        assert it.transactions.coordinators.all_open() == []
        assert await it.values() == [b"behind"]
        assert it.transactions.tally.timed_out == 2


@on_a_loop
async def test_a_prepared_transaction_has_a_time_of_its_own_also_over_a_restart() -> None:
    async with bench(prepared_timeout_ms=HOUR_MS) as it:
        first, second = await it.prepared(b"first"), await it.prepared(b"second")
        it.pass_ms(HOUR_MS - 1)
        await it.restart()
        await it.transactions.commit(first)
        assert await it.values() == [b"first"]
        it.pass_ms(1)
        await all_done(it)
        with pytest.raises(TransactionAborted):
            await it.transactions.commit(second)
        await it.restart()
        assert it.transactions.coordinators.all_open() == []
        assert await it.values() == [b"first"]


@on_a_loop
async def test_a_timeout_that_comes_at_once_with_a_commit_loses() -> None:
    async with bench() as it:
        transaction = await it.begin()
        await it.publish(transaction, b"v")
        asked = asyncio.create_task(it.commit(transaction))
        await asyncio.sleep(0)
        it.pass_ms(MINUTE_MS)
        await asked
        assert await it.values() == [b"v"]


@on_a_loop
async def test_a_commit_that_comes_at_once_with_a_timeout_loses() -> None:
    async with bench() as it:
        transaction = await it.begin()
        await it.publish(transaction, b"v")
        it.pass_ms(MINUTE_MS)
        with pytest.raises(TransactionConflict, match="preparing abort"):
            await it.commit(transaction)
        await it.abort(transaction)
        await it.restart()
        assert await it.values() == []


# Topics that go


@on_a_loop
async def test_a_transaction_cannot_be_committed_when_one_of_its_topics_was_deleted() -> None:
    async with bench() as it:
        transaction = await it.begin()
        await it.publish(transaction, b"v")
        await it.publish(transaction, b"v", topic=OTHER)
        await it.broker.delete_topic(OTHER)
        with pytest.raises(TransactionAborted, match="deleted"):
            await it.commit(transaction)
        assert await it.values() == []
        assert it.transactions.coordinators.all_open() == []


@on_a_loop
async def test_a_prepared_transaction_is_committed_in_those_of_its_topics_that_are_left() -> None:
    async with bench() as it:
        transaction = await it.begin()
        await it.publish(transaction, b"v")
        await it.publish(transaction, b"v", topic=OTHER)
        await it.transactions.prepare(transaction.transaction_id)
        await it.broker.delete_topic(OTHER)
        await it.restart()
        await it.commit(transaction)
        assert await it.values() == [b"v"]
        await it.restart()
        await until(lambda: not coordinators.decided(it.broker))
        assert await it.values() == [b"v"]


# A disk that is full


def cannot_write(it: Bench, topic: str, error: GoQueueError) -> list[None]:
    """Until the list is emptied, nothing can be appended to a topic."""
    fails = [None]
    log = it.broker.topic(topic).partitions[0].log
    append = log.append

    def refused(batch: Any) -> int:
        if fails:
            raise error
        return append(batch)

    log.append = refused  # type: ignore[method-assign]
    return fails


@on_a_loop
@pytest.mark.parametrize("is_commit", [True, False])
async def test_an_end_that_cannot_be_written_everywhere_is_written_as_soon_as_it_can_be(
    is_commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goqueue.broker.transactions.completion, "_TRY_AGAIN_S", 0.001)
    async with bench() as it:
        made = await it.transactions.init()
        transaction = it.begin_as(made)
        await it.publish(transaction, b"v")
        await it.publish(transaction, b"v", topic=OTHER)
        fails = cannot_write(it, OTHER, DiskFull("no room"))
        await (it.commit if is_commit else it.abort)(transaction)
        assert transaction.transaction_id in it.transactions.held_up()
        seen = [b"v"] if is_commit else []
        assert await it.values() == seen
        assert await it.values(OTHER) == []
        fails.clear()
        await until(lambda: not it.transactions.held_up())
        assert await it.values(OTHER) == seen
        await until(lambda: not coordinators.decided(it.broker))


@on_a_loop
@pytest.mark.parametrize("is_commit", [True, False])
async def test_the_next_transaction_of_a_producer_waits_where_the_end_of_the_last_one_is_not_written(
    is_commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goqueue.broker.transactions.completion, "_TRY_AGAIN_S", 0.05)
    async with bench() as it:
        made = await it.transactions.init()
        first = it.begin_as(made)
        await it.publish(first, b"first")
        fails = cannot_write(it, TOPIC, DiskFull("no room"))
        await (it.commit if is_commit else it.abort)(first)
        fails.clear()
        second = it.begin_as(made)
        with pytest.raises(Overloaded, match="could not be written"):
            await it.publish(second, b"second")
        await it.publish(second, b"elsewhere", topic=OTHER)
        await until(lambda: not it.transactions.held_up())
        await it.publish(second, b"second")
        await (it.abort if is_commit else it.commit)(second)
        assert await it.values() == [b"first" if is_commit else b"second"]


@on_a_loop
async def test_a_commit_that_one_partition_can_never_and_another_only_later_write_is_whole_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(goqueue.broker.transactions.completion, "_TRY_AGAIN_S", 0.001)
    monkeypatch.setattr(goqueue.broker.transactions.completion, "_GATHERING_S", 0.0)
    async with bench() as it:
        transaction = await it.begin()
        await it.publish(transaction, b"v")
        await it.publish(transaction, b"v", topic=OTHER)
        cannot_write(it, TOPIC, StorageFailed("broken"))
        fails = cannot_write(it, OTHER, DiskFull("no room"))
        await it.commit(transaction)
        fails.clear()
        await until(lambda: coordinators.are_all_ended(it.broker))
        await asyncio.sleep(0.01)
        await it.restart()
        assert await it.values() == [b"v"]
        assert await it.values(OTHER) == [b"v"]


@on_a_loop
async def test_a_transaction_that_cannot_be_decided_for_want_of_room_can_be_committed_later_or_times_out() -> None:
    async with bench() as it:
        for is_prepared in (False, True):
            transaction = await it.begin()
            await it.publish(transaction, b"v")
            if is_prepared:
                await it.transactions.prepare(transaction.transaction_id)
            it.full()
            with pytest.raises(DiskFull):
                await it.commit(transaction)
            assert transaction.state == ("prepared" if is_prepared else "ongoing")
            it.room()
            await it.commit(transaction)
        left = await it.begin()
        await it.publish(left, b"left")
        it.full()
        asked = asyncio.create_task(it.commit(left))
        await asyncio.sleep(0)
        it.pass_ms(MINUTE_MS)
        with pytest.raises(DiskFull):
            await asked
        it.room()
        it.pass_ms(1_000)
        await all_done(it)
        assert it.transactions.coordinators.all_open() == []
        assert await it.values() == [b"v", b"v"]


@on_a_loop
async def test_a_transaction_that_cannot_be_prepared_or_aborted_for_want_of_room_is_not_stuck() -> None:
    async with bench() as it:
        transaction = await it.begin("name")
        await it.publish(transaction, b"v")
        it.full()
        with pytest.raises(DiskFull):
            await it.transactions.prepare(transaction.transaction_id)
        assert transaction.state == "ongoing"
        it.room()
        await it.transactions.prepare(transaction.transaction_id)
        it.full()
        with pytest.raises(DiskFull):
            await it.abort(transaction)
        assert transaction.state == "prepared"
        with pytest.raises(DiskFull):
            await it.transactions.init("name")
        it.room()
        await it.transactions.init("name")
        assert it.transactions.coordinators.all_open() == []


@on_a_loop
@pytest.mark.parametrize("is_commit", [True, False])
async def test_groups_are_told_of_an_end_as_soon_as_there_is_room(
    is_commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goqueue.broker.transactions.completion, "_TRY_AGAIN_S", 0.001)
    async with bench() as it:
        await it.join()
        await it.publish(None, b"a")
        transaction = await it.begin()
        await it.ack_in(transaction, await it.poll())
        shard = shard_of(it.broker, TOPIC)
        append = shard.append

        def refused(*_: Any) -> None:
            raise DiskFull("no room")

        shard.append = refused  # type: ignore[method-assign]
        await (it.commit if is_commit else it.abort)(transaction)
        assert it.transactions.coordinators.all_open() == []
        shard.append = append  # type: ignore[method-assign]
        await until(lambda: not it.transactions.held_up())
        assert it.lag() == (0 if is_commit else 1)
        assert len(await it.poll()) == it.lag()


async def topic_in_another_shard(it: Bench) -> str:
    """Whose state is in another journal than that of ``TOPIC``."""
    for number in range(1_000):
        topic = await it.broker.create_topic(f"elsewhere-{number}", {"partitions": 1})
        if topic.shards[0] != it.broker.topic(TOPIC).shards[0]:
            return topic.name
    raise AssertionError("a thousand ids that all lead to the same shard")


@on_a_loop
async def test_acks_that_only_some_groups_could_note_abort_the_transaction() -> None:
    async with bench() as it:
        other = await topic_in_another_shard(it)
        await it.join()
        await it.join("h", other)
        await it.publish(None, b"a")
        await it.publish(None, b"b", topic=other)
        both = [*await it.poll(), *await it.poll(group="h")]
        transaction = await it.begin()
        journal = shard_of(it.broker, other).journal
        propose = journal.propose

        def refused(events: Any) -> None:
            raise DiskFull("no room")

        journal.propose = refused  # type: ignore[method-assign]
        with pytest.raises(TransactionAborted, match="could not ack"):
            await it.ack_in(transaction, both)
        journal.propose = propose  # type: ignore[method-assign]
        assert [each.count for each in await it.poll()] == [2]
        assert await it.settle("ack", both[1:]) == [None]


# A disk that has failed


@on_a_loop
async def test_a_transaction_whose_partition_has_failed_is_aborted_everywhere() -> None:
    async with bench() as it:
        transaction = await it.begin()
        await it.publish(transaction, b"v")
        await it.publish(transaction, b"v", topic=OTHER)
        it.broker.topic(OTHER).partitions[0].log.fail("broken")
        with pytest.raises(TransactionAborted, match="made safe"):
            await it.commit(transaction)
        assert await it.values() == []
        assert it.transactions.coordinators.all_open() == []
        await it.restart()
        assert await it.values() == []
        assert await it.values(OTHER) == []


@on_a_loop
async def test_when_the_journal_has_failed_nothing_is_committed_or_aborted_but_what_was_never_told_to_it() -> None:
    async with bench() as it:
        await it.join()
        await it.publish(None, b"a")
        ongoing, other, prepared = await it.begin(), await it.begin(), await it.prepared(b"prepared")
        await it.publish(ongoing, b"ongoing", topic=OTHER)
        await it.publish(other, b"other", topic=OTHER)
        for each in coordinators.all_of(it.broker):
            each.own.journal.log.fail("broken")
        with pytest.raises(StorageFailed):
            await it.commit(ongoing)
        with pytest.raises(StorageFailed):
            await it.transactions.keys.commit_many("key", [prepared])
        with pytest.raises(StorageFailed):
            await it.transactions.init("name")
        with pytest.raises(TransactionConflict):
            await it.abort(ongoing)
        await it.abort(other)
        assert await it.values(OTHER) == []
        await it.restart()
        assert await it.values(OTHER) == []
        assert [each.transaction_id for each in it.transactions.coordinators.all_open()] == [prepared]
        assert await it.transactions.keys.committed_under("key") is None


@on_a_loop
async def test_a_group_whose_journal_has_failed_does_not_keep_a_transaction_from_ending() -> None:
    async with bench() as it:
        await it.join()
        await it.publish(None, b"a")
        for end in ("abort", "commit"):
            transaction = await it.begin()
            await it.publish(transaction, b"v", topic=OTHER)
            if end == "abort":
                await it.ack_in(transaction, await it.poll())
                shard_of(it.broker, TOPIC).journal.log.fail("broken")
            await getattr(it, end)(transaction)
            assert it.transactions.coordinators.all_open() == []
        await it.restart()
        assert await it.values(OTHER) == [b"v"]
        assert it.lag() == 1


# For writers made of tasks


@on_a_loop
async def test_whoever_comes_first_with_a_key_wins_and_everyone_is_told_the_same() -> None:
    async with bench() as it:
        first, second = await it.prepared(b"first"), await it.prepared(b"first, other", topic=OTHER)
        rerun = await it.prepared(b"again")
        made = await it.transactions.keys.commit_many("key", [first, second])
        assert made.is_new
        for transactions in ([first, second], [rerun], ["9-0-unknown"], []):
            known = await it.transactions.keys.commit_many("key", transactions)
            assert (known.transactions, known.at_ns, known.is_new) == ([first, second], made.at_ns, False)
        await it.restart()
        known = await it.transactions.keys.committed_under("key")
        assert known is not None
        assert known.transactions == [first, second]
        assert await it.transactions.keys.committed_under("other") is None
        await it.transactions.abort(rerun)
        assert await it.values() == [b"first"]
        assert await it.values(OTHER) == [b"first, other"]


@on_a_loop
async def test_of_two_who_come_at_once_with_a_key_only_one_commits() -> None:
    async with bench() as it:
        one, other = await it.prepared(b"one"), await it.prepared(b"other")
        work = [it.transactions.keys.commit_many("key", [each]) for each in (one, other, one)]
        answers = await asyncio.gather(*work)
        assert [each.is_new for each in answers] == [True, False, False]
        assert {tuple(each.transactions) for each in answers} == {(one,)}
        assert await it.values() == [b"one"]
        assert it.transactions.find(other).state == "prepared"


@on_a_loop
async def test_a_key_that_could_not_be_used_for_want_of_room_is_free() -> None:
    async with bench() as it:
        one, other = await it.prepared(b"one"), await it.prepared(b"other")
        it.full()
        failed = await asyncio.gather(
            it.transactions.keys.commit_many("key", [one]),
            it.transactions.keys.commit_many("key", [other]),
            return_exceptions=True,
        )
        assert [type(each) for each in failed] == [DiskFull, DiskFull]
        it.room()
        assert (await it.transactions.keys.commit_many("key", [other])).is_new
        await it.transactions.abort(one)
        assert await it.values() == [b"other"]


@on_a_loop
async def test_transactions_that_are_not_all_prepared_are_not_committed_under_a_key() -> None:
    async with bench() as it:
        prepared, committed, aborted = await it.prepared(b"p"), await it.prepared(b"c"), await it.prepared(b"a")
        ongoing = await it.begin()
        await it.transactions.commit(committed)
        await it.transactions.abort(aborted)
        for bad, error in (
            (ongoing.transaction_id, TransactionConflict),
            (committed, TransactionConflict),
            (aborted, TransactionAborted),
            ("9-0-unknown", TransactionNotFound),
            (prepared, InvalidRequest),
        ):
            with pytest.raises(error):
                await it.transactions.keys.commit_many("key", [prepared, bad])
        for key in ("", "x" * 1_001):
            with pytest.raises(InvalidRequest):
                await it.transactions.keys.commit_many(key, [prepared])
        assert it.transactions.find(prepared).state == "prepared"
        assert await it.transactions.keys.committed_under("key") is None
        assert (await it.transactions.keys.commit_many("key", [prepared])).is_new


@on_a_loop
async def test_nobody_is_told_of_a_key_before_it_is_durable() -> None:
    async with bench() as it:
        made = await it.transactions.init()
        transaction = it.transactions.begin(made.producer_id, made.epoch, for_key="key")
        await it.publish(transaction, b"one")
        await it.prepare(transaction)
        one, gate = transaction.transaction_id, held_back(it)
        first = asyncio.create_task(it.transactions.keys.commit_many("key", [one]))
        await asyncio.sleep(0)
        others = [
            asyncio.create_task(it.transactions.keys.commit_many("key", [])),
            asyncio.create_task(it.transactions.keys.committed_under("key")),
        ]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(each.done() for each in (first, *others))
        assert await it.values() == []
        gate.set()
        assert (await first).is_new
        for each in others:
            assert (await each).transactions == [one]


@on_a_loop
async def test_keys_are_forgotten_after_their_time_and_beyond_their_number() -> None:
    async with bench(key_retention_ms=HOUR_MS, max_keys=3) as it:
        for number in range(5):
            it.pass_ms(1)
            await it.transactions.keys.commit_many(f"key {number}", [])
        await it.transactions.tidy()

        async def known() -> list[int]:
            return [each for each in range(5) if await it.transactions.keys.committed_under(f"key {each}") is not None]

        assert await known() == [2, 3, 4]
        await it.restart()
        assert await known() == [2, 3, 4]
        it.pass_ms(HOUR_MS + 1)
        await it.transactions.tidy()
        assert await known() == []


# Restarts


@on_a_loop
async def test_a_restart_aborts_what_was_ongoing_and_gives_back_what_it_had_acked() -> None:
    async with bench() as it:
        await it.join()
        await it.publish(None, b"a")
        transaction = await it.begin("name")
        await it.ack_in(transaction, await it.poll())
        await it.publish(transaction, b"v", topic=OTHER)
        await it.publish(transaction, b"later", topic=OTHER, delay_ms=1_000)
        await it.restart()
        with pytest.raises(TransactionNotFound):
            await it.commit(transaction)
        it.pass_ms(1_000)
        assert await it.values(OTHER) == []
        assert [(each.value, each.count) for each in await it.poll()] == [(b"a", 2)]
        again = it.begin_as(ProducerIdentity(transaction.producer_id, transaction.epoch, 1))
        await it.publish(again, b"again", topic=OTHER)
        await it.commit(again)
        assert await it.values(OTHER) == [b"again"]


@on_a_loop
@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_restart_keeps_what_was_prepared_with_its_acks_offsets_and_delays(is_commit: bool) -> None:
    async with bench() as it:
        await it.join()
        await it.join("s", kind="range", mode="stream")
        await it.publish(None, b"a")
        await it.poll(group="s")
        transaction = await it.begin()
        await it.ack_in(transaction, await it.poll())
        generation = it.broker.groups.shards.find("s").group.state.generation
        await it.transactions.add_offsets(transaction, "s", it.members["s"], {TOPIC: {0: 1}}, generation)
        await it.publish(transaction, b"v", topic=OTHER)
        await it.publish(transaction, b"later", topic=OTHER, delay_ms=1_000)
        await it.publish(None, b"behind", topic=OTHER)
        await it.transactions.prepare(transaction.transaction_id)
        for _ in range(2):
            await it.restart()
            it.pass_ms(600)
            assert await it.values(OTHER) == []
            assert await it.poll() == []
        await (it.commit if is_commit else it.abort)(transaction)
        it.pass_ms(1)
        await until(lambda: it.broker.topic(OTHER).partitions[0].log.end_offset == (5 if is_commit else 4))
        expected = [b"v", b"behind", b"later"] if is_commit else [b"behind"]
        assert await it.values(OTHER) == expected
        assert it.committed() == it.committed("s") == (1 if is_commit else 0)
        assert len(await it.poll()) == (0 if is_commit else 1)


@on_a_loop
async def test_what_was_decided_and_not_ended_is_carried_out_again_once_beside_its_producers_next_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as it:
        for each in coordinators.all_of(it.broker):
            monkeypatch.setattr(each.completion, "_note", nothing)
        await it.join()
        await it.publish(None, b"a", b"b")
        some = await it.poll()
        made = await it.transactions.init("name")
        first = it.begin_as(made)
        await it.ack_in(first, some[:1])
        await it.publish(first, b"first", topic=OTHER)
        cannot_write(it, OTHER, DiskFull("no room"))
        await it.publish(first, b"first")
        await it.commit(first)
        second = it.begin_as(made)
        await it.publish(second, b"second")
        assert coordinators.decided(it.broker)
        await it.restart()
        await until(lambda: not coordinators.decided(it.broker))
        for _ in range(2):
            assert await it.values() == [b"a", b"b", b"first"]
            assert await it.values(OTHER) == [b"first"]
            assert it.lag() == 2
            await it.restart()
        with pytest.raises(TransactionNotFound):
            await it.commit(second)


async def nothing(*_: Any, **__: Any) -> None:
    return None


@on_a_loop
async def test_a_start_on_a_full_disk_neither_aborts_what_was_committed_nor_forgets_what_is_to_be_aborted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(goqueue.broker.transactions.completion, "_TRY_AGAIN_S", 0.001)
    monkeypatch.setattr(goqueue.broker.transactions.thawing, "_TRY_AGAIN_S", 0.001)
    async with bench() as it:
        await it.join()
        await it.publish(None, b"a", b"b")
        some = await it.poll()
        committed, left = await it.begin(), await it.begin()
        await it.ack_in(committed, some[:1])
        await it.ack_in(left, some[1:])
        await it.publish(committed, b"committed", topic=OTHER)
        await it.publish(left, b"left", topic=OTHER)
        with monkeypatch.context() as patch:
            patch.setattr(TransactionCompletion, "carry_out", nothing)
            await it.commit(committed)
        fails = [DiskFull("no room")]
        fail_while(fails, monkeypatch, Partition, "append_marker")
        fail_while(fails, monkeypatch, Shard, "append")
        await it.restart()
        assert await it.values(OTHER) == []
        fails.clear()
        await until(lambda: coordinators.are_all_ended(it.broker))
        assert await it.values(OTHER) == [b"committed"]
        assert it.transactions.held_up() == {}
        await it.join(name="again")
        assert [each.value for each in await it.poll(member=it.members["again"])] == [b"b"]


def fail_while(fails: list[DiskFull], monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> None:
    """As long as there is a reason, a method raises it."""
    method = getattr(kind, name)

    def refused(*args: Any) -> Any:
        if fails:
            raise fails[0]
        return method(*args)

    monkeypatch.setattr(kind, name, refused)


@on_a_loop
async def test_what_a_crash_left_behind_a_marker_that_it_took_is_of_the_next_transaction_and_stays_aborted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as it:
        for each in coordinators.all_of(it.broker):
            monkeypatch.setattr(each.completion, "_note", nothing)
        made = await it.transactions.init()
        first = it.begin_as(made)
        await it.publish(first, b"first")
        await it.commit(first)
        await it.publish(it.begin_as(made), b"second")
        await it.publish(None, b"behind")
        log = it.broker.topic(TOPIC).partitions[0].log
        marker = log.locate(1, 1 << 20, 1)
        assert marker is not None
        left = it.disk.crash(Random(0))
        [path] = [log.folder / name for name in left.list_dir(log.folder) if name.endswith(".log")]
        start, end = marker.position, marker.position + marker.size
        left.damage(path, lambda content: content[:start] + bytes(end - start) + content[end:])
    async with bench(left) as it:
        assert await it.values() == [b"first", b"behind"]
        await until(lambda: not coordinators.decided(it.broker))
        await Journal.all_settled([each.own.journal for each in coordinators.all_of(it.broker)])
        # Without the file that a broker writes when it stops.
        left = it.disk.crash(Random(0))
    async with bench(left) as it:
        assert await it.values() == [b"first", b"behind"]
