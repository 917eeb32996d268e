"""Waiting polls: who is woken, and that nobody is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from doubles.group_bench import GroupBench
from doubles.loop import on_a_loop

from goqueue.broker.groups.membership import Join
from goqueue.broker.queues.polling import PollBounds
from goqueue.model.config import Config, LimitsConfig, StorageConfig
from goqueue.model.errors import GroupNotFound, UnknownMember


@asynccontextmanager
async def bench(path: Path, **limits: int) -> AsyncIterator[GroupBench]:
    config = Config(storage=StorageConfig(path=str(path)), limits=LimitsConfig(**limits))
    async with GroupBench(config) as made:
        yield made


@on_a_loop
async def test_a_poll_waits_and_wakes_at_once_when_a_message_arrives(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        poll = it.polling(await it.join())
        await it.waiting(1)
        await it.publish(b"x")
        async with asyncio.timeout(60):
            assert [each.value for each in await poll] == [b"x"]


@on_a_loop
async def test_a_poll_that_finds_nothing_in_time_answers_with_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        assert await it.poll(await it.join(), wait_ms=20) == []
        assert not it.broker.groups.shards.find("g").runtime.waiters


@on_a_loop
async def test_one_message_wakes_one_of_those_who_wait_and_the_longest_first(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        polls = []
        for number in range(3):
            polls.append(it.polling(await it.join(kind="shared")))
            await it.waiting(number + 1)
        for number in range(3):
            await it.publish(b"%d" % number)
            async with asyncio.timeout(60):
                assert [each.value for each in await polls[number]] == [b"%d" % number]
            assert not any(poll.done() for poll in polls[number + 1 :])


@on_a_loop
async def test_what_one_leaves_behind_is_for_the_next_who_waits(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        polls = []
        for number in range(3):
            polls.append(it.polling(await it.join(kind="shared"), most=1))
            await it.waiting(number + 1)
        await it.publish(b"a", b"b", b"c")
        async with asyncio.timeout(60):
            got = [each.value for poll in polls for each in await poll]
        assert sorted(got) == [b"a", b"b", b"c"]


@on_a_loop
async def test_a_poll_that_is_given_up_just_when_it_is_woken_wakes_the_next(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        await it.publish(b"x")
        member = await it.join(kind="shared")
        await it.nack(*await it.poll(member), delay_ms=700)
        first = it.polling(member)
        await it.waiting(1)
        second = it.polling(await it.join(kind="shared"))
        await it.waiting(2)
        it.pass_time(700)
        first.cancel()
        async with asyncio.timeout(60):
            assert [each.value for each in await second] == [b"x"]


@on_a_loop
async def test_a_poll_that_is_woken_just_when_its_time_is_over_takes_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        await it.publish(b"x")
        member = await it.join()
        await it.nack(*await it.poll(member), delay_ms=700)
        loop = asyncio.get_running_loop()
        loop_time, ahead_s = loop.time, [0.0]
        monkeypatch.setattr(loop, "time", lambda: loop_time() + ahead_s[0])
        poll = it.polling(member, wait_ms=30_000)
        await it.waiting(1)

        def block() -> None:
            # What is called next comes in the same round of the loop as the timer of the poll, and before it.
            ahead_s[0] = 31.0
            loop.call_soon(it.pass_time, 700)

        loop.call_soon(block)
        async with asyncio.timeout(60):
            assert [each.value for each in await poll] == [b"x"]


@on_a_loop
async def test_a_member_without_room_is_woken_by_its_own_ack(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join(max_in_flight=2)
        await it.publish(b"a", b"b", b"c")
        got = await it.poll(member)
        assert len(got) == 2
        poll = it.polling(member)
        await it.waiting(1)
        await it.ack(got[0])
        async with asyncio.timeout(60):
            assert [each.value for each in await poll] == [b"c"]


@on_a_loop
async def test_a_member_may_wish_for_less_in_flight_than_its_group_allows_and_not_for_more(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join(max_in_flight=3)
        await it.publish(*(b"%d" % number for number in range(9)))
        assert len(await it.poll(member, in_flight=2)) == 2
        assert await it.poll(member, in_flight=2) == []
        assert len(await it.poll(member, in_flight=99)) == 1
        assert await it.poll(member) == []


@on_a_loop
async def test_a_full_queue_goes_on_for_whoever_waits_when_another_makes_room(tmp_path: Path) -> None:
    async with bench(tmp_path, max_outstanding=2) as it:
        await it.topic()
        busy, idle = await it.join(kind="shared"), await it.join(kind="shared")
        await it.publish(b"a")
        await it.publish(b"b")
        got = await it.poll(busy, 1) + await it.poll(busy, 1)
        assert len(got) == 2
        await it.publish(b"c")
        poll = it.polling(idle)
        await it.waiting(1)
        await it.ack(*got)
        async with asyncio.timeout(60):
            assert [each.value for each in await poll] == [b"c"]


@on_a_loop
async def test_a_timeout_is_not_forgotten_when_an_earlier_one_was_settled(tmp_path: Path) -> None:
    """The alarm rings for the earlier, finds nothing to do, and must be set for the later."""
    async with bench(tmp_path) as it:
        await it.topic(visibility_timeout_ms=1_000)
        member, other = await it.join(kind="shared"), await it.join(kind="shared")
        await it.publish(b"a")
        await it.publish(b"b")
        (first,) = await it.poll(member, 1)
        it.pass_time(500)
        await it.poll(member, 1)
        await it.ack(first)
        poll = it.polling(other)
        await it.waiting(1)
        it.pass_time(500)
        it.pass_time(500)
        async with asyncio.timeout(60):
            assert [(each.value, each.count) for each in await poll] == [(b"b", 2)]


@on_a_loop
async def test_a_nacked_message_wakes_a_waiting_poll_when_its_time_has_come(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        await it.publish(b"a")
        await it.nack(*await it.poll(member), delay_ms=700)
        poll = it.polling(member)
        await it.waiting(1)
        it.pass_time(699)
        await asyncio.sleep(0)
        assert not poll.done()
        it.pass_time(1)
        async with asyncio.timeout(60):
            assert [each.count for each in await poll] == [2]


@on_a_loop
async def test_a_member_that_leaves_wakes_those_who_can_have_its_messages(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        for kind in ("shared", "range", "sticky"):
            await it.publish(b"x")
            first = await it.join(kind, kind=kind)
            got = await it.poll(first, group=kind)
            second = await it.join(kind, kind=kind)
            poll = it.polling(second, group=kind)
            await it.waiting(1, kind)
            await it.broker.groups.membership.leave(kind, first)
            async with asyncio.timeout(60):
                assert [each.count for each in await poll] == [2] * len(got)


@on_a_loop
async def test_a_poll_of_a_member_that_is_gone_ends_with_the_reason(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member, _ = await it.join(), await it.join()
        poll = it.polling(member)
        await it.waiting(1)
        await it.broker.groups.membership.leave("g", member)
        with pytest.raises(UnknownMember):
            async with asyncio.timeout(60):
                await poll


@on_a_loop
async def test_a_broker_that_stops_ends_every_wait(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        poll = it.polling(await it.join())
        await it.waiting(1)
        it.broker.stop_accepting()
        async with asyncio.timeout(60):
            assert await poll == []


@on_a_loop
async def test_groups_that_are_not_there_are_not_remembered(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        for number in range(5):
            with pytest.raises(GroupNotFound):
                await it.poll("m", group=f"none{number}")
        assert not it.broker.groups.shards._active


@on_a_loop
async def test_a_group_that_is_deleted_is_not_told_of_news_any_more(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        await it.broker.groups.membership.leave("g", member)
        await it.broker.groups.delete("g")
        assert not any(it.broker.groups.shards.news._groups_on.values())
        await it.publish(b"x")


@on_a_loop
async def test_a_long_poll_outlasts_its_session_without_keeping_the_broker_busy(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        join = Join("c", ["t"], session_timeout_ms=1_000)
        member = (await it.broker.groups.membership.join("g", join)).member_id
        poll = it.polling(member)
        await it.waiting(1)
        it.pass_time(5_000)
        times = it.broker.groups.shards.of("g").group_times
        assert min(at_ns for at_ns, _ in times._set.values()) > it.clock.now_ns(), "it would ring again and again"
        assert member in it.broker.groups.shards.find("g").group.state.members
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)
        it.pass_time(1_000)
        assert member not in it.broker.groups.shards.find("g").group.state.members


@on_a_loop
async def test_partitions_take_turns_to_be_first(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(partitions=3)
        member = await it.join()
        for number in range(60):
            await it.publish(b"x", key=b"%d" % number)
        first = [(await it.poll(member, 1))[0].partition for _ in range(6)]
        assert sorted(first) == [0, 0, 1, 1, 2, 2]


@on_a_loop
async def test_a_delivery_tells_when_it_is_anyones_again(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(visibility_timeout_ms=4_000)
        await it.publish(b"x")
        (got,) = await it.poll(await it.join())
        assert got.until_ns == it.clock.now_ns() + 4_000_000_000
        (streamed,) = await it.poll(await it.join("s", mode="stream"), group="s")
        assert streamed.until_ns == 0 and streamed.receipt is None and streamed.count == 0


@on_a_loop
async def test_nothing_more_is_polled_while_there_is_no_room_at_all(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        await it.publish(b"x")
        begun = asyncio.get_running_loop().time()
        assert await it.broker.groups.polling.poll("g", member, PollBounds(0, 100, 30)) == []
        assert asyncio.get_running_loop().time() - begun < 5


@on_a_loop
@pytest.mark.parametrize("ordering", ["none", "key"])
@pytest.mark.parametrize("seed", range(4))
async def test_nobody_sleeps_while_there_is_something_to_take(tmp_path: Path, ordering: str, seed: int) -> None:
    """Polls wait far longer than this test: one forgotten waiter, and it does not end."""
    rng = Random(seed)
    async with bench(tmp_path, max_outstanding=4, max_parked=3) as it:
        fsync = rng.choice(["always", "never"])
        await it.topic(partitions=2, max_retries=1_000, visibility_timeout_ms=1_000, fsync=fsync)
        settings = {"kind": "shared", "ordering": ordering, "max_in_flight": 3, "session_timeout_ms": 1_800_000}

        async def work(member: str) -> None:
            while True:
                for each in await it.poll(member, rng.choice([1, 2, 100]), wait_ms=600_000):
                    if rng.random() < 0.4:
                        await it.settle("nack", each, delay_ms=rng.choice([0, 1]))
                        it.pass_time(1)
                    else:
                        # It may have timed out meanwhile, and be another's.
                        await it.settle("ack", each)

        tasks = [asyncio.create_task(work(await it.join(**settings))) for _ in range(4)]
        for number in range(150):
            await it.publish(b"%d" % number, key=rng.choice([None, b"a", b"b"]))
            if rng.random() < 0.1:
                # Someone goes, and someone comes.
                tasks.pop(0).cancel()
                tasks.append(asyncio.create_task(work(await it.join(**settings))))
        async with asyncio.timeout(30):
            while it.lag():
                # What a cancelled worker had in hand comes back by time alone.
                it.pass_time(50)
                await asyncio.sleep(0.001)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
