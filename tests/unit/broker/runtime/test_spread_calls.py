"""Waking many: a few in each round of the loop, so that whoever comes next has a turn in between."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from doubles.async_tests import until
from doubles.group_bench import GroupBench
from doubles.loop import on_a_loop

from goqueue.broker.partitions.delayed_records import read_delayed_records
from goqueue.broker.runtime.named_timers import NamedTimers
from goqueue.broker.runtime.spread_calls import AT_A_ROUND, SpreadCalls, wake
from goqueue.broker.runtime.time_slices import TimeSlice
from goqueue.broker.shards import group_runtime
from goqueue.broker.shards.group_runtime import GroupRuntime
from goqueue.model.config import Config, StorageConfig
from goqueue.model.publishing import NewMessage

MANY = 10 * AT_A_ROUND + 3
HOUR_MS = 3_600_000


def bench(path: Path) -> GroupBench:
    return GroupBench(Config(storage=StorageConfig(path=str(path), min_free_bytes=0)))


@on_a_loop
async def test_a_few_are_done_at_once_and_the_others_a_few_in_each_round_in_their_order() -> None:
    done: list[int] = []
    rounds = SpreadCalls(done.append)
    rounds.add(range(3))
    assert done == [0, 1, 2]
    rounds.add(range(3, MANY))
    # They wait already.
    rounds.add(range(3 + AT_A_ROUND, MANY))
    for turn in range(1, 2 + MANY // AT_A_ROUND):
        assert done == list(range(min(MANY, 3 + turn * AT_A_ROUND)))
        await asyncio.sleep(0)
    assert done == list(range(MANY))
    # Who was done is done again when it is asked for again.
    rounds.add([0])
    assert done[-1] == 0


@on_a_loop
async def test_one_that_fails_takes_none_of_the_others_with_it() -> None:
    done: list[int] = []

    def do(item: int) -> None:
        if item == 1:
            raise ValueError
        done.append(item)

    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    rounds = SpreadCalls(do)
    with pytest.raises(ValueError):
        rounds.add(range(MANY))
    await until(lambda: len(done) == MANY - 1)


@on_a_loop
async def test_whoever_publishes_does_not_wait_for_all_who_wait_for_messages(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        partition = it.broker.topic("t").partition(0)
        waiters = [asyncio.get_running_loop().create_future() for _ in range(MANY)]
        for each in waiters:
            partition.add_waiter(each)
        partition.wake()
        woken = [sum(each.done() for each in waiters)]
        while woken[-1] < MANY:
            await asyncio.sleep(0)
            woken.append(sum(each.done() for each in waiters))
        assert max(now - before for before, now in zip([0, *woken], woken, strict=False)) <= AT_A_ROUND


@on_a_loop
async def test_a_message_for_many_groups_wakes_a_few_of_them_in_each_round(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        polls = []
        for number in range(MANY):
            member = await it.join(f"g{number}")
            polls.append(it.polling(member, group=f"g{number}", wait_ms=HOUR_MS))
            await it.waiting(1, f"g{number}")
        news = it.broker.groups.shards.news
        woken: list[str] = []
        told = news._wake_one
        news._rounds._do = lambda each: (woken.append(each[0]), told(each))[1]
        it.broker.topic("t").partition(0).wake()
        assert len(woken) == AT_A_ROUND
        await asyncio.sleep(0)
        assert len(woken) == 2 * AT_A_ROUND
        await it.publish(b"x")
        found = await asyncio.gather(*polls)
        assert [len(each) for each in found] == [1] * MANY


@on_a_loop
async def test_members_of_a_large_group_hear_of_many_changes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_runtime, "_PAUSE_S_EACH", 3_600.0)
    runtime = GroupRuntime("g", {}, SpreadCalls(wake))
    told = [0] * MANY
    last = [0] * MANY

    async def member(number: int) -> None:
        while True:
            last[number] = await runtime.wait_for_change(last[number])
            told[number] += 1

    members = [asyncio.create_task(member(number)) for number in range(MANY)]
    await asyncio.sleep(0)
    for number in range(MANY):
        runtime.session(f"m{number}", 0)
        runtime.notify_change()
        for _ in range(20):
            await asyncio.sleep(0)
    before = group_runtime._FEW_MEMBERS
    # One by one while they were few, once more when they had become many, and then with a pause.
    assert set(told) == {before + 1}
    assert runtime._notification is not None
    runtime._notify()
    await until(lambda: set(last) == {runtime.version})
    assert set(told) == {before + 2} and runtime.version == MANY
    # The end of a group waits for no pause.
    runtime.notify_change()
    runtime.end()
    await until(lambda: set(last) == {MANY + 2})
    assert runtime._notification is None
    for each in members:
        each.cancel()
    await asyncio.gather(*members, return_exceptions=True)


@on_a_loop
async def test_who_joins_sets_an_alarm_for_itself_and_for_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as it:
        await it.topic(partitions=2)
        alarms = it.broker.groups.shards.of("g").group_times
        count = 0
        set_one = NamedTimers.set

        def counted(self: NamedTimers, name: str, at_ns: int | None) -> None:
            nonlocal count
            count += self is alarms
            set_one(self, name, at_ns)

        monkeypatch.setattr(NamedTimers, "set", counted)
        counts = []
        for _ in range(40):
            count = 0
            await it.join(kind="range")
            counts.append(count)
        assert set(counts) == {1}


@on_a_loop
async def test_reading_what_is_due_from_all_over_a_log_lets_others_run_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if each message took as long as a stretch may."""
    monkeypatch.setattr(TimeSlice, "is_over", property(lambda _self: True))
    async with bench(tmp_path) as it:
        await it.topic()
        far_apart = range(0, 2_000, 40)
        delayed = [NewMessage(b"v", delay_ms=HOUR_MS if number in far_apart else None) for number in range(2_000)]
        await it.broker.publish("t", delayed)
        rounds = 0

        async def others() -> None:
            nonlocal rounds
            while True:
                rounds += 1
                await asyncio.sleep(0)

        running = asyncio.create_task(others())
        await asyncio.sleep(0)
        before = rounds
        found, looked = await read_delayed_records(it.broker.topic("t").partition(0), list(far_apart), 1 << 20)
        assert (len(found), looked) == (len(far_apart), len(far_apart))
        assert rounds - before >= len(far_apart)
        running.cancel()
