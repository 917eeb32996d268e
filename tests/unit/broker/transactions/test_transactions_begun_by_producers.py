"""A producer may begin a transaction with the first thing that it does in it, without asking before."""

from __future__ import annotations

import pytest
from doubles.loop import on_a_loop
from doubles.transaction_bench import Bench, bench

from goqueue.broker.transactions.commit_abort import Known
from goqueue.broker.transactions.open_transactions import OpenTransaction
from goqueue.broker.transactions.producer_fencing import ProducerIdentity
from goqueue.model.errors import (
    InvalidRequest,
    ProducerFenced,
    TransactionAborted,
    TransactionConflict,
    TransactionNotFound,
)


def an_id(producer: ProducerIdentity, number: int = 1) -> str:
    return f"{producer.producer_id}-{producer.epoch}-{number:016x}"


def joined(it: Bench, producer: ProducerIdentity, transaction_id: str, timeout_ms: int = 0) -> OpenTransaction:
    return it.transactions.joined(transaction_id, producer.producer_id, producer.epoch, timeout_ms)


@on_a_loop
async def test_what_comes_first_begins_it_and_what_comes_next_joins() -> None:
    async with bench() as it:
        producer = await it.transactions.init("app", 5_000)
        begun = joined(it, producer, an_id(producer))
        assert (begun.transaction_id, begun.name) == (an_id(producer), "app")
        assert begun.deadline_ns - begun.started_ns == 5_000 * 10**6
        assert joined(it, producer, an_id(producer)) is begun
        await it.publish(begun, b"v")
        await it.transactions.commit(begun.transaction_id, Known(begun.incarnation, 1))
        assert await it.values() == [b"v"]
        with pytest.raises(TransactionConflict, match="is committed"):
            joined(it, producer, an_id(producer))


@on_a_loop
async def test_only_its_own_producer_begins_it_and_only_under_a_sound_id() -> None:
    async with bench() as it:
        producer, other = await it.transactions.init("app"), await it.transactions.init()
        with pytest.raises(TransactionConflict, match="not of producer"):
            joined(it, producer, an_id(other))
        for wrong in (
            "x",
            f"{producer.producer_id}-{producer.epoch}-1",
            f"{an_id(producer)}0",
            an_id(producer).upper() + "G",
        ):
            with pytest.raises((InvalidRequest, TransactionConflict)):
                joined(it, producer, wrong)
        with pytest.raises(InvalidRequest, match="timeout_ms"):
            joined(it, producer, an_id(producer), 1 << 50)
        with pytest.raises(TransactionNotFound):
            it.transactions.joined(an_id(producer), producer.producer_id, producer.epoch)
        assert it.transactions.coordinators.all_open() == []
        joined(it, producer, an_id(producer))
        with pytest.raises(TransactionConflict, match="must end first"):
            joined(it, producer, an_id(producer, 2))
        await it.transactions.init("app")
        with pytest.raises(ProducerFenced):
            joined(it, producer, an_id(producer, 3))


@on_a_loop
async def test_what_comes_late_does_not_begin_again_what_was_aborted() -> None:
    async with bench() as it:
        producer = await it.transactions.init()
        begun = joined(it, producer, an_id(producer))
        await it.transactions.abort(begun.transaction_id)
        with pytest.raises(TransactionAborted, match="its producer asked"):
            joined(it, producer, an_id(producer))
        assert it.transactions.coordinators.all_open() == []


@on_a_loop
async def test_what_a_start_has_cut_in_two_is_not_committed() -> None:
    """The first half was aborted by the start; to the broker the second half looks like all of it."""
    async with bench() as it:
        producer = await it.transactions.init("app")
        first = joined(it, producer, an_id(producer))
        await it.publish(first, b"first half")
        knows = Known(first.incarnation, 2)
        await it.restart()
        second = joined(it, producer, an_id(producer))
        assert second.incarnation != knows.incarnation
        await it.publish(second, b"second half")
        with pytest.raises(TransactionAborted, match="started again"):
            await it.transactions.commit(an_id(producer), knows)
        assert await it.values() == []
        assert it.transactions.coordinators.all_open() == []


@pytest.mark.parametrize("verb", ["commit", "prepare"])
@on_a_loop
async def test_what_lacks_messages_is_neither_committed_nor_prepared(verb: str) -> None:
    async with bench() as it:
        end = it.transactions.commit if verb == "commit" else it.transactions.prepare
        producer = await it.transactions.init()
        begun = joined(it, producer, an_id(producer))
        await it.publish(begun, b"one")
        with pytest.raises(TransactionAborted, match="started again"):
            await end(begun.transaction_id, Known(begun.incarnation, 2))
        assert await it.values() == []


@on_a_loop
async def test_what_is_prepared_is_committed_in_the_next_life_as_well() -> None:
    async with bench() as it:
        producer = await it.transactions.init()
        begun = joined(it, producer, an_id(producer))
        await it.publish(begun, b"v")
        knows = Known(begun.incarnation, 1)
        await it.transactions.prepare(begun.transaction_id, knows)
        await it.restart()
        await it.transactions.commit(an_id(producer), knows)
        await it.transactions.commit(an_id(producer), knows)
        assert await it.values() == [b"v"]


@on_a_loop
async def test_an_abort_that_overtakes_the_first_batch_stands() -> None:
    """They come over two streams, so either may be first; readers must not wait for a transaction that nobody ends."""
    async with bench() as it:
        producer, other = await it.transactions.init(), await it.transactions.init()
        await it.transactions.abort_own(an_id(producer), producer.producer_id, producer.epoch)
        with pytest.raises(TransactionAborted, match="its producer asked"):
            joined(it, producer, an_id(producer))
        with pytest.raises(TransactionConflict):
            await it.transactions.abort_own(an_id(other), producer.producer_id, producer.epoch)
        assert it.transactions.coordinators.all_open() == []
