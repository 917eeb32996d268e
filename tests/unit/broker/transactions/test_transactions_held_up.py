"""Transactions whose end cannot be written everywhere at once: how they were decided is what becomes of them."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest
from doubles import coordinators
from doubles.async_tests import until
from doubles.loop import on_a_loop
from doubles.transaction_bench import OTHER, TOPIC, Bench, bench

import goqueue.broker.transactions.completion
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.truncation import truncate_partition
from goqueue.broker.transactions.commit_abort import Known
from goqueue.broker.transactions.completion import TransactionCompletion
from goqueue.model.errors import DiskFull, TransactionAborted
from goqueue.storage.log.group_commit import GroupCommit
from goqueue.storage.log.log import Log
from goqueue.wire.producer_frames import Marker


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goqueue.broker.transactions.completion, "_TRY_AGAIN_S", 0.001)
    monkeypatch.setattr(goqueue.broker.transactions.completion, "_GATHERING_S", 0.0)


def cannot_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no room for a marker whenever one says that a transaction was committed."""
    append_marker = Partition.append_marker

    def mark_aborts(partition: Partition, marker: Marker, reason: str = "") -> int:
        if marker.is_commit:
            raise DiskFull("no room", retry_after_s=1)
        return append_marker(partition, marker, reason)

    monkeypatch.setattr(Partition, "append_marker", mark_aborts)


def cannot_tell(monkeypatch: pytest.MonkeyPatch, it: Bench) -> None:
    """The same for a group that is to hear what becomes of its acks."""

    def commit(*_: object) -> None:
        raise DiskFull("no room", retry_after_s=1)

    monkeypatch.setattr(type(it.broker.groups.transactional_acks), "commit", commit)


@on_a_loop
async def test_a_start_that_has_no_room_for_a_marker_aborts_nothing_that_was_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as it:
        transaction = await it.begin()
        await it.publish(transaction, b"v")
        with monkeypatch.context() as patched:
            cannot_commit(patched)
            await it.commit(transaction)
            assert await it.values() == []
            await it.restart()
        await until(lambda: not it.transactions.held_up())
        assert await it.values() == [b"v"]


@on_a_loop
async def test_a_start_that_cannot_tell_a_group_gives_nothing_again_that_was_acked_in_what_was_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as it:
        await it.join()
        await it.publish(None, b"v")
        transaction = await it.begin()
        await it.ack_in(transaction, await it.poll())
        with monkeypatch.context() as patched:
            cannot_tell(patched, it)
            await it.commit(transaction)
            await it.restart()
            await it.join()
            assert await it.poll() == []
        await until(lambda: it.committed() == 1)


@on_a_loop
async def test_the_end_of_a_transaction_is_not_noted_while_a_marker_is_not_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a start would know nothing of it, and abort where the marker is gone."""
    async with bench() as it:
        transaction = await it.begin()
        await it.publish(transaction, b"v")
        await it.publish(transaction, b"w", topic=OTHER)
        log = it.broker.topic(OTHER).partitions[0].log
        made_durable = TransactionCompletion._made_durable

        async def with_a_failing_disk(ends: TransactionCompletion, endings: object) -> set[Partition]:
            log.fail("its disk")
            return await made_durable(ends, endings)  # type: ignore[arg-type]

        monkeypatch.setattr(TransactionCompletion, "_made_durable", with_a_failing_disk)
        await it.commit(transaction)
        await until(lambda: coordinators.are_noted(it.broker))
        assert coordinators.decided(it.broker) == [transaction.transaction_id]


@on_a_loop
async def test_a_transaction_is_aborted_whole_if_a_topic_goes_while_it_is_made_safe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as it:
        transaction = await it.begin()
        await it.publish(transaction, b"v")
        await it.publish(transaction, b"w", topic=OTHER)
        log, durable = it.broker.topic(OTHER).partitions[0].log, GroupCommit.reached

        async def and_lose_the_topic(wait: Awaitable[None]) -> None:
            await wait
            await it.broker.delete_topic(OTHER)

        def durable_and_gone(commits: GroupCommit, of: Log, offset: int) -> Awaitable[None]:
            wait = durable(commits, of, offset)
            return and_lose_the_topic(wait) if of is log else wait

        monkeypatch.setattr(GroupCommit, "reached", durable_and_gone)
        with pytest.raises(TransactionAborted):
            await it.commit(transaction)
        assert await it.values() == []


@on_a_loop
async def test_no_id_is_given_before_the_block_that_it_is_of_is_reserved() -> None:
    async with bench() as it:
        reserved = it.transactions.coordinators.ids
        given = set()
        for _ in range(1_500):
            producer = await it.transactions.init()
            assert producer.producer_id not in given
            given.add(producer.producer_id)
            assert it.transactions.producers._next <= reserved.reserved


@on_a_loop
@pytest.mark.parametrize("missing", ["an incarnation", "a message"])
async def test_a_transaction_is_committed_only_if_it_is_all_that_its_producer_has_written(missing: str) -> None:
    """A start aborts what is open; what its producer sends next may have begun it anew, without the rest."""
    async with bench() as it:
        transaction = await it.begin()
        await it.publish(transaction, b"v")
        incarnation = transaction.incarnation
        knows = Known(incarnation - 1, 1) if missing == "an incarnation" else Known(incarnation, 2)
        with pytest.raises(TransactionAborted):
            await it.transactions.commit(transaction.transaction_id, knows)
        assert await it.values() == []
        other = await it.begin()
        await it.publish(other, b"w")
        await it.transactions.commit(other.transaction_id, Known(other.incarnation, 1))
        assert await it.values() == [b"w"]


async def cut(it: Bench, offset: int) -> None:
    broker = it.broker
    assert await truncate_partition(broker.topic(TOPIC), 0, offset, broker.checkpoints, broker.stillness) == offset


@on_a_loop
async def test_a_transaction_of_which_a_part_was_cut_off_is_not_committed_although_others_have_its_offsets() -> None:
    async with bench() as it:
        transaction = await it.begin()
        await it.publish(transaction, b"1", b"2")
        await cut(it, 0)
        await it.publish(None, b"other", b"messages", b"follow")
        with pytest.raises(TransactionAborted, match="was cut back"):
            await it.commit(transaction)
        assert await it.values() == [b"other", b"messages", b"follow"]


@on_a_loop
async def test_a_marker_that_was_cut_off_is_written_again_by_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have its offset by then, and are durable: the transaction has not ended for that."""
    monkeypatch.setattr(goqueue.broker.transactions.completion, "_GATHERING_S", 1_000)
    async with bench() as it:
        transaction = await it.begin()
        await it.publish(transaction, b"committed")
        await it.commit(transaction)
        assert await it.values() == [b"committed"]
        await cut(it, 1)
        assert await it.values() == []
        await it.publish(None, b"other", b"messages")
        await it.restart()
        assert await it.values() == [b"committed", b"other", b"messages"]
