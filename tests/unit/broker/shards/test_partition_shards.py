"""Queues are in the shards of their partitions, apart from the coordinators of their groups."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
from doubles.async_tests import until
from doubles.group_bench import GroupBench
from doubles.group_movers import all_queues, shard_of
from doubles.loop import on_a_loop
from doubles.power_loss import PowerLossDisk
from doubles.transaction_bench import GROUP, TOPIC, Bench

import goqueue.broker.transactions.completion
from goqueue.broker.groups.leader_work import LeaderWork
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.runtime.shard_placement import SHARDS, shard_of_group, shard_of_partition
from goqueue.broker.shards.active_group import ActiveGroup
from goqueue.broker.shards.shard import Shard
from goqueue.model.config import Config, StorageConfig
from goqueue.model.errors import DiskFull, NotLeader
from goqueue.model.ids import partition_key
from goqueue.model.publishing import NewMessage
from goqueue.simulation.ports import SimulatedRandomness
from goqueue.storage.log.log import Log

VISIBILITY_MS = 10_000
OTHER = 8
"""The first partition that is not in the shard of partition 0."""


def bench(path: Path) -> GroupBench:
    """With ids that are the same in each run: the shards of topics follow from them."""
    return GroupBench(Config(storage=StorageConfig(path=str(path))), randomness=SimulatedRandomness(Random(3)))


async def two_partitions(it: GroupBench) -> tuple[Shard, str]:
    """A topic with a message in two partitions of different shards, the shard of partition 0, and the name of a group
    whose coordinator is in neither of the two."""
    await it.topic(partitions=OTHER + 1, visibility_timeout_ms=VISIBILITY_MS)
    for number in (0, OTHER):
        await it.broker.publish("t", [NewMessage(b"%d" % number, partition=number)])
    own = {shard_of(it.broker, partition=number).number for number in (0, OTHER)}
    assert len(own) == 2
    group = next(name for name in (f"g{number}" for number in range(100)) if shard_of_group(name) not in own)
    return shard_of(it.broker), group


async def lead_again(it: GroupBench, shard: Shard) -> None:
    await it.broker.leadership.lead([shard])


def test_partitions_of_a_topic_are_spread_over_all_shards_but_that_of_the_metadata() -> None:
    for first in range(1, SHARDS):
        spread = [shard_of_partition(first, number) for number in range(OTHER * (SHARDS - 1))]
        assert spread[:OTHER] == [first] * OTHER
        assert sorted(spread) == sorted([*range(1, SHARDS)] * OTHER)
    assert {shard_of_group(f"g{number}") for number in range(1_000)} == {*range(1, SHARDS)}


@on_a_loop
async def test_while_a_shard_is_let_go_its_partitions_are_left_out_and_the_others_are_served(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        shard, group = await two_partitions(it)
        member = await it.join(group, kind="shared")
        [first] = [each for each in await it.poll(member, group=group) if each.partition == 0]
        await it.broker.publish("t", [NewMessage(b"more", partition=number) for number in (0, OTHER)])
        await it.broker.leadership.let_go(shard)
        assert [each.partition for each in await it.poll(member, group=group)] == [OTHER]
        [refusal] = await it.settle("ack", first)
        assert isinstance(refusal, NotLeader) and refusal.retriable
        for refused in (
            it.broker.groups.offsets.reset(group, {"t": {0: 0}}),
            it.broker.groups.offsets.committed(group),
            it.broker.groups.delete(group),
            it.join("another"),
        ):
            with pytest.raises(NotLeader):
                await refused
        poll = it.polling(member, group=group)
        await it.waiting(1, group)
        await lead_again(it, shard)
        assert [each.partition for each in await poll] == [0], "a poll that waits gets what was left out"
        await it.ack(first)


@on_a_loop
async def test_a_poll_that_reads_while_the_shard_changes_hands_delivers_nothing_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as it:
        shard, group = await two_partitions(it)
        member = await it.join(group, kind="shared")
        reading, go_on = asyncio.Event(), asyncio.Event()
        read = Partition.read

        async def held(self: Partition, *arguments: int) -> object:
            found = await read(self, *arguments)
            if self is it.broker.topic("t").partitions[0] and not go_on.is_set():
                reading.set()
                await go_on.wait()
            return found

        monkeypatch.setattr(Partition, "read", held)
        poll = asyncio.create_task(it.poll(member, group=group))
        await reading.wait()
        await it.broker.leadership.let_go(shard)
        await lead_again(it, shard)
        go_on.set()
        assert [each.partition for each in await poll] == [OTHER]
        assert [(each.partition, each.count) for each in await it.poll(member, group=group)] == [(0, 1)]


@on_a_loop
async def test_a_group_that_is_deleted_takes_its_queues_along_in_all_shards(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        _, group = await two_partitions(it)
        await it.broker.groups.membership.leave(group, await it.join(group))
        assert len(all_queues(it.broker)) == OTHER + 1
        await it.broker.groups.delete(group)
        await until(lambda: not all_queues(it.broker))
        assert not it.broker.groups.shards._active


@on_a_loop
async def test_queues_that_a_crash_left_of_a_deleted_group_are_closed_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as it:
        _, group = await two_partitions(it)
        member = await it.join(group)
        await it.ack(*await it.poll(member, group=group))
        await it.broker.groups.membership.leave(group, member)
        with monkeypatch.context() as patched:
            patched.setattr(LeaderWork, "group_deleted", lambda *_: None)
            await it.broker.groups.delete(group)
        assert len(all_queues(it.broker)) == OTHER + 1
        # Under the same name there may be another group meanwhile, which knows nothing of that one.
        await it.join(group)
        assert len(all_queues(it.broker)) == 2 * (OTHER + 1)
    async with bench(tmp_path) as it:
        assert len(all_queues(it.broker)) == OTHER + 1
        assert it.lag(group) == 2
        [start_moved] = {queue.group for queue in all_queues(it.broker)}
        assert it.broker.groups.shards.groups_on(it.broker.topic("t").record.topic_id, 0) == {start_moved}


@on_a_loop
async def test_dead_letters_are_in_the_shards_of_their_messages(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(partitions=20)
        await it.topic("named", partitions=20, dead_letter_topic="letters")
        await it.publish(b"poison")
        await it.settle("reject", *await it.poll(await it.join()))
        await it.moved()
        await it.topic("letters", partitions=20)
        for source, letters in (("t", "t.dlq"), ("named", "letters")):
            for number in range(20):
                assert shard_of(it.broker, source, number) is shard_of(it.broker, letters, number)


@on_a_loop
async def test_acks_of_a_committed_transaction_wait_for_the_shard_that_they_belong_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(goqueue.broker.transactions.completion, "_TRY_AGAIN_S", 0.001)
    it = Bench(PowerLossDisk(), Config(storage=StorageConfig(path="/srv/goqueue", min_free_bytes=0)))
    await it.start()
    await it.broker.create_topic(TOPIC, {"partitions": 1})
    await it.join()
    await it.publish(None, b"a")
    transaction = await it.begin()
    await it.ack_in(transaction, await it.poll())
    shard = shard_of(it.broker, TOPIC)
    await it.broker.leadership.let_go(shard)
    await it.commit(transaction)
    assert it.transactions.held_up()
    await it.broker.leadership.lead([shard])
    await until(lambda: not it.transactions.held_up())
    assert it.lag() == 0
    assert GROUP in it.members
    await it.broker.close()


CONFIG = Config(storage=StorageConfig(path="/srv/goqueue", min_free_bytes=0))


@on_a_loop
async def test_queues_are_not_closed_for_a_deletion_that_may_be_undone() -> None:
    """Another shard is led while the deletion of a group is on its way to the disk."""
    disk = PowerLossDisk()
    it = GroupBench(CONFIG, files=disk, randomness=SimulatedRandomness(Random(3)))
    await it.broker.start()
    _, group = await two_partitions(it)
    shards = it.broker.groups.shards
    own = {shards.of(group), *(shards.map.of_queue(queue.key) for queue in all_queues(it.broker))}
    member = await it.join(group)
    await it.ack(*await it.poll(member, group=group))
    await it.broker.groups.membership.leave(group, member)
    commits, go_on = it.broker._commits, asyncio.Event()
    plan_and_sync = commits._round

    async def held(planned: Any, waiting: Any) -> None:
        await go_on.wait()
        await plan_and_sync(planned, waiting)

    commits._round = held  # type: ignore[method-assign]
    under_way = [asyncio.create_task(it.broker.groups.delete(group))]
    await until(lambda: group not in shards.names())
    other = next(shard for shard in shards.all if shard not in own)
    await shards.let_go(other)
    under_way.append(asyncio.create_task(it.broker.leadership.lead([other])))
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(all_queues(it.broker)) == OTHER + 1
    go_on.set()
    await asyncio.gather(*under_way)
    await until(lambda: not all_queues(it.broker))
    await it.broker.close()


@on_a_loop
async def test_a_shard_is_not_led_while_it_is_being_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(tmp_path) as it:
        shard, group = await two_partitions(it)
        await it.join(group)
        stopping, go_on = asyncio.Event(), asyncio.Event()
        stop = LeaderWork.stop

        async def held(self: LeaderWork) -> None:
            stopping.set()
            await go_on.wait()
            await stop(self)

        with monkeypatch.context() as patched:
            patched.setattr(LeaderWork, "stop", held)
            letting_go = asyncio.create_task(it.broker.leadership.let_go(shard))
            await stopping.wait()
            with pytest.raises(NotLeader):
                await lead_again(it, shard)
            go_on.set()
            await letting_go
        await lead_again(it, shard)
        assert it.lag(group) == 2


@on_a_loop
@pytest.mark.parametrize("how", ["leave", "expiry"])
async def test_what_a_full_disk_lets_a_departure_note_only_in_part_leaves_no_partition_without_a_member(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as it:
        shard, group = await two_partitions(it)
        first, second = await it.join(group), await it.join(group)
        for member in (first, second):
            await it.poll(member, group=group)
        # Whoever has partition 0 goes.
        key = partition_key(it.broker.topic("t").record.topic_id, 0)
        goes = it.broker.groups.shards.find(group).group.state.owners[key]
        stays = second if goes == first else first
        append, journal = Log.append, shard.journal.log

        def refused(self: Log, batch: Any) -> int:
            if self is journal:
                raise DiskFull("no room", retry_after_s=1)
            return append(self, batch)

        with monkeypatch.context() as patched:
            patched.setattr(Log, "append", refused)
            if how == "leave":
                with pytest.raises(DiskFull):
                    await it.broker.groups.membership.leave(group, goes)
            else:
                for _ in range(20):
                    it.pass_time(3_000)
                    await it.broker.groups.membership.heartbeat(group, stays)
        if how == "leave":
            await it.broker.groups.membership.leave(group, goes)
        for _ in range(20):
            it.pass_time(3_000)
            await it.broker.groups.membership.heartbeat(group, stays)
        await it.broker.publish("t", [NewMessage(b"new", partition=0)])
        assert b"new" in [each.value for each in await it.poll(stays, group=group)]


@on_a_loop
async def test_acks_in_a_transaction_are_known_whether_or_not_a_hand_over_can_be_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = Bench(PowerLossDisk(), CONFIG)
    await it.start()
    await it.broker.create_topic(TOPIC, {"partitions": 1})
    await it.join()
    await it.publish(None, b"a")
    transaction = await it.begin()

    def no_room(*_: object) -> None:
        raise DiskFull("no room")

    with monkeypatch.context() as patched:
        patched.setattr(ActiveGroup, "release", no_room)
        await it.ack_in(transaction, await it.poll())
    assert len(transaction.acks) == 1
    await it.commit(transaction)
    assert it.lag() == 0
    await it.broker.close()
