"""Where a partition begins is in the journal of its shard: appended before anything goes, and applied at each start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
from doubles.group_bench import GroupBench
from doubles.group_movers import shard_of
from doubles.loop import on_a_loop
from doubles.power_loss import PowerLossDisk

from goqueue.broker.shards.start_moves import note_starts
from goqueue.coordination.partition_starts import StartMoved
from goqueue.model.config import Config, StorageConfig
from goqueue.model.errors import NotLeader
from goqueue.model.ids import PartitionKey, partition_key
from goqueue.simulation.ports import SimulatedRandomness

CONFIG = Config(storage=StorageConfig(path="/srv/goqueue", min_free_bytes=0))


@asynccontextmanager
async def bench(disk: PowerLossDisk | None = None) -> AsyncIterator[GroupBench]:
    """With ids that are the same in each run: the shards of topics follow from them."""
    async with GroupBench(CONFIG, files=disk or PowerLossDisk(), randomness=SimulatedRandomness(Random(3))) as it:
        yield it


async def filled(it: GroupBench) -> PartitionKey:
    """A topic with three messages, and the key of its one partition."""
    await it.topic()
    await it.publish(b"a", b"b", b"c")
    return partition_key(it.broker.topic("t").record.topic_id, 0)


def start(it: GroupBench) -> int:
    return it.broker.topic("t").partition(0).log.start_offset


@on_a_loop
async def test_a_purge_is_in_the_journal_of_the_shard_and_survives_its_snapshot() -> None:
    disk = PowerLossDisk()
    async with bench(disk) as it:
        key = await filled(it)
        await it.broker.purge_topic("t")
        assert shard_of(it.broker).state.starts == {key: 3}
        await shard_of(it.broker).journal.snapshot()
        ends = [shard.journal.log.end_offset for shard in it.broker.groups.shards.all]
        await it.broker.purge_topic("t")
        assert [shard.journal.log.end_offset for shard in it.broker.groups.shards.all] == ends, "nothing has moved"
    disk.release_locks()
    async with bench(disk) as it:
        assert shard_of(it.broker).state.starts == {key: 3}
        assert start(it) == 3


@on_a_loop
async def test_a_start_is_applied_when_its_shard_is_led_unless_the_log_is_further() -> None:
    async with bench() as it:
        await filled(it)
        topic, groups = it.broker.topic("t"), it.broker.groups
        # As after a crash that came before the log was moved.
        await note_starts(groups.shards.map, topic, {0: 2})
        assert start(it) == 0
        shard = shard_of(it.broker)
        await groups.shards.let_go(shard)
        await groups.lead([shard])
        assert start(it) == 2
        topic.partition(0).log.move_start(3)
        await note_starts(groups.shards.map, topic, {0: 1})
        assert [*shard.state.starts.values()] == [2], "another has got further"
        await groups.shards.let_go(shard)
        await groups.lead([shard])
        assert start(it) == 3


@on_a_loop
async def test_nothing_is_removed_from_a_partition_whose_shard_is_let_go() -> None:
    async with bench() as it:
        await filled(it)
        await it.broker.change_topic("t", {"retention_ms": 1_000})
        shard = shard_of(it.broker)
        await it.broker.groups.shards.let_go(shard)
        it.clock.advance_ms(2_000)
        with pytest.raises(NotLeader):
            await it.broker.purge_topic("t")
        await it.broker._upkeep.expire()
        assert start(it) == 0
        await it.broker.groups.lead([shard])
        await it.broker._upkeep.expire()
        assert start(it) == 3


@on_a_loop
async def test_rule_2_a_start_behind_the_end_of_a_log_that_was_damaged_is_taken_back_to_it() -> None:
    """What is published then must not count as removed at the next start."""
    disk = PowerLossDisk()
    async with bench(disk) as it:
        key = await filled(it)
        shard_of(it.broker).append([StartMoved(key, 10)])
    disk.release_locks()
    async with bench(disk) as it:
        assert shard_of(it.broker).state.starts == {key: 3}
        assert start(it) == 3
        await it.publish(b"new")
    disk.release_locks()
    async with bench(disk) as it:
        assert start(it) == 3
        assert [got.value for got in await it.poll(await it.join())] == [b"new"]


@on_a_loop
async def test_a_topic_that_is_gone_leaves_no_start() -> None:
    async with bench() as it:
        key = await filled(it)
        await it.broker.purge_topic("t")
        shard = shard_of(it.broker)
        await it.broker.delete_topic("t")
        assert not shard.state.starts
        # As a crash may leave it.
        shard.append([StartMoved(key, 3)])
        await it.broker.groups.shards.let_go(shard)
        await it.broker.groups.lead([shard])
        assert not shard.state.starts
