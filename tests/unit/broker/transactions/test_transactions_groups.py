"""What groups see of transactions, and what they do in them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from doubles.async_tests import until
from doubles.group_ledger import settled
from doubles.loop import on_a_loop
from doubles.transaction_bench import GROUP, OTHER, TOPIC, Bench, bench

from goqueue.broker.transactions.open_transactions import AbortCause, AbortReason
from goqueue.model.errors import StaleReceipt
from goqueue.model.message import Priority


def got(found: list[Any]) -> list[bytes]:
    return [each.value for each in found]


async def polled_out(it: Bench, group: str = GROUP) -> list[bytes]:
    """Everything that a group has to give now."""
    found: list[bytes] = []
    while some := await it.poll(group=group):
        found += got(some)
        await it.settle("ack", some)
    return found


# What is seen


@on_a_loop
@pytest.mark.parametrize("settings", [{}, {"ordering": "key"}, {"mode": "stream", "kind": "range"}], ids=str)
async def test_a_group_gets_what_was_committed_and_nothing_else(settings: dict[str, object]) -> None:
    async with bench() as it:
        await it.join(**settings)
        kept, dropped, left = await it.begin(), await it.begin(), await it.begin()
        for turn in range(3):
            await it.publish(kept, b"kept %d" % turn, key=b"k")
            await it.publish(dropped, b"dropped %d" % turn, key=b"k")
            await it.publish(None, b"plain %d" % turn, key=b"k")
        await it.publish(left, b"left")
        await it.publish(None, b"behind")
        assert got(await it.poll()) == []
        await it.abort(dropped)
        await it.commit(kept)
        found = []
        for _ in range(20):
            some = await it.poll()
            found += got(some)
            if "mode" not in settings:
                await it.settle("ack", some)
        expected = [word + b" %d" % turn for turn in range(3) for word in (b"kept", b"plain")]
        assert found == expected
        await it.abort(left)
        assert got(await it.poll()) == [b"behind"]
        assert await it.poll() == []


@on_a_loop
async def test_what_was_aborted_is_not_delivered_from_any_lane() -> None:
    async with bench() as it:
        await it.join()
        lanes = list(Priority)
        kept, dropped = await it.begin(), await it.begin()
        for lane in lanes:
            await it.publish(dropped, b"dropped", priority=lane)
            await it.publish(kept, b"kept %d" % lane, priority=lane)
            await it.publish(dropped, b"dropped", priority=lane)
        await it.abort(dropped)
        await it.commit(kept)
        assert it.lag() == len(lanes)
        assert sorted(await polled_out(it)) == [b"kept %d" % lane for lane in lanes]
        assert it.lag() == 0


@on_a_loop
@pytest.mark.parametrize("settings", [{}, {"ordering": "key"}, {"mode": "stream", "kind": "range"}], ids=str)
@pytest.mark.parametrize("lanes", [[2], [0], [4, 2, 0]], ids=str)
async def test_a_partition_that_ends_with_what_was_aborted_is_done_and_a_poll_there_waits(
    settings: dict[str, object], lanes: list[int]
) -> None:
    async with bench() as it:
        await it.join(**settings)
        await it.publish(None, b"first", key=b"k")
        dropped = await it.begin()
        for lane in lanes:
            await it.publish(dropped, b"dropped", key=b"k", priority=lane)
        await it.abort(dropped)
        looks = count_looks(it)
        some = await it.poll()
        assert got(some) == [b"first"]
        if "mode" in settings:
            await it.broker.groups.offsets.commit(GROUP, it.members[GROUP], {TOPIC: {0: 1}}, generation_of(it))
        else:
            await it.settle("ack", some)
        assert await it.poll() == []
        assert it.lag() == 0
        looks.clear()
        waiting = asyncio.create_task(it.poll(wait_ms=10_000))
        await turns(60)
        assert not waiting.done()
        assert len(looks) < 5, "a poll that has nothing to do keeps looking"
        await it.publish(None, b"last", key=b"k")
        assert got(await waiting) == [b"last"]


@on_a_loop
@pytest.mark.parametrize("settings", [{}, {"ordering": "key"}, {"mode": "stream", "kind": "range"}], ids=str)
async def test_a_poll_waits_for_a_transaction_to_end_and_gets_what_it_has_written(settings: dict[str, object]) -> None:
    async with bench() as it:
        await it.join(**settings)
        transaction = await it.begin()
        await it.publish(transaction, b"a", priority=0)
        await it.publish(None, b"b")
        looks = count_looks(it)
        waiting = asyncio.create_task(it.poll(wait_ms=10_000))
        await turns(60)
        assert not waiting.done()
        assert len(looks) < 5
        assert it.lag() == 0
        await it.commit(transaction)
        assert sorted(got(await waiting)) == [b"a", b"b"]


@on_a_loop
async def test_lag_counts_what_is_left_of_every_lane() -> None:
    async with bench() as it:
        await it.join()
        for turn in range(4):
            transaction = await it.begin()
            for lane in (0, 2, 4):
                await it.publish(transaction, b"%d %d" % (turn, lane), priority=lane)
            await (it.commit if turn % 2 else it.abort)(transaction)
        left = 6
        assert it.lag() == left
        while some := await it.poll(1):
            await it.settle("ack", some)
            left -= 1
            assert it.lag() == left
        assert left == 0


def count_looks(it: Bench) -> list[str]:
    """Every attempt of a poll from now on."""
    looks: list[str] = []
    polling = it.broker.groups.polling
    attempt = polling._attempt

    async def counted(*args: Any) -> Any:
        looks.append("look")
        return await attempt(*args)

    polling._attempt = counted  # type: ignore[method-assign]
    return looks


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def generation_of(it: Bench, group: str = GROUP) -> int:
    return it.broker.groups.shards.find(group).group.state.generation


# Acks in a transaction


@on_a_loop
async def test_an_ack_in_a_transaction_counts_when_that_is_committed() -> None:
    async with bench() as it:
        await it.join()
        await it.publish(None, b"a", b"b")
        transaction = await it.begin()
        await it.ack_in(transaction, await it.poll())
        assert it.committed() == 0
        assert it.lag() == 2
        await it.commit(transaction)
        assert it.committed() == 2
        assert it.lag() == 0
        assert await it.poll() == []


@on_a_loop
async def test_messages_that_were_acked_in_a_transaction_come_again_when_it_is_aborted_and_the_delivery_counts() -> (
    None
):
    async with bench() as it:
        await it.join()
        await it.publish(None, b"a", b"b")
        transaction = await it.begin()
        await it.ack_in(transaction, await it.poll())
        await it.abort(transaction)
        assert [(each.value, each.count) for each in await it.poll()] == [(b"a", 2), (b"b", 2)]


@on_a_loop
async def test_rule_21_an_ack_inside_a_transaction_freezes_the_messages_visibility_until_the_transaction_ends() -> None:
    async with bench(topic={"visibility_timeout_ms": 1_000}) as it:
        await it.join(session_timeout_ms=1_800_000)
        await it.publish(None, b"a")
        some = await it.poll()
        transaction = await it.begin()
        await it.ack_in(transaction, some)
        await it.ack_in(transaction, some)
        it.pass_ms(30_000)
        assert await it.poll() == []
        for verb in ("ack", "nack", "extend", "reject", "release"):
            [refusal] = await it.settle(verb, some)
            assert isinstance(refusal, StaleReceipt), verb
        with pytest.raises(StaleReceipt, match="has not ended"):
            await it.ack_in(await it.begin(), some)
        await it.broker.groups.membership.leave(GROUP, it.members[GROUP])
        await it.join()
        assert await it.poll() == []
        it.pass_ms(30_001)
        await turns(20)
        assert [(each.value, each.count) for each in await it.poll()] == [(b"a", 2)]


@on_a_loop
async def test_what_one_transaction_has_acked_stays_frozen_when_another_is_aborted() -> None:
    async with bench() as it:
        await it.join()
        await it.publish(None, b"a", b"b", b"c")
        some = await it.poll()
        first, second = await it.begin(), await it.begin()
        await it.ack_in(first, some[:1])
        await it.ack_in(second, some[1:2])
        await it.abort(first)
        assert got(await it.poll()) == [b"a"]
        await it.commit(second)
        assert it.lag() == 2


@on_a_loop
async def test_a_message_that_was_tried_often_enough_is_a_dead_letter_when_its_transaction_is_aborted() -> None:
    async with bench(topic={"max_retries": 0}) as it:
        await it.join()
        await it.publish(None, b"a")
        transaction = await it.begin()
        await it.ack_in(transaction, await it.poll())
        await it.abort(transaction)
        await settled(it.broker)
        assert await it.values(f"{TOPIC}.dlq") == [b"a"]
        assert await it.poll() == []


@on_a_loop
async def test_acks_of_several_groups_and_queues_are_all_in_a_transaction_or_none() -> None:
    async with bench() as it:
        await it.join()
        await it.join("h", OTHER)
        await it.publish(None, b"a")
        await it.publish(None, b"b", topic=OTHER)
        first, second = await it.poll(), await it.poll(group="h")
        await it.settle("ack", second)
        transaction = await it.begin()
        with pytest.raises(StaleReceipt):
            await it.ack_in(transaction, [*first, *second])
        assert transaction.is_empty
        assert await it.settle("ack", first) == [None]


@on_a_loop
async def test_a_reset_voids_what_a_transaction_holds() -> None:
    async with bench() as it:
        await it.join()
        await it.publish(None, b"a", b"b")
        transaction = await it.begin()
        await it.ack_in(transaction, await it.poll())
        await it.broker.groups.offsets.reset(GROUP, {TOPIC: {0: 1}})
        await it.commit(transaction)
        assert got(await it.poll()) == [b"b"]
        assert it.lag() == 1


@on_a_loop
async def test_a_group_that_is_deleted_under_a_transaction_does_not_keep_it_from_ending() -> None:
    async with bench() as it:
        for end in (it.commit, it.abort):
            await it.join()
            await it.publish(None, b"a")
            transaction = await it.begin()
            await it.publish(transaction, b"out", topic=OTHER)
            await it.ack_in(transaction, await it.poll())
            await it.broker.groups.membership.leave(GROUP, it.members[GROUP])
            await it.broker.groups.delete(GROUP)
            await end(transaction)
        assert await it.values(OTHER) == [b"out"]


@on_a_loop
async def test_a_key_is_free_again_when_the_transaction_that_acked_its_message_ends() -> None:
    async with bench() as it:
        await it.join(ordering="key")
        await it.publish(None, b"a", b"b", key=b"k")
        for end, expected in ((it.abort, b"a"), (it.commit, b"b")):
            some = await it.poll()
            assert got(some) == [b"a"]
            transaction = await it.begin()
            await it.ack_in(transaction, some)
            assert await it.poll() == []
            waiting = asyncio.create_task(it.poll(1, wait_ms=10_000))
            await turns(20)
            await end(transaction)
            [again] = await waiting
            assert again.value == expected
            await it.settle("release", [again])


@on_a_loop
async def test_committing_an_offset_of_a_queue_in_a_transaction_freezes_what_was_delivered_below() -> None:
    async with bench() as it:
        await it.join()
        await it.publish(None, b"a", b"b", b"c")
        await it.poll(2)
        transaction = await it.begin()
        await it.transactions.add_offsets(transaction, GROUP, it.members[GROUP], {TOPIC: {0: 3}})
        await it.commit(transaction)
        assert it.committed() == 2
        assert got(await it.poll()) == [b"c"]


@on_a_loop
async def test_a_member_that_froze_what_it_had_lets_go_of_its_partition() -> None:
    async with bench() as it:
        await it.join(kind="sticky", topic=TOPIC)
        await it.publish(None, b"a")
        transaction = await it.begin()
        await it.ack_in(transaction, await it.poll())
        first = it.members[GROUP]
        second = await it.join(kind="sticky", name="second")
        await it.broker.groups.membership.leave(GROUP, first)
        assert await it.poll(member=second) == []
        await it.abort(transaction)
        assert got(await it.poll(member=second)) == [b"a"]


# Offsets of streams

STREAM: dict[str, object] = {"mode": "stream", "kind": "range"}


async def add_offset(it: Bench, transaction: Any, offset: int, member: str | None = None) -> None:
    await it.transactions.add_offsets(
        transaction, GROUP, member or it.members[GROUP], {TOPIC: {0: offset}}, generation_of(it)
    )


@on_a_loop
async def test_a_stream_goes_on_where_a_transaction_says_once_it_is_committed_and_never_back() -> None:
    async with bench() as it:
        await it.join(**STREAM)
        await it.publish(None, b"a", b"b", b"c")
        await it.poll()
        early, late = await it.begin(), await it.begin()
        await add_offset(it, early, 1)
        await add_offset(it, late, 3)
        await add_offset(it, late, 2)
        assert it.committed() == 0
        await it.commit(late)
        assert it.committed() == 3
        await it.commit(early)
        assert it.committed() == 3


@on_a_loop
async def test_a_member_of_a_stream_reads_again_what_its_aborted_transaction_had_read() -> None:
    async with bench() as it:
        await it.join(**STREAM)
        await it.publish(None, b"a", b"b")
        assert got(await it.poll()) == [b"a", b"b"]
        transaction = await it.begin()
        await add_offset(it, transaction, 2)
        waiting = asyncio.create_task(it.poll(wait_ms=10_000))
        await turns(20)
        await it.abort(transaction)
        assert got(await waiting) == [b"a", b"b"]


@on_a_loop
async def test_a_reset_that_comes_after_an_offset_was_added_has_the_last_word() -> None:
    async with bench() as it:
        await it.join(**STREAM)
        await it.publish(None, b"a", b"b", b"c")
        await it.poll()
        await it.broker.groups.offsets.commit(GROUP, it.members[GROUP], {TOPIC: {0: 1}}, generation_of(it))
        transaction = await it.begin()
        await add_offset(it, transaction, 3)
        await it.broker.groups.offsets.reset(GROUP, {TOPIC: {0: 0}})
        await it.commit(transaction)
        assert it.committed() == 0


@on_a_loop
@pytest.mark.parametrize("is_commit", [True, False])
async def test_whoever_gets_the_partition_of_a_member_waits_for_the_transaction_that_this_one_left(
    is_commit: bool,
) -> None:
    async with bench() as it:
        first = await it.join(**STREAM)
        await it.publish(None, b"a", b"b")
        await it.poll()
        transaction = await it.begin()
        await add_offset(it, transaction, 1)
        await it.broker.groups.membership.leave(GROUP, first)
        second = await it.join(**STREAM, name="second")
        looks = count_looks(it)
        waiting = asyncio.create_task(it.poll(member=second, wait_ms=10_000))
        await turns(60)
        assert not waiting.done()
        assert len(looks) < 5
        await (it.commit if is_commit else it.abort)(transaction)
        assert got(await waiting) == ([b"b"] if is_commit else [b"a", b"b"])
        # What the first one's transaction was is of no interest any more.
        assert await it.poll(member=second) == []


@on_a_loop
async def test_a_transaction_that_is_aborted_late_does_not_make_the_next_member_read_again() -> None:
    async with bench() as it:
        first = await it.join(**STREAM)
        await it.publish(None, b"a", b"b")
        await it.poll()
        transaction = await it.begin()
        await add_offset(it, transaction, 1)
        await it.broker.groups.membership.leave(GROUP, first)
        second = await it.join(**STREAM, name="second")
        await it.broker.groups.offsets.commit(GROUP, second, {TOPIC: {0: 1}}, generation_of(it))
        assert got(await it.poll(member=second)) == [b"b"]
        await it.abort(transaction)
        assert await it.poll(member=second) == []


@on_a_loop
async def test_a_partition_changes_hands_when_the_transaction_that_was_waited_for_is_committed() -> None:
    async with bench(topic={"partitions": 2}) as it:
        first = await it.join(kind="sticky", mode="stream")
        for partition in (0, 1):
            await it.publish(None, b"a", partition=partition)
        while await it.poll():
            pass
        transaction = await it.begin()
        both = {TOPIC: {0: 1, 1: 1}}
        await it.transactions.add_offsets(transaction, GROUP, first, both, generation_of(it))
        await it.join(kind="sticky", mode="stream", name="second")
        group = it.broker.groups.shards.find(GROUP).group
        assert len(group.state.handovers) == 1
        await it.commit(transaction)
        assert not group.state.handovers


@on_a_loop
async def test_what_a_producer_gave_up_comes_again_after_a_pause_and_what_was_ended_for_it_at_once() -> None:
    """Else a short trouble would use up all tries of every message within milliseconds."""
    async with bench() as it:
        await it.broker.change_topic(TOPIC, {"retry_backoff_ms": 1_000, "max_retries": 1})
        await it.publish(None, b"v")
        await it.join()
        transaction = await it.begin()
        await it.ack_in(transaction, await it.poll())
        own = transaction.producer_id, transaction.epoch
        await it.transactions.abort_own(transaction.transaction_id, *own, "no database")
        assert await it.poll() == []
        it.pass_ms(1_000)
        [again] = await it.poll()
        assert again.count == 2
        transaction = await it.begin()
        await it.ack_in(transaction, [again])
        await it.transactions.abort_own(transaction.transaction_id, transaction.producer_id, transaction.epoch)
        await until(lambda: "t.dlq" in it.broker.topic_names())
        await it.publish(None, b"w")
        [other] = await it.poll()
        transaction = await it.begin()
        await it.ack_in(transaction, [other])
        await it.transactions.abort(transaction.transaction_id, AbortReason(AbortCause.OPERATOR))
        assert [each.value for each in await it.poll()] == [b"w"]
