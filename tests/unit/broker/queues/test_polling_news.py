"""News of a partition: groups that nobody waits in cost a publish nothing, and whoever waits is told."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest
from doubles.async_tests import until
from doubles.group_bench import GroupBench
from doubles.loop import on_a_loop

from goqueue.broker.runtime.spread_calls import SpreadCalls, wake
from goqueue.broker.shards.group_runtime import GroupRuntime, Waiter
from goqueue.model.config import Config, StorageConfig
from goqueue.model.errors import UnknownMember

_GROUPS = 30
_WAIT_MS = 600_000
"""Far longer than any of these tests: whoever is not woken hangs."""


def bench(path: Path) -> GroupBench:
    return GroupBench(Config(storage=StorageConfig(path=str(path))))


def lines_run(call: Callable[[], object]) -> int:
    """How many lines of Python a call takes."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


async def give_up(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@on_a_loop
async def test_a_publish_visits_no_group_that_nobody_waits_for(tmp_path: Path) -> None:
    """Groups without members, with members that do not poll, and with members that wait for room only."""
    async with bench(tmp_path) as it:
        await it.topic()
        await it.join("first")
        news = it.broker.topic("t").partition(0).wake
        alone = lines_run(news)
        await it.publish(b"x")
        polls = []
        for number in range(_GROUPS):
            name = f"g{number}"
            member = await it.join(name, max_in_flight=1)
            if number % 3 == 0:
                await it.broker.groups.membership.leave(name, member)
            elif number % 3 == 1:
                assert await it.poll(member, group=name)
                polls.append(it.polling(member, group=name, wait_ms=_WAIT_MS))
                await it.waiting(1, name)
        assert len(it.broker.groups.shards.groups_on(it.broker.topic("t").record.topic_id, 0)) == _GROUPS + 1
        assert lines_run(news) == alone
        await give_up(*polls)


@on_a_loop
async def test_a_publish_visits_the_groups_of_its_partition_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    visits: Counter[GroupRuntime] = Counter()
    wake_one = GroupRuntime.wake_one

    def counted(self: GroupRuntime, partition: str) -> None:
        visits[self] += 1
        wake_one(self, partition)

    async with bench(tmp_path) as it:
        await it.topic("t", fsync="never")
        await it.topic("other")
        polls = {}
        for number in range(_GROUPS):
            name, topic = f"g{number}", "t" if number % 3 else "other"
            member = await it.join(name, [topic], mode="stream" if number % 2 else "queue")
            if number < 10:
                polls[name] = it.polling(member, group=name, wait_ms=_WAIT_MS)
                await it.waiting(1, name)
        here = [name for name in polls if int(name[1:]) % 3]
        partition = it.broker.topic("t").partition(0)
        with monkeypatch.context() as patch:
            patch.setattr(GroupRuntime, "wake_one", counted)
            partition.wake()
        assert visits == {it.broker.groups.shards.find(name).runtime: 1 for name in here}
        await it.publish(b"x")
        async with asyncio.timeout(60):
            for name in here:
                assert [each.value for each in await polls.pop(name)] == [b"x"]
        assert not any(poll.done() for poll in polls.values())
        await give_up(*polls.values())


@on_a_loop
async def test_nobody_is_kept_who_does_not_wait_any_more(tmp_path: Path) -> None:
    """However the wait ended: woken, too late, given up, the member or the group gone."""
    async with bench(tmp_path) as it:
        await it.topic()
        takers = it.broker.groups.shards.news.takers
        member = await it.join(kind="shared")
        first, second = it.polling(member, wait_ms=_WAIT_MS), it.polling(member, wait_ms=_WAIT_MS)
        await it.waiting(2)
        await give_up(first)
        assert list(takers) == ["g"], "one of two still waits"
        await it.publish(b"x")
        await second
        assert not takers
        assert await it.poll(member, wait_ms=10) == []
        assert not takers
        leaving = it.polling(member, wait_ms=_WAIT_MS)
        await it.waiting(1)
        await it.broker.groups.membership.leave("g", member)
        await it.broker.groups.delete("g")
        with pytest.raises(UnknownMember):
            await leaving
        assert not takers


def _waiter(loop: asyncio.AbstractEventLoop, *, has_room: bool = True) -> Waiter:
    return Waiter("m", frozenset({"t/0"}), has_room, loop.create_future())


@on_a_loop
async def test_the_last_wait_of_a_deleted_group_does_not_end_those_of_one_that_has_its_name() -> None:
    loop, takers = asyncio.get_running_loop(), dict[str, GroupRuntime]()
    deleted, again = GroupRuntime("g", takers, SpreadCalls(wake)), GroupRuntime("g", takers, SpreadCalls(wake))
    old, new = _waiter(loop), _waiter(loop)
    deleted.wait(old)
    again.wait(new)
    deleted.stop_waiting(old)
    assert takers == {"g": again}
    again.stop_waiting(new)
    assert takers == {}


@on_a_loop
async def test_a_wait_that_ends_twice_does_not_end_another() -> None:
    loop, takers = asyncio.get_running_loop(), dict[str, GroupRuntime]()
    runtime = GroupRuntime("g", takers, SpreadCalls(wake))
    full, first, second = _waiter(loop, has_room=False), _waiter(loop), _waiter(loop)
    runtime.wait(full)
    assert takers == {}
    runtime.wait(first)
    runtime.wait(second)
    for _ in range(2):
        runtime.stop_waiting(first)
        runtime.stop_waiting(full)
        assert takers == {"g": runtime}
    runtime.stop_waiting(second)
    assert takers == {}


_SETTINGS: dict[str, dict[str, object]] = {
    "shared": {"kind": "shared", "max_in_flight": 3},
    "keyed": {"kind": "shared", "ordering": "key", "max_in_flight": 3},
    "owned": {"kind": "range", "max_in_flight": 3},
    "stream": {"mode": "stream"},
}


class Crowd:
    """Groups of every kind whose members poll for as long as they may; what each group got is kept."""

    def __init__(self, it: GroupBench, rng: Random) -> None:
        self._it = it
        self._rng = rng
        self.seen: dict[str, set[bytes]] = {name: set() for name in _SETTINGS}
        self._members: dict[str, dict[str, asyncio.Task[None]]] = {name: {} for name in _SETTINGS}

    async def join(self, name: str) -> None:
        member = await self._it.join(name, session_timeout_ms=1_800_000, **_SETTINGS[name])
        self._members[name][member] = asyncio.create_task(self._work(name, member))

    async def _work(self, name: str, member: str) -> None:
        it, rng = self._it, self._rng
        with suppress(UnknownMember):
            while True:
                for each in await it.poll(member, rng.choice([1, 2, 100]), group=name, wait_ms=_WAIT_MS):
                    if each.receipt is not None and rng.random() < 0.3:
                        await it.settle("nack", each, delay_ms=rng.choice([0, 5]))
                        continue
                    self.seen[name].add(each.value)
                    if each.receipt is not None:
                        await it.settle("ack", each)

    async def leave(self, name: str, *, is_told: bool) -> None:
        """The one who came first. If it is told, its poll hears of it from the broker."""
        member = next(iter(self._members[name]))
        task = self._members[name].pop(member)
        if not is_told:
            await give_up(task)
        await self._it.broker.groups.membership.leave(name, member)
        if is_told:
            await task

    async def make_anew(self, name: str) -> None:
        while self._members[name]:
            await self.leave(name, is_told=True)
        await self._it.broker.groups.delete(name)
        self.seen[name].clear()
        await self.join(name)

    async def go_back(self, name: str) -> None:
        # Before, not after: members get the first of it again while the reset becomes durable.
        self.seen[name].clear()
        await self._it.broker.groups.offsets.reset(name, {"t": {0: 0, 1: 0}})

    async def change_something(self) -> None:
        name = self._rng.choice(list(_SETTINGS))
        match self._rng.randrange(6):
            case 0 | 1:
                await self.join(name)
                await self.leave(name, is_told=self._rng.random() < 0.5)
            case 2:
                await self.make_anew(name)
            case 3:
                await self.go_back(name)
            case _:
                self._it.pass_time(self._rng.choice([1, 100]))

    async def go(self) -> None:
        await give_up(*(task for tasks in self._members.values() for task in tasks.values()))


@on_a_loop
@pytest.mark.parametrize("seed", range(6))
async def test_whoever_waits_is_told_of_everything(tmp_path: Path, seed: int) -> None:
    """Of messages of every lane, of delayed ones, and of those that come back, whatever happens to groups meanwhile."""
    rng = Random(seed)
    async with bench(tmp_path) as it:
        await it.topic(partitions=2, max_retries=1_000, fsync=rng.choice(["always", "never"]))
        crowd = Crowd(it, rng)
        for name in [*_SETTINGS] * 2:
            await crowd.join(name)
        published = {b"%d" % number for number in range(60)}
        for value in sorted(published):
            options: dict[str, int] = {"priority": rng.choice([1, 2, 2, 3])}
            if rng.random() < 0.2:
                options["delay_ms"] = rng.choice([1, 500])
            await it.publish(value, key=rng.choice([None, b"a", b"b"]), **options)
            if rng.random() < 0.3:
                await crowd.change_something()

        def have_all() -> bool:
            # Retries and delays come in time, and what someone had in hand who is gone.
            it.pass_time(100)
            return all(seen == published for seen in crowd.seen.values())

        await until(have_all, within_s=20)
        await crowd.go()
        assert not it.broker.groups.shards.news.takers
