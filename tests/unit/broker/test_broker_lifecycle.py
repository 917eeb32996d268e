"""A broker from start to close, and what must hold when something goes wrong in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from behaviour.faulty_files import FaultyFiles, of_topic
from behaviour.host import config_for

from goqueue.broker.broker import Broker
from goqueue.broker.partitions.read import Bounds
from goqueue.model.errors import GoQueueError, Overloaded, ShuttingDown, StorageFailed
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage
from goqueue.storage.files.checkpoint import CheckpointFile
from goqueue.storage.files.files import OsFiles

ONE = [NewMessage(b"v", partition=0)]


@pytest.fixture
def disk() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def run(tmp_path: Path, disk: FaultyFiles) -> Callable[[Callable[[Broker], Awaitable[None]]], None]:
    def with_broker(work: Callable[[Broker], Awaitable[None]]) -> None:
        async def inside() -> None:
            async with Broker(config_for(tmp_path), files=disk) as broker:
                await work(broker)

        asyncio.run(inside())

    return with_broker


Run = Callable[[Callable[[Broker], Awaitable[None]]], None]


def saved_points(root: Path) -> set[str]:
    return set(CheckpointFile(OsFiles(), root / "checkpoint").load())


def half_made(root: Path) -> list[Path]:
    return list(root.rglob("*.compacted"))


def test_closing_twice_leaves_the_recovery_points_alone(run: Run, tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await broker.create_topic("t", {"partitions": 2})
        await broker.publish("t", ONE)
        await broker.close()

    run(work)
    topics = {name for name in saved_points(tmp_path) if not name.startswith("logs/__")}
    assert len(topics) == 2


def test_a_broker_that_never_started_can_be_closed(tmp_path: Path) -> None:
    asyncio.run(Broker(config_for(tmp_path)).close())


def test_a_closed_broker_is_not_read_from(run: Run) -> None:
    async def work(broker: Broker) -> None:
        await broker.create_topic("t")
        await broker.close()
        with pytest.raises(ShuttingDown):
            await broker.read("t", 0, Bounds(1_000))

    run(work)


def test_a_partition_whose_disk_failed_keeps_its_recovery_point(run: Run, tmp_path: Path, disk: FaultyFiles) -> None:
    async def work(broker: Broker) -> None:
        await broker.create_topic("t", {"partitions": 1})
        await broker.publish("t", ONE)
        await broker._upkeep.checkpoint()
        disk.fails = of_topic("t")
        assert isinstance((await broker.publish("t", ONE))[0], StorageFailed)
        await broker._upkeep.checkpoint()
        disk.fails = lambda path: False

    run(work)
    assert any(name.startswith("logs/t~") for name in saved_points(tmp_path))


def test_a_topic_whose_partitions_cannot_be_opened_does_not_exist(run: Run, disk: FaultyFiles) -> None:
    async def work(broker: Broker) -> None:
        listing = disk.list_dir

        def refuse(path: Path) -> list[str]:
            if of_topic("t")(path):
                raise OSError(24, "Too many open files")
            return listing(path)

        disk.list_dir = refuse  # type: ignore[method-assign]
        with pytest.raises(Overloaded, match="Too many open files"):
            await broker.create_topic("t")
        disk.list_dir = listing  # type: ignore[method-assign]
        assert broker.topic_names() == []
        await broker.create_topic("t")
        assert isinstance((await broker.publish("t", ONE))[0], Published)

    run(work)


def test_being_out_of_descriptors_for_a_moment_fails_no_partition(run: Run, disk: FaultyFiles) -> None:
    async def work(broker: Broker) -> None:
        await broker.create_topic("t", {"partitions": 1})
        tries = 0

        def twice(path: Path) -> bool:
            nonlocal tries
            tries += of_topic("t")(path) and path.name == "0"
            return 0 < tries <= 2

        disk.cannot_open = twice
        assert isinstance((await broker.publish("t", ONE))[0], Published)
        assert tries > 2
        assert broker.problems() == {}

    run(work)


def test_an_impatient_stop_does_not_strand_a_publish(tmp_path: Path, disk: FaultyFiles) -> None:
    async def work() -> None:
        broker = Broker(config_for(tmp_path), files=disk)
        await broker.start()
        await broker.create_topic("t", {"partitions": 1})
        with disk.hanging(of_topic("t")) as reached:
            publishing = asyncio.create_task(broker.publish("t", ONE))
            await asyncio.to_thread(reached.wait)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(broker._commits.close(), 0.01)
        outcome = (await publishing)[0]
        assert isinstance(outcome, Published | GoQueueError)
        await broker.close()

    asyncio.run(work())


def test_a_compaction_that_finds_no_room_leaves_nothing_half_made(run: Run, tmp_path: Path, disk: FaultyFiles) -> None:
    async def work(broker: Broker) -> None:
        await broker.create_topic("t", {"partitions": 1, "cleanup": "compact", "segment_bytes": "64KiB"})
        for number in range(60):
            await broker.publish("t", [NewMessage(b"x" * 4_000, key=b"k%d" % (number % 3))])
        disk.cannot_write = lambda path: path.name.endswith((".index.compacted", ".timeindex.compacted"))
        await broker._upkeep.compact()
        disk.cannot_write = lambda path: False
        assert half_made(tmp_path) == []
        await broker._upkeep.compact()
        assert half_made(tmp_path) == []
        read = await broker.read("t", 0, Bounds(1 << 20))
        assert len(read.messages) < 60

    run(work)


def test_a_nearly_full_disk_is_not_filled_by_compaction(run: Run, disk: FaultyFiles) -> None:
    async def work(broker: Broker) -> None:
        await broker.create_topic("t", {"partitions": 1, "cleanup": "compact", "segment_bytes": "64KiB"})
        for number in range(60):
            await broker.publish("t", [NewMessage(b"x" * 4_000, key=b"k%d" % (number % 3))])
        disk.free = -1
        broker.disk.look()
        await broker._upkeep.compact()
        assert len((await broker.read("t", 0, Bounds(1 << 20))).messages) == 60

    run(work)


def test_a_topic_that_is_deleted_twice_while_a_namesake_comes_takes_nothing_of_it_along(run: Run) -> None:
    async def work(broker: Broker) -> None:
        for _ in range(20):
            await broker.create_topic("t", {"partitions": 1})
            outcomes = await asyncio.gather(
                broker.delete_topic("t"),
                broker.create_topic("t", {"partitions": 1}),
                broker.delete_topic("t"),
                broker.change_topic("t", {"retention_ms": 5_000}),
                return_exceptions=True,
            )
            assert all(isinstance(each, GoQueueError) or not isinstance(each, Exception) for each in outcomes), outcomes
            if "t" in broker.topic_names():
                assert isinstance((await broker.publish("t", ONE))[0], Published)
                await broker.delete_topic("t")
        assert broker.topic_names() == []

    run(work)
