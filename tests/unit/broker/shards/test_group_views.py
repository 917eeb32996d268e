"""Shards go by what they were shown of a group: its members are served while its coordinator is let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from doubles.async_tests import until
from doubles.coordinators import all_of
from doubles.group_bench import Got, GroupBench
from doubles.group_movers import all_queues, shard_of
from doubles.loop import on_a_loop
from doubles.power_loss import PowerLossDisk
from doubles.transaction_bench import GROUP, TOPIC, Bench

from goqueue.broker.groups.leader_work import LeaderWork
from goqueue.broker.runtime.shard_placement import shard_of_group
from goqueue.broker.shards.shard import Shard
from goqueue.coordination.group_view import GroupView
from goqueue.model.config import Config, StorageConfig
from goqueue.model.errors import DiskFull, NotLeader, UnknownMember
from goqueue.model.ids import partition_key
from goqueue.model.publishing import NewMessage
from goqueue.simulation.ports import SimulatedRandomness
from goqueue.simulation.view_checks import unlike_views
from goqueue.storage.log.log import Log

CONFIG = Config(storage=StorageConfig(path="/srv/goqueue", min_free_bytes=0))
VISIBILITY_MS = 10_000
OTHER = 8
"""The first partition that is not in the shard of partition 0."""
GROUPS = [f"g{number}" for number in range(100)]


@asynccontextmanager
async def bench(disk: PowerLossDisk | None = None) -> AsyncIterator[GroupBench]:
    """With ids that are the same in each run: the shards of topics follow from them."""
    it = GroupBench(CONFIG, files=disk or PowerLossDisk(), randomness=SimulatedRandomness(Random(3)))
    async with it:
        yield it


async def two_shards(it: GroupBench, **settings: object) -> tuple[str, Shard]:
    """A topic over two shards, with a message in a partition of each; a group with its coordinator in another."""
    await it.topic(partitions=OTHER + 1, visibility_timeout_ms=VISIBILITY_MS, **settings)
    await one_each(it, b"a")
    own = {shard_of(it.broker, partition=number).number for number in (0, OTHER)}
    assert len(own) == 2
    group = next(name for name in GROUPS if shard_of_group(name) not in own)
    return group, it.broker.groups.shards.map.of_group(group)


async def one_each(it: GroupBench, value: bytes) -> None:
    await it.broker.publish("t", [NewMessage(value, partition=number) for number in (0, OTHER)])


async def let_go(it: GroupBench, shard: Shard) -> None:
    await it.broker.leadership.let_go(shard)


async def lead(it: GroupBench, shard: Shard) -> None:
    await it.broker.leadership.lead([shard])


def views(it: GroupBench, group: str) -> dict[int, GroupView]:
    """By the number of the shard that was shown it; as they are now, whatever happens afterwards."""
    shards = it.broker.groups.shards.leading
    return {shard.number: deepcopy(shard.state.views[group]) for shard in shards if group in shard.state.views}


def owners(it: GroupBench, group: str) -> dict[int, str]:
    """Who may take messages from which partition, by what shards were shown."""
    found = {name: owner for view in views(it, group).values() for name, owner in view.owners.items()}
    return {int(name.rpartition("/")[2]): owner for name, owner in sorted(found.items())}


def assert_shown(it: GroupBench) -> None:
    """All shards know what the coordinators know, and of no group that is gone."""
    assert not unlike_views(it.broker)


def places(got: list[Got]) -> list[tuple[int, bytes]]:
    return sorted((each.partition, each.value) for each in got)


@on_a_loop
async def test_members_poll_and_settle_while_the_coordinator_is_let_go() -> None:
    async with bench() as it:
        group, coordinator = await two_shards(it, retry_backoff_ms=0)
        member = await it.join(group, kind="shared", max_retries=1)
        before = await it.poll(member, group=group)
        await let_go(it, coordinator)
        await it.ack(before[0])
        assert await it.settle("extend", before[1], delay_ms=2 * VISIBILITY_MS) == [None]
        it.pass_time(VISIBILITY_MS)
        assert await it.poll(member, group=group) == []
        await it.nack(before[1])
        [again] = await it.poll(member, group=group)
        assert (again.value, again.count) == (b"a", 2)
        # The group's own setting: it has had its one retry.
        await it.nack(again)
        await it.moved()
        assert it.broker.topic("t.dlq").partition(again.partition).log.end_offset == 1
        await one_each(it, b"b")
        await it.ack(*await it.poll(member, group=group))
        await lead(it, coordinator)
        assert it.lag(group) == 0
        assert_shown(it)


@on_a_loop
async def test_what_is_not_settled_in_time_comes_back_while_the_coordinator_is_let_go() -> None:
    async with bench() as it:
        group, coordinator = await two_shards(it, retry_backoff_ms=0)
        member = await it.join(group, kind="shared")
        await it.poll(member, group=group)
        await let_go(it, coordinator)
        waiting = it.polling(member, group=group)
        await until(lambda: bool(it.broker.groups.shards.find_served(group).runtime.waiters))
        it.pass_time(VISIBILITY_MS)
        assert {each.count for each in await waiting} == {2}


@on_a_loop
async def test_members_get_what_they_own_and_nothing_else_while_the_coordinator_is_let_go() -> None:
    async with bench() as it:
        group, coordinator = await two_shards(it)
        members = [await it.join(group, kind="sticky") for _ in range(2)]
        own = owners(it, group)
        assert sorted(set(own.values())) == sorted(members) and len(own) == OTHER + 1
        await let_go(it, coordinator)
        got = {member: places(await it.poll(member, group=group)) for member in members}
        for number in (0, OTHER):
            assert (number, b"a") in got[own[number]]
        assert sum(len(each) for each in got.values()) == 2


@on_a_loop
async def test_a_partition_that_is_to_change_hands_waits_for_the_coordinator() -> None:
    async with bench() as it:
        group, coordinator = await two_shards(it)
        old = await it.join(group, kind="sticky", topics=["t"])
        held = await it.poll(old, group=group)
        assert len(held) == 2
        new = await it.join(group)
        handed_over = {number for number, owner in owners(it, group).items() if owner == new}
        assert len(handed_over) in (3, 4), "those of which the old owner had nothing in hand"
        [moving] = {0, OTHER} - owners(it, group).keys()
        await let_go(it, coordinator)
        await it.ack(*held)
        await one_each(it, b"b")
        got = [*await it.poll(old, group=group), *await it.poll(new, group=group)]
        assert [each.partition for each in got] == [OTHER - moving]
        await lead(it, coordinator)
        await it.poll(old, group=group)
        assert [each.partition for each in await it.poll(new, group=group)] == [moving]
        assert_shown(it)


@on_a_loop
async def test_streams_are_read_on_while_the_coordinator_is_let_go() -> None:
    async with bench() as it:
        group, coordinator = await two_shards(it)
        member = await it.join(group, mode="stream", kind="sticky", auto=True, auto_commit_ms=1_000)
        await it.poll(member, group=group)
        await let_go(it, coordinator)
        it.pass_time(1_000)
        await one_each(it, b"b")
        assert places(await it.poll(member, group=group)) == [(0, b"b"), (OTHER, b"b")]
        await lead(it, coordinator)
        committed = await it.broker.groups.offsets.committed(group)
        assert (committed["t"][0], committed["t"][OTHER]) == (1, 1)


@on_a_loop
async def test_what_only_the_coordinator_knows_waits_for_it() -> None:
    async with bench() as it:
        group, coordinator = await two_shards(it)
        member = await it.join(group, kind="shared")
        groups = it.broker.groups
        await let_go(it, coordinator)
        for refused in (
            it.join(group),
            it.poll("c-unknown", group=group),
            groups.membership.heartbeat(group, member, None),
            groups.membership.resume(group, member, []),
            groups.membership.leave(group, member),
            groups.offsets.commit(group, member, {"t": {0: 1}}),
            groups.configure(group, {"max_in_flight": 5}),
            groups.delete(group),
        ):
            with pytest.raises(NotLeader) as caught:
                await refused
            assert caught.value.retriable
        await lead(it, coordinator)
        with pytest.raises(UnknownMember):
            await it.poll("c-unknown", group=group)


@on_a_loop
async def test_a_group_is_served_as_long_as_any_of_its_shards_is_led() -> None:
    async with bench() as it:
        group, coordinator = await two_shards(it)
        member = await it.join(group, kind="shared")
        first, second = (shard_of(it.broker, partition=number) for number in (0, OTHER))
        waiting = it.polling(member, group=group)
        assert len(await waiting) == 2
        waiting = it.polling(member, group=group)
        await it.waiting(1, group)
        for shard in (coordinator, first):
            await let_go(it, shard)
        await one_each(it, b"b")
        assert places(await waiting) == [(OTHER, b"b")]
        waiting = it.polling(member, group=group)
        await until(lambda: bool(it.broker.groups.shards.find_served(group).runtime.waiters))
        await let_go(it, second)
        with pytest.raises(NotLeader):
            await waiting
        # Again, in the other order: what they were shown is in their journals.
        await lead(it, second)
        await lead(it, first)
        assert places(await it.poll(member, group=group)) == [(0, b"b")]
        await lead(it, coordinator)
        assert_shown(it)


@on_a_loop
async def test_a_member_is_told_what_it_has_when_the_coordinator_is_led_again() -> None:
    async with bench() as it:
        group, coordinator = await two_shards(it)
        member = await it.join(group, kind="sticky")
        membership = it.broker.groups.membership
        seen = membership.assignment(group, member).version
        news_of_it = asyncio.create_task(membership.next_assignment(group, member, seen))
        await asyncio.sleep(0)
        await let_go(it, coordinator)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not news_of_it.done(), "the stream goes on"
        await lead(it, coordinator)
        assert len((await news_of_it).assigned) == OTHER + 1


# What is shown when


@on_a_loop
async def test_a_shard_is_shown_only_what_concerns_it() -> None:
    async with bench() as it:
        group, coordinator = await two_shards(it)
        first, second = (shard_of(it.broker, partition=number) for number in (0, OTHER))
        a = await it.join(group, kind="sticky")
        ends = [each.journal.log.end_offset for each in (coordinator, first, second)]
        b = await it.join(group)
        own = owners(it, group)
        assert set(own.values()) == {a, b}
        moved = [any(own[number] == b for number in range(OTHER)), own[OTHER] == b]
        after = [each.journal.log.end_offset for each in (coordinator, first, second)]
        # One record for the coordinator: nothing is in hand, so the partitions change hands at once.
        assert [now - before for now, before in zip(after, ends, strict=True)] == [1, *map(int, moved)]
        await it.broker.groups.configure(group, {"max_in_flight": 7})
        assert {view.settings["max_in_flight"] for view in views(it, group).values()} == {7}
        assert [each.journal.log.end_offset for each in (first, second)] == [end + 1 for end in after[1:]]


@on_a_loop
async def test_a_shard_that_missed_a_change_is_shown_it_when_it_is_led_again() -> None:
    async with bench() as it:
        group, coordinator = await two_shards(it)
        a = await it.join(group, kind="sticky")
        shard = shard_of(it.broker, partition=0)
        await it.poll(a, group=group)
        await let_go(it, shard)
        await it.broker.groups.configure(group, {"max_in_flight": 7})
        # While nobody can tell it what has changed, it goes by what it knows.
        await let_go(it, coordinator)
        await lead(it, shard)
        assert "max_in_flight" not in views(it, group)[shard.number].settings
        await one_each(it, b"b")
        assert (0, b"b") in places(await it.poll(a, group=group))
        await lead(it, coordinator)
        assert views(it, group)[shard.number].settings["max_in_flight"] == 7
        assert_shown(it)


@on_a_loop
async def test_a_shard_without_room_is_shown_a_change_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as it:
        group, _ = await two_shards(it)
        await it.join(group, kind="shared")
        shard = shard_of(it.broker, partition=0)
        append, journal = Log.append, shard.journal.log

        def refused(self: Log, batch: Any) -> int:
            if self is journal:
                raise DiskFull("no room", retry_after_s=1)
            return append(self, batch)

        with monkeypatch.context() as patched:
            patched.setattr(Log, "append", refused)
            member = await it.join(group)
            assert places(await it.poll(member, group=group)) == [(OTHER, b"a")]
        it.pass_time(1_000)
        assert_shown(it)
        assert places(await it.poll(member, group=group)) == [(0, b"a")]


@on_a_loop
async def test_views_survive_snapshots_and_starts() -> None:
    disk = PowerLossDisk()
    async with bench(disk) as it:
        group, _ = await two_shards(it)
        members = [await it.join(group, kind="sticky") for _ in range(2)]
        before = views(it, group)
        for shard in it.broker.groups.shards.all:
            await shard.journal.snapshot()
        await it.broker.groups.membership.leave(group, members[0])
        assert views(it, group) != before
        after = views(it, group)
        ends = [shard.journal.log.end_offset for shard in it.broker.groups.shards.all]
    disk.release_locks()
    async with bench(disk) as it:
        assert views(it, group) == after
        assert [shard.journal.log.end_offset for shard in it.broker.groups.shards.all] == ends, (
            "nothing was to be shown"
        )
        assert_shown(it)


@on_a_loop
async def test_a_folder_without_views_gets_them_at_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = PowerLossDisk()
    with monkeypatch.context() as patched:
        patched.setattr("goqueue.broker.shards.active_group.show", lambda *_, **__: None)
        async with bench(disk) as it:
            group, _ = await two_shards(it)
            member = await it.join(group, kind="shared")
            assert not views(it, group)
    disk.release_locks()
    async with bench(disk) as it:
        assert len(views(it, group)) == 2
        assert_shown(it)
        assert len(await it.poll(member, group=group)) == 2


# What is gone


@on_a_loop
async def test_a_deleted_group_leaves_no_view() -> None:
    async with bench() as it:
        group, _ = await two_shards(it)
        await it.broker.groups.membership.leave(group, await it.join(group))
        assert len(views(it, group)) == 2
        await it.broker.groups.delete(group)
        await until(lambda: not all_queues(it.broker))
        assert not views(it, group)


@on_a_loop
async def test_a_view_that_a_crash_left_of_a_deleted_group_is_removed_when_its_shard_is_led(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as it:
        group, _ = await two_shards(it)
        await it.broker.groups.membership.leave(group, await it.join(group))
        with monkeypatch.context() as patched:
            patched.setattr(LeaderWork, "group_deleted", lambda *_: None)
            await it.broker.groups.delete(group)
        assert len(views(it, group)) == 2
        shard = shard_of(it.broker, partition=0)
        await let_go(it, shard)
        await lead(it, shard)
        assert not views(it, group) and not all_queues(it.broker)


@on_a_loop
async def test_a_group_that_is_made_again_under_its_name_has_nothing_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as it:
        group, coordinator = await two_shards(it)
        await it.broker.groups.membership.leave(group, await it.join(group, max_in_flight=7))
        with monkeypatch.context() as patched:
            patched.setattr(LeaderWork, "group_deleted", lambda *_: None)
            await it.broker.groups.delete(group)
        member = await it.join(group, kind="shared")
        assert all("max_in_flight" not in view.settings for view in views(it, group).values())
        await let_go(it, coordinator)
        assert len(await it.poll(member, group=group)) == 2
        await lead(it, coordinator)
        assert len(all_queues(it.broker)) == OTHER + 1, "those of the group before are closed"
        assert_shown(it)


@on_a_loop
async def test_a_shard_whose_topic_is_gone_forgets_the_groups_that_read_it() -> None:
    async with bench() as it:
        group, _ = await two_shards(it)
        await it.join(group)
        await it.broker.delete_topic("t")
        assert not all_queues(it.broker)
        assert not views(it, group)
        assert_shown(it)


# Transactions


@on_a_loop
@pytest.mark.parametrize("how", ["commit", "abort"])
async def test_acks_in_a_transaction_need_no_coordinator(how: str) -> None:
    it = Bench(PowerLossDisk(), CONFIG, SimulatedRandomness(Random(3)))
    await it.start()
    await it.broker.create_topic(TOPIC, {"partitions": 1, "retry_backoff_ms": 0})
    await it.join()
    await it.publish(None, b"a")
    coordinator = it.broker.groups.shards.of(GROUP)
    assert coordinator is not shard_of(it.broker, TOPIC)
    transaction = await it.begin()
    await it.broker.groups.shards.let_go(coordinator)
    await it.ack_in(transaction, await it.poll())
    await (it.commit(transaction) if how == "commit" else it.abort(transaction))
    await until(lambda: not any(each.completion.held_up for each in all_of(it.broker)))
    assert len(await it.poll()) == (0 if how == "commit" else 1)
    await it.broker.groups.lead([coordinator])
    assert it.lag() == (0 if how == "commit" else 1)
    await it.broker.close()


@on_a_loop
async def test_owners_are_named_by_partition() -> None:
    """What other versions and other nodes will read in a journal."""
    async with bench() as it:
        group, _ = await two_shards(it)
        member = await it.join(group, kind="range")
        [view] = [each for number, each in views(it, group).items() if number == shard_of(it.broker).number]
        topic_id = it.broker.topic("t").record.topic_id
        assert view.owners == {partition_key(topic_id, number): member for number in range(OTHER)}
        assert view.generation == 1 and list(view.members) == [member]
