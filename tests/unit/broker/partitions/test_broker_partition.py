from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from doubles.messages import Ticking, batch_of
from doubles.no_listeners import NoListeners
from doubles.power_loss import PowerLossDisk

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.read import Bounds, read_frames, read_messages, start_of, wait_for_any
from goqueue.model.errors import OffsetOutOfRange, StorageFailed, TopicNotFound
from goqueue.model.topic_settings import FsyncPolicy
from goqueue.storage.log.group_commit import GroupCommit
from goqueue.storage.log.log import LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log

ROOT = Path("/data")
LONG_MS = 25_000
Two = Callable[[Partition, Partition], Awaitable[None]]


def with_partitions(work: Two, policy: FsyncPolicy = "always") -> None:
    async def run() -> None:
        disk = PowerLossDisk()
        commits = GroupCommit(disk, ROOT)
        files = OpenFiles(disk, 100)
        logs = [open_log(files, ROOT / name, LogOptions(64 << 10), Ticking()) for name in "ab"]
        try:
            await work(*(Partition(log, commits, policy, "", NoListeners(), NoListeners()) for log in logs))
        finally:
            await commits.close()

    asyncio.run(run())


async def store(partition: Partition, *values: bytes) -> None:
    first = partition.append(batch_of(values))
    await partition.acknowledge(first + len(values))


async def settle() -> None:
    """Let everyone who can run do so."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_under_always_the_watermark_follows_the_disk() -> None:
    async def work(partition: Partition, _: Partition) -> None:
        partition.append(batch_of([b"a"]))
        assert partition.high_watermark == 0
        await partition.acknowledge(1)
        assert partition.high_watermark == 1

    with_partitions(work)


@pytest.mark.parametrize("policy", ["interval", "never"])
def test_under_the_other_policies_it_follows_the_writes(policy: FsyncPolicy) -> None:
    async def work(partition: Partition, _: Partition) -> None:
        partition.append(batch_of([b"a"]))
        await partition.acknowledge(1)
        assert (partition.high_watermark, partition.log.durable_offset) == (1, 0)

    with_partitions(work, policy)


def test_whoever_waits_is_woken_by_the_next_message() -> None:
    async def work(partition: Partition, _: Partition) -> None:
        waiting = asyncio.create_task(wait_for_any([(partition, 0)], LONG_MS))
        await settle()
        assert not waiting.done()
        await store(partition, b"a")
        assert await waiting

    with_partitions(work)


def test_a_wait_over_several_partitions_ends_with_the_first_that_has_something() -> None:
    async def work(first: Partition, second: Partition) -> None:
        waiting = asyncio.create_task(wait_for_any([(first, 0), (second, 0)], LONG_MS))
        await settle()
        await store(second, b"a")
        assert await waiting
        assert not first._waiters and not second._waiters

    with_partitions(work)


def test_a_wait_that_times_out_leaves_nothing_behind() -> None:
    async def work(partition: Partition, _: Partition) -> None:
        assert not await wait_for_any([(partition, 0)], 10)
        assert not partition._waiters

    with_partitions(work)


def test_a_wait_that_is_cancelled_leaves_nothing_behind() -> None:
    async def work(partition: Partition, _: Partition) -> None:
        waiting = asyncio.create_task(wait_for_any([(partition, 0)], LONG_MS))
        await settle()
        assert len(partition._waiters) == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert not partition._waiters

    with_partitions(work)


def test_being_woken_for_nothing_is_not_news() -> None:
    async def work(partition: Partition, _: Partition) -> None:
        waiting = asyncio.create_task(wait_for_any([(partition, 0)], LONG_MS))
        await settle()
        for _ in range(3):
            partition.wake()
            await settle()
            assert not waiting.done()
        await store(partition, b"a")
        assert await waiting

    with_partitions(work)


def test_a_message_below_the_offset_that_is_waited_for_is_not_news() -> None:
    async def work(partition: Partition, _: Partition) -> None:
        partition.append(batch_of([b"a", b"b"]))
        waiting = asyncio.create_task(read_frames(partition, 2, Bounds(1 << 20, wait_ms=LONG_MS)))
        await partition.acknowledge(2)
        await settle()
        assert not waiting.done()
        await store(partition, b"c")
        assert (await waiting).next_offset == 3

    with_partitions(work)


def test_stopping_ends_waits_and_lets_none_begin() -> None:
    async def work(partition: Partition, _: Partition) -> None:
        waiting = asyncio.create_task(read_messages(partition, 0, Bounds(1 << 20, wait_ms=LONG_MS)))
        await settle()
        partition.stop_waiting()
        assert (await waiting).messages == []
        assert (await read_messages(partition, 0, Bounds(1 << 20, wait_ms=LONG_MS))).messages == []

    with_partitions(work)


def test_a_deleted_topic_is_not_found_by_readers_and_by_those_who_wait_for_an_acknowledgement() -> None:
    async def work(partition: Partition, _: Partition) -> None:
        await store(partition, b"a")
        waiting = asyncio.create_task(read_frames(partition, 1, Bounds(1 << 20, wait_ms=LONG_MS)))
        await settle()
        partition.append(batch_of([b"b"]))
        storing = partition.acknowledge(2)
        partition.close()
        with pytest.raises(TopicNotFound):
            await waiting
        with pytest.raises(StorageFailed) as failure:
            await storing
        assert isinstance(partition.reason(failure.value), TopicNotFound)

    with_partitions(work)


def test_a_read_ends_at_the_watermark_and_goes_on_behind_it() -> None:
    async def work(partition: Partition, _: Partition) -> None:
        await store(partition, b"a")
        partition.append(batch_of([b"hidden"]))
        page = await read_messages(partition, 0, Bounds(1 << 20))
        assert ([each.value for each in page.messages], page.next_offset) == ([b"a"], 1)
        await partition.acknowledge(2)
        page = await read_messages(partition, page.next_offset, Bounds(1 << 20))
        assert [each.value for each in page.messages] == [b"hidden"]

    with_partitions(work)


def test_a_read_by_instant_never_begins_beyond_the_watermark() -> None:
    async def work(partition: Partition, _: Partition) -> None:
        await store(partition, b"a")
        partition.append(batch_of([b"hidden"]))
        assert start_of(partition, None, 1 << 62) == 1
        assert start_of(partition, None, 0) == 0

    with_partitions(work)


def test_offset_0_is_the_beginning_wherever_that_is() -> None:
    async def work(partition: Partition, _: Partition) -> None:
        await store(partition, b"a", b"b", b"c")
        partition.log.start_offset = 2
        assert start_of(partition, 0, None) == start_of(partition, None, None) == 2
        with pytest.raises(OffsetOutOfRange):
            await read_messages(partition, start_of(partition, 1, None), Bounds(1 << 20))

    with_partitions(work)
