"""Groups when two things happen at once, or in an order that nobody would choose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doubles.group_bench import GroupBench
from doubles.group_movers import shard_of
from doubles.loop import on_a_loop

from goqueue.broker.dead_letters.dead_letter_mover import DeadLetterMover
from goqueue.broker.dead_letters.moved_messages import REDRIVE
from goqueue.broker.dead_letters.redrive import Filter
from goqueue.broker.groups.membership import Join
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.shards.backlog import NORMAL
from goqueue.delivery.queue import Queue
from goqueue.model.config import Config, LimitsConfig, StorageConfig
from goqueue.model.errors import DiskFull, InvalidSettings, StaleReceipt, TopicNotFound
from goqueue.model.group_settings import GroupSettings
from goqueue.model.ids import partition_key
from goqueue.storage.log.truncation import truncate_to


@asynccontextmanager
async def bench(path: Path, group: GroupSettings | None = None, **limits: int) -> AsyncIterator[GroupBench]:
    config = Config(storage=StorageConfig(path=str(path)), limits=LimitsConfig(**limits))
    async with GroupBench(replace(config, group=group or config.group)) as made:
        yield made


def queue_of(it: GroupBench) -> Queue:
    [queue] = it.broker.groups.shards.find("g").queues()
    return queue


def before_each_read(monkeypatch: pytest.MonkeyPatch, do: Callable[[Partition], Any]) -> None:
    """``do`` is awaited when a read has begun and has answered nothing yet."""
    read = Partition.read

    async def interrupted(self: Partition, *args: int) -> Any:
        found = await read(self, *args)
        await do(self)
        return found

    monkeypatch.setattr(Partition, "read", interrupted)


async def out_of_room(*_: object) -> None:
    raise DiskFull("no room")


@on_a_loop
@pytest.mark.parametrize("verb", ["ack", "nack", "reject"])
async def test_a_message_that_was_given_back_unseen_can_still_be_settled(tmp_path: Path, verb: Any) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        await it.publish(b"x")
        got = await it.poll(await it.join())
        assert await it.settle("release", *got) == [None]
        assert await it.settle(verb, *got) == [None]


@on_a_loop
async def test_a_member_without_room_leaves_what_it_was_woken_for_to_the_next(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        busy, idle = await it.join(kind="shared", max_in_flight=1), await it.join()
        polls = []
        for number, member in enumerate((busy, busy, idle)):
            polls.append(it.polling(member))
            await it.waiting(number + 1)
        await it.publish(b"a", b"b")
        async with asyncio.timeout(60):
            assert [each.value for each in await polls[2]] == [b"b"]
        polls[1].cancel()


@on_a_loop
async def test_a_poll_that_is_full_leaves_its_other_partitions_to_those_who_wait(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic("t1")
        await it.topic("t2")
        both, second = await it.join(topics=["t1", "t2"], kind="shared"), await it.join(topics=["t2"])
        # So that its next look but one begins with t1.
        assert await it.poll(both) == []
        first_poll = it.polling(both, most=1)
        await it.waiting(1)
        second_poll = it.polling(second)
        await it.waiting(2)
        for name in ("t1", "t2"):
            it.broker.topic(name).partition(0).watch(None)
            await it.publish(name.encode(), topic=name)
        news = it.broker.topic("t2")
        it.broker.groups.shards.news.publish(partition_key(news.record.topic_id, 0), news.partition(0))
        async with asyncio.timeout(60):
            got = [*await first_poll, *await second_poll]
        assert sorted(each.value for each in got) == [b"t1", b"t2"]


@on_a_loop
async def test_what_a_stream_poll_had_read_when_it_was_given_up_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as it:
        await it.topic(partitions=2)
        for key in (b"a", b"b", b"c", b"d"):
            await it.publish(key, key=key)
        member = await it.join(mode="stream", auto=True)
        reads: list[Partition] = []
        stuck = asyncio.Event()

        async def stick_at_the_second(partition: Partition) -> None:
            reads.append(partition)
            if len(reads) == 2:
                stuck.set()
                await asyncio.Event().wait()

        with monkeypatch.context() as patched:
            before_each_read(patched, stick_at_the_second)
            poll = it.polling(member)
            await stuck.wait()
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)
        assert sorted(each.value for each in await it.poll(member)) == [b"a", b"b", b"c", b"d"]


@on_a_loop
async def test_another_fsync_policy_hides_nothing_that_was_there(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(fsync="never")
        await it.publish(b"x")
        member = await it.join()
        got = await it.poll(member)
        await it.broker.change_topic("t", {"fsync": "always"})
        assert it.broker.topic("t").partition(0).log.durable_offset == 0
        await it.nack(*got)
        assert [each.value for each in await it.poll(member)] == [b"x"]


@on_a_loop
async def test_a_reset_while_a_retry_is_read_does_not_undo_the_order_of_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        await it.publish(b"1", b"2", key=b"k")
        member = await it.join(ordering="key")
        await it.nack(*await it.poll(member))

        async def reset(_: Partition) -> None:
            await it.broker.groups.offsets.reset("g", {"t": {0: 0}})

        with monkeypatch.context() as patched:
            before_each_read(patched, reset)
            assert await it.poll(member) == []
        assert [each.value for each in await it.poll(member)] == [b"1"]


async def new(it: GroupBench, member: str) -> None:
    await it.publish(b"x", partition=1)


async def of_several_lanes(it: GroupBench, member: str) -> None:
    await it.publish(b"x", partition=1, priority=0)


async def waiting_for_a_retry(it: GroupBench, member: str) -> None:
    await it.publish(b"x", partition=1)
    await it.nack(*await it.poll(member))


async def waiting_for_its_key(it: GroupBench, member: str) -> None:
    await it.publish(b"before", b"x", partition=1, key=b"k")
    await it.ack(*await it.poll(member))


@on_a_loop
@pytest.mark.parametrize(
    ("prepare", "settings"),
    [
        (new, {}),
        (new, {"ordering": "key"}),
        (new, {"mode": "stream"}),
        (of_several_lanes, {}),
        (waiting_for_a_retry, {}),
        (waiting_for_its_key, {"ordering": "key"}),
    ],
)
async def test_a_member_gets_nothing_of_a_partition_that_was_given_to_another_while_it_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepare: Any, settings: dict[str, str]
) -> None:
    """It is a member still. Whoever owns the partition now may have begun with the same message."""
    async with bench(tmp_path) as it:
        await it.topic(partitions=2, retry_backoff_ms=0)
        former = await it.join(kind="range", **settings)
        await prepare(it, former)
        owner = ""
        load = Partition.load

        async def interrupted(self: Partition, *args: Any) -> Any:
            nonlocal owner
            found = await load(self, *args)
            if not owner:
                # Behind the other in the order of names, in which partitions are given out.
                owner = (await it.broker.groups.membership.join("g", Join("z", ["t"]))).member_id
            return found

        with monkeypatch.context() as patched:
            patched.setattr(Partition, "load", interrupted)
            got = await it.poll(former)
        assert it.broker.groups.membership.assignment("g", owner).assigned == [("t", 1)]
        assert got == []
        assert [each.value for each in await it.poll(owner)] == [b"x"]


@on_a_loop
async def test_what_is_done_beyond_the_cursor_is_taken_back_with_a_log_that_was_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        await it.publish(b"1", b"2", b"3")
        got = await it.poll(await it.join())
        with monkeypatch.context() as patched:
            patched.setattr(DeadLetterMover, "_some", out_of_room)
            await it.settle("reject", got[2])
            await it.broker.groups.offsets.reset("g", {"t": {0: 0}})
        await it.moved()
        assert queue_of(it).is_done(2, NORMAL)
        truncate_to(it.broker.topic("t").partition(0).log, 1, lambda: None)
        shard = shard_of(it.broker)
        shard._take_up(queue_of(it), shard.work)
        assert not queue_of(it).is_done(2, NORMAL)


@on_a_loop
async def test_messages_that_cannot_get_to_the_dead_letters_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path, max_outstanding=2) as it:
        await it.topic()
        await it.publish(b"1", b"2", b"3")
        member = await it.join()
        with monkeypatch.context() as patched:
            patched.setattr(DeadLetterMover, "_some", out_of_room)
            await it.settle("reject", *await it.poll(member, 2))
            assert await it.poll(member) == []
        poll = it.polling(member)
        async with asyncio.timeout(60):
            assert [each.value for each in await poll] == [b"3"]


@on_a_loop
async def test_a_redrive_leaves_nothing_open_for_a_topic_that_was_deleted_meanwhile(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        await it.publish(b"x")
        await it.settle("reject", *await it.poll(await it.join()))
        await it.moved()
        letters = it.broker.groups.dead_letters
        dead = letters.topic_of("t")
        found = await letters.browse("t", Filter(), 10)
        await it.broker.delete_topic("t.dlq")
        with pytest.raises(TopicNotFound):
            await letters._send_back(dead, found, 0)
        group = it.broker.groups.shards.get(REDRIVE)
        assert group is None or not group.queues()


@on_a_loop
async def test_rule_12_a_group_is_what_it_was_made_whatever_the_defaults_become(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        await it.join()
    async with bench(tmp_path, GroupSettings(kind="sticky", mode="stream", max_in_flight=7)) as it:
        settings = it.broker.groups.shards.find("g").settings
        assert (settings.kind, settings.mode, settings.max_in_flight) == ("range", "queue", 7)


@on_a_loop
async def test_settings_that_do_not_go_with_the_defaults_are_refused(tmp_path: Path) -> None:
    async with bench(tmp_path, GroupSettings(kind="shared")) as it:
        await it.topic()
        with pytest.raises(InvalidSettings):
            await it.join(mode="stream")
        await it.join(mode="stream", kind="sticky")


@on_a_loop
async def test_a_message_given_back_and_delivered_again_counts_one_delivery(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        await it.publish(b"x")
        member = await it.join()
        first = await it.poll(member)
        await it.settle("release", *first)
        [again] = await it.poll(member)
        assert again.count == 1
        [refusal] = await it.settle("ack", *first)
        assert isinstance(refusal, StaleReceipt)
