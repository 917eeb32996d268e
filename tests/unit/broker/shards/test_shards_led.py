"""One shard is let go and led again, while the others serve."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest
from doubles import group_movers as movers
from doubles.async_tests import until
from doubles.group_bench import GroupBench
from doubles.group_movers import all_queues
from doubles.loop import on_a_loop

from goqueue.broker.shards.shard import Shard
from goqueue.model.config import Config, StorageConfig
from goqueue.model.errors import NotLeader
from goqueue.simulation.ports import SimulatedRandomness

VISIBILITY_MS = 10_000
WAIT_MS = 600_000


def bench(path: Path) -> GroupBench:
    """With ids that are the same in each run: the shards of topics follow from them."""
    return GroupBench(Config(storage=StorageConfig(path=str(path))), randomness=SimulatedRandomness(Random(3)))


def shard_of(it: GroupBench, group: str = "g") -> Shard:
    """Of the coordinator of a group."""
    return it.broker.groups.shards.of(group)


def elsewhere(it: GroupBench) -> str:
    """The name of a group in another shard than that of group g."""
    names = (f"g{number}" for number in range(100))
    return next(name for name in names if shard_of(it, name) is not shard_of(it))


async def let_go(it: GroupBench, *shards: Shard) -> None:
    for shard in shards:
        await it.broker.leadership.let_go(shard)


async def lead_again(it: GroupBench, *shards: Shard) -> None:
    await it.broker.leadership.lead(shards)


@on_a_loop
async def test_a_shard_that_is_led_again_knows_what_was_acked_and_what_is_in_flight(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(visibility_timeout_ms=VISIBILITY_MS)
        member = await it.join()
        await it.publish(b"acked", b"in flight", b"in flight too")
        got = await it.poll(member)
        await it.ack(got[0])
        shard = movers.shard_of(it.broker)
        await let_go(it, shard)
        await lead_again(it, shard)
        assert await it.poll(member) == [], "all that is not acked is in flight"
        await it.ack(got[1])
        assert it.lag() == 1
        it.pass_time(VISIBILITY_MS)
        [again] = await it.poll(member)
        assert (again.value, again.count) == (b"in flight too", 2)


@on_a_loop
async def test_timers_of_a_shard_that_is_led_again_run(tmp_path: Path) -> None:
    """A poll that waits is woken by a visibility timeout and by a retry, and a silent member is taken out."""
    async with bench(tmp_path) as it:
        await it.topic(visibility_timeout_ms=VISIBILITY_MS)
        first, second = await it.join(kind="shared"), await it.join(kind="shared")
        await it.publish(b"timed out", b"nacked")
        got = await it.poll(first)
        await it.nack(got[1], delay_ms=2 * VISIBILITY_MS)
        shard = shard_of(it)
        await let_go(it, shard)
        it.pass_time(VISIBILITY_MS - 1)
        await lead_again(it, shard)
        poll = it.polling(second, wait_ms=WAIT_MS)
        await it.waiting(1)
        it.pass_time(1)
        [timed_out] = await poll
        assert (timed_out.value, timed_out.count) == (b"timed out", 2)
        await it.ack(timed_out)
        poll = it.polling(second, wait_ms=WAIT_MS)
        await it.waiting(1)
        it.pass_time(VISIBILITY_MS)
        assert [each.value for each in await poll] == [b"nacked"]
        it.pass_time(10 * 60_000)
        assert not it.broker.groups.shards.find("g").group.state.members


@on_a_loop
async def test_requests_to_a_shard_that_was_let_go_get_a_retriable_error_and_others_are_served(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        other = elsewhere(it)
        assert it.broker.groups.shards.map.of_partition(it.broker.topic("t"), 0) is not shard_of(it)
        member, of_other = await it.join(), await it.join(other)
        await it.publish(b"a", b"b")
        shard = shard_of(it)
        await let_go(it, shard)
        for refused in (
            it.join(),
            it.broker.groups.membership.heartbeat("g", member, None),
            it.broker.groups.configure("g", {"max_in_flight": 5}),
            it.broker.groups.offsets.commit("g", member, {"t": {0: 1}}),
            it.broker.groups.offsets.committed("g"),
            it.broker.groups.delete("g"),
        ):
            with pytest.raises(NotLeader) as caught:
                await refused
            assert caught.value.retriable
        assert [each.value for each in await it.poll(of_other, group=other)] == [b"a", b"b"]
        assert it.broker.groups.shards.names() == [other]
        await lead_again(it, shard)
        await it.broker.groups.membership.heartbeat("g", member, None)
        assert it.broker.groups.shards.names() == sorted(["g", other])


@on_a_loop
async def test_a_shard_that_is_led_again_follows_topics_and_news_from_meanwhile(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic("t")
        await it.topic("gone")
        member = await it.join(topics=["t", "gone"])
        shard = shard_of(it)
        await let_go(it, shard)
        await it.broker.delete_topic("gone")
        await it.publish(b"meanwhile")
        await lead_again(it, shard)
        assert it.broker.groups.membership.assignment("g", member).assigned == [("t", 0)]
        assert [each.value for each in await it.poll(member)] == [b"meanwhile"]
        poll = it.polling(member, wait_ms=WAIT_MS)
        await it.waiting(1)
        await it.publish(b"later")
        assert [each.value for each in await poll] == [b"later"]


@on_a_loop
async def test_dead_letters_that_were_on_their_way_arrive_once_when_the_shard_is_led_again(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        await it.publish(*(b"%d" % number for number in range(20)))
        got = await it.poll(member)
        settling = asyncio.create_task(it.settle("reject", *got))
        await until(lambda: any(queue.moving for queue in all_queues(it.broker)))
        shard = movers.shard_of(it.broker)
        await let_go(it, shard)
        await asyncio.gather(settling, return_exceptions=True)
        await lead_again(it, shard)
        await it.moved()
        letters = it.broker.topic("t.dlq").partition(0)
        assert letters.log.end_offset == 20
        assert it.lag() == 0


@on_a_loop
async def test_a_snapshot_that_is_being_taken_when_its_shard_is_let_go_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes after the shard is led again would be missing from it."""
    monkeypatch.setattr("goqueue.broker.runtime.journal._DUMPED_AT_A_STRETCH", 1)
    async with bench(tmp_path) as it:
        await it.topic(partitions=4)
        member = await it.join()
        shard = movers.shard_of(it.broker)
        snapshot = asyncio.create_task(shard.journal.snapshot())
        await asyncio.sleep(0)
        await let_go(it, shard)
        assert not shard.journal.snapshot_due, "there is nothing in memory to take one of"
        await lead_again(it, shard)
        await it.publish(b"v")
        got = await it.poll(member)
        await it.ack(*got)
        await snapshot
        assert not list((tmp_path / "snapshots").glob(f"__shards-{shard.number}"))
        await let_go(it, shard)
        await lead_again(it, shard)
        assert it.lag() == 0
