"""A transaction that was begun for a key is of no use any more when others are committed under it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from doubles.async_tests import until
from doubles.loop import on_a_loop
from doubles.power_loss import PowerLossDisk
from doubles.transaction_bench import OTHER, Bench, bench

from goqueue.broker.transactions.commit_keys import MAX_KEY_LENGTH
from goqueue.broker.transactions.coordinator_journal import CoordinatorJournal
from goqueue.broker.transactions.key_outcomes import KeyOutcomes
from goqueue.broker.transactions.open_transactions import OpenTransaction
from goqueue.coordination.transaction_records import Aborted, TransactionsEvent
from goqueue.model.errors import InvalidRequest, TransactionAborted, TransactionConflict

KEY = "spark/query/7"


async def begun(it: Bench, *values: bytes, key: str = KEY, topic: str = OTHER) -> OpenTransaction:
    made = await it.transactions.init()
    transaction = it.transactions.begin(made.producer_id, made.epoch, for_key=key)
    if values:
        await it.publish(transaction, *values, topic=topic)
    return transaction


async def prepared(it: Bench, *values: bytes, key: str = KEY, topic: str = OTHER) -> str:
    transaction = await begun(it, *values, key=key, topic=topic)
    await it.transactions.prepare(transaction.transaction_id)
    return transaction.transaction_id


def left(it: Bench) -> list[str]:
    return [each.transaction_id for each in it.transactions.coordinators.all_open()]


async def nothing_is_left(it: Bench) -> None:
    await until(lambda: not left(it))


@on_a_loop
async def test_what_is_open_or_prepared_for_a_key_is_aborted_when_others_are_committed_under_it() -> None:
    async with bench() as it:
        # The slower attempts come first in the log: readers would wait behind them.
        killed, twice = await begun(it, b"killed"), await prepared(it, b"twice")
        another_job, plain = await prepared(it, b"another job", key="spark/query/8"), await it.prepared(b"plain")
        won = await prepared(it, b"a"), await prepared(it, b"b")
        assert (await it.transactions.keys.commit_many(KEY, won)).is_new
        await until(lambda: left(it) == [another_job, plain])
        for each in (killed.transaction_id, twice):
            with pytest.raises(TransactionAborted, match="others were committed under the key"):
                await it.transactions.prepare(each)
        await it.transactions.commit(another_job)
        assert await it.values(OTHER) == [b"another job", b"a", b"b"]
        assert it.transactions.tally.timed_out == 0


@on_a_loop
async def test_nothing_is_aborted_before_the_key_is_used() -> None:
    async with bench() as it:
        one, other = await prepared(it, b"one"), await begun(it)
        with pytest.raises(TransactionConflict, match="not prepared"):
            await it.transactions.keys.commit_many(KEY, [one, other.transaction_id])
        # Each may also end on its own: that says nothing of the rest.
        await it.transactions.commit(one)
        await it.transactions.abort(other.transaction_id)
        third = await prepared(it, b"third")
        assert left(it) == [third]
        assert (await it.transactions.keys.commit_many(KEY, [third])).is_new


@on_a_loop
async def test_what_is_being_prepared_at_that_moment_is_aborted_as_soon_as_it_is() -> None:
    disk = PowerLossDisk()
    async with bench(disk) as it:
        won, slow = await prepared(it, b"won"), await begun(it, b"slow")
        preparing = asyncio.create_task(it.transactions.prepare(slow.transaction_id))
        await asyncio.sleep(0)
        assert slow.state == "preparing"
        committing = asyncio.create_task(it.transactions.keys.commit_many(KEY, [won]))
        await asyncio.gather(preparing, committing)
        await nothing_is_left(it)
        assert await it.values(OTHER) == [b"won"]
        # Whoever prepared it was not told, and asks for it to be committed: the first one stands.
        again = await it.transactions.keys.commit_many(KEY, [slow.transaction_id])
        assert (again.is_new, again.transactions) == (False, [won])


@on_a_loop
async def test_what_was_prepared_while_the_key_was_decided_is_aborted_when_that_is_known() -> None:
    """Prepared is what it becomes only after the others were looked for."""
    async with bench() as it:
        won, slow = await prepared(it, b"won"), await begun(it, b"slow")
        slow.state = "preparing"
        await it.transactions.keys.commit_many(KEY, [won])
        assert left(it) == [slow.transaction_id]
        await it.transactions.coordinators.of(slow.transaction_id).ending._prepare(slow)
        await nothing_is_left(it)
        assert await it.values(OTHER) == [b"won"]


@on_a_loop
async def test_whoever_begins_for_a_key_that_is_used_is_too_late() -> None:
    async with bench() as it:
        made = await it.transactions.init()
        one = await prepared(it, b"one")
        committing = asyncio.create_task(it.transactions.keys.commit_many(KEY, [one]))
        await asyncio.sleep(0)
        # Also while it is being decided: nobody would abort it afterwards.
        for _ in range(2):
            with pytest.raises(TransactionConflict, match=f"others .* under the key '{KEY}' already.* too late"):
                it.transactions.begin(made.producer_id, made.epoch, for_key=KEY)
            with pytest.raises(TransactionConflict, match="too late"):
                it.transactions.joined(f"{made.producer_id}-0-{1:016x}", made.producer_id, made.epoch, 0, KEY)
            await committing
        assert left(it) == []
        assert it.transactions.begin(made.producer_id, made.epoch, for_key=f"{KEY}1").for_key == f"{KEY}1"


@on_a_loop
async def test_a_key_is_as_long_as_one_that_can_be_committed_under() -> None:
    async with bench() as it:
        made = await it.transactions.init()
        with pytest.raises(InvalidRequest, match=f"{MAX_KEY_LENGTH + 1} characters; up to {MAX_KEY_LENGTH}"):
            it.transactions.begin(made.producer_id, made.epoch, for_key="k" * (MAX_KEY_LENGTH + 1))
        longest = await prepared(it, b"v", key="k" * MAX_KEY_LENGTH)
        assert (await it.transactions.keys.commit_many("k" * MAX_KEY_LENGTH, [longest])).is_new


@on_a_loop
async def test_one_that_has_done_nothing_is_the_same_only_for_the_same_key() -> None:
    async with bench() as it:
        made = await it.transactions.init()
        first = it.transactions.begin(made.producer_id, made.epoch, for_key=KEY)
        assert it.transactions.begin(made.producer_id, made.epoch, for_key=KEY) is first
        for other in ("", "another"):
            with pytest.raises(TransactionConflict, match="must end first"):
                it.transactions.begin(made.producer_id, made.epoch, for_key=other)
        # The others of a key may have done nothing as well.
        await it.transactions.keys.commit_many(KEY, [])
        await nothing_is_left(it)


@on_a_loop
async def test_a_start_finishes_what_a_stop_between_the_decision_and_the_aborts_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as it:
        won, lost, kept = await prepared(it, b"won"), await prepared(it, b"lost"), await prepared(it, b"x", key="other")
        with monkeypatch.context() as patch:
            patch.setattr(KeyOutcomes, "abort_superseded", lambda self: None)
            await it.transactions.keys.commit_many(KEY, [won])
            assert left(it) == [lost, kept]
        await it.restart()
        await until(lambda: left(it) == [kept])
        assert it.transactions.find(kept).for_key == "other"
        assert await it.values(OTHER) == [b"won"]
        await it.restart()
        assert left(it) == [kept]
        assert await it.values(OTHER) == [b"won"]


@on_a_loop
async def test_what_could_not_be_aborted_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as it:
        won, lost = await prepared(it, b"won"), await prepared(it, b"lost")
        propose = CoordinatorJournal.propose

        def refuse_aborts(own: CoordinatorJournal, events: Sequence[TransactionsEvent]) -> None:
            if any(isinstance(each, Aborted) for each in events):
                raise InvalidRequest("not now")
            propose(own, events)

        with monkeypatch.context() as patch:
            patch.setattr(CoordinatorJournal, "propose", refuse_aborts)
            await it.transactions.keys.commit_many(KEY, [won])
            found = it.transactions.find(lost)
            await until(lambda: found.state == "prepared" and found.work is None)
        it.pass_ms(1_000)
        await nothing_is_left(it)
        assert await it.values(OTHER) == [b"won"]


@on_a_loop
async def test_asking_again_for_a_key_aborts_what_came_meanwhile() -> None:
    async with bench() as it:
        won = await prepared(it, b"won")
        await it.transactions.keys.commit_many(KEY, [won])
        # As if it had been begun when nobody knew of the key: it expired, and was used again.
        late = await prepared(it, b"late", key="unused")
        it.transactions.find(late).for_key = KEY
        assert not (await it.transactions.keys.commit_many(KEY, [late])).is_new
        await nothing_is_left(it)
        assert await it.values(OTHER) == [b"won"]


@on_a_loop
async def test_a_later_one_of_a_series_ends_what_was_meant_for_those_before_and_refuses_them() -> None:
    async with bench() as it:
        stale, open_one = await prepared(it, b"stale", key="job#3"), await begun(it, b"open", key="job#4")
        next_one = await prepared(it, b"next", key="job#5")
        won = await prepared(it, b"won", key="job#4")
        done = await it.transactions.keys.commit_many("job#4", [won])
        assert (done.is_new, done.messages, done.is_superseded) == (True, 1, False)
        await until(lambda: left(it) == [next_one])
        for late in (stale, open_one.transaction_id):
            with pytest.raises(TransactionAborted):
                await it.transactions.prepare(late)
        again = await it.transactions.keys.commit_many("job#4", [])
        assert (again.is_new, again.messages, again.transactions) == (False, 1, [won])
        known = await it.transactions.keys.committed_under("job#3")
        assert known is not None and known.is_superseded
        with pytest.raises(TransactionConflict, match="a later key of the series was committed"):
            await it.transactions.keys.commit_many("job#3", [])
        with pytest.raises(TransactionConflict, match="too late"):
            await begun(it, key="job#2")
        await it.restart()
        assert (await it.transactions.keys.commit_many("job#5", [next_one])).messages == 1
        assert await it.values(OTHER) == [b"next", b"won"]


@on_a_loop
async def test_what_is_prepared_for_a_key_waits_while_others_still_write_for_it() -> None:
    async with bench() as it:
        first = await prepared(it, b"first")
        (waiting,) = it.transactions.coordinators.all_open()
        before_ns = waiting.deadline_ns
        it.clock.advance_ms(60_000)
        second = await prepared(it, b"second")
        assert waiting.deadline_ns >= before_ns + 60 * 10**9
        assert (await it.transactions.keys.commit_many(KEY, [first, second])).messages == 2
