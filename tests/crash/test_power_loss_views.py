"""After a power loss at any call shards know of groups what the coordinators know: the pairs of ADR 0029."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from doubles.effort import THOROUGH
from doubles.group_bench import GroupBench
from doubles.group_movers import all_queues, shard_of
from doubles.inline import InlineExecutor
from doubles.power_loss import PowerLossDisk

from goqueue.broker.shards import active_group
from goqueue.broker.shards.group_views import show
from goqueue.broker.shards.shard_map import ShardMap
from goqueue.coordination.group import Group
from goqueue.model.config import Config, StorageConfig
from goqueue.model.publishing import NewMessage
from goqueue.simulation.ports import SimulatedRandomness
from goqueue.simulation.view_checks import unlike_views

CONFIG = Config(storage=StorageConfig(path="/srv/goqueue", min_free_bytes=0, checkpoint_interval_ms=3_600_000))
PARTITIONS = 20
"""In three shards."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Hundreds of recoveries report what they find."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def bench(disk: PowerLossDisk) -> GroupBench:
    """With ids that are the same in each run: the shards of topics follow from them."""
    return GroupBench(CONFIG, files=disk, randomness=SimulatedRandomness(Random(3)))


async def come_and_go(it: GroupBench) -> None:
    """Members of a group whose partitions are in several shards, which are let go and led meanwhile."""
    groups = it.broker.groups
    await it.topic(partitions=PARTITIONS)
    await it.broker.publish("t", [NewMessage(b"a", partition=number) for number in range(PARTITIONS)])
    first = await it.join(kind="sticky")
    held = await it.poll(first)
    second = await it.join()
    await it.ack(*held)
    await it.poll(first)
    for shard in (groups.shards.of("g"), shard_of(it.broker, partition=8)):
        await groups.shards.let_go(shard)
        await it.broker.publish("t", [NewMessage(b"b", partition=number) for number in range(PARTITIONS)])
        await it.ack(*await it.poll(second))
        await groups.lead([shard])
    await groups.configure("g", {"max_in_flight": 7})
    await groups.membership.leave("g", first)
    for each in groups.shards.all:
        await each.journal.snapshot()
    await groups.membership.leave("g", second)
    await groups.delete("g")
    await it.join(kind="shared")
    await it.broker.delete_topic("t")


def test_shards_know_what_coordinators_know_after_a_power_loss_at_any_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goqueue.storage.log.group_commit.ThreadPoolExecutor", lambda *_, **__: InlineExecutor())
    rng = Random(2)
    disk = PowerLossDisk()
    left: list[PowerLossDisk] = []
    outcomes = 3 if THOROUGH else 1

    def put_aside() -> None:
        left.extend(disk.crash(rng) for _ in range(outcomes))

    async def play() -> None:
        async with bench(disk) as it:
            disk.before_call = put_aside
            await come_and_go(it)
            disk.before_call = lambda: None

    asyncio.run(play())
    found: Counter[str] = Counter()

    def counted(shards: ShardMap, group: Group, **how: Any) -> None:
        """What a start finds in place of what the group's coordinator knows."""
        for shard in shards.leading:
            view = shard.state.views.get(group.name)
            if view is not None and view.identity == group.state.identity:
                found["ahead" if view.generation > group.state.generation else "not ahead"] += 1
            elif group.state.identity in shard.state.by_group:
                found["missing" if view is None else "of a group before"] += 1
        before = [shard.journal.log.end_offset for shard in shards.leading]
        show(shards, group, **how)
        if before != [shard.journal.log.end_offset for shard in shards.leading]:
            found["brought in line"] += 1

    async def check(crashed: PowerLossDisk) -> None:
        broker = bench(crashed).broker
        await broker.start()
        assert not unlike_views(broker)
        groups = {
            name: shard.state.by_name[name].state.identity
            for shard in broker.groups.shards.all
            for name in shard.state.names()
        }
        assert {queue.group_id for queue in all_queues(broker)} <= set(groups.values())
        # What was shown is not waited for, and may be lost again.
        again = bench(crashed.crash(rng)).broker
        await again.start()
        assert not unlike_views(again)
        await again.close()
        await broker.close()

    monkeypatch.setattr(active_group, "show", counted)
    for place, crashed in [*enumerate(left)][:: 1 if THOROUGH else 2]:
        try:
            asyncio.run(check(crashed))
        except Exception as error:
            raise AssertionError(f"crash {place}: {error!r}") from error
    assert len(left) > 100 * outcomes
    assert found.keys() >= {"ahead", "not ahead", "missing", "brought in line"}, f"not tried: {found}"
