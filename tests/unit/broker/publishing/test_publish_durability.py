"""A publish is answered when what it stored is as durable as its topic promises; so is one that is known by its id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from behaviour.faulty_files import FaultyFiles, of_topic
from behaviour.host import config_for
from doubles.async_tests import until
from doubles.loop import on_a_loop

from goqueue.broker.broker import Broker
from goqueue.model.errors import StorageFailed
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage, Outcome
from goqueue.wire.batch import join_frames, parse_batch
from goqueue.wire.frame import encode_frame

QUIET = {"cleanup_interval_ms": 3_600_000, "checkpoint_interval_ms": 3_600_000, "fsync_interval_ms": 60_000}


@asynccontextmanager
async def broker_on(path: Path, disk: FaultyFiles) -> AsyncIterator[Broker]:
    async with Broker(config_for(path, storage=QUIET), files=disk) as broker:
        await broker.create_topic("t", {"partitions": 2})
        yield broker


def publishing(broker: Broker, *dedup_ids: str, partition: int = 0) -> asyncio.Task[list[Outcome]]:
    messages = [NewMessage(b"v", partition=partition, dedup_id=each) for each in dedup_ids]
    return asyncio.create_task(broker.publish("t", messages))


async def turns_of_the_loop(count: int = 50) -> None:
    """All the time that a publish can want which waits for nothing."""
    for _ in range(count):
        await asyncio.sleep(0)


@on_a_loop
async def test_a_duplicate_is_not_acknowledged_before_the_first_one_is_durable(tmp_path: Path) -> None:
    disk = FaultyFiles()
    async with broker_on(tmp_path, disk) as broker:
        with disk.hanging(of_topic("t")) as begun:
            first = publishing(broker, "one")
            assert await asyncio.to_thread(begun.wait, 30)
            second = publishing(broker, "one")
            await turns_of_the_loop()
            assert not first.done()
            assert not second.done()
        [stored], [found] = await first, await second
        assert isinstance(stored, Published)
        assert isinstance(found, Published)
        assert (found.offset, found.is_duplicate) == (stored.offset, True)


@on_a_loop
@pytest.mark.parametrize("again", [("one",), ("one", "two"), ("two", "one")])
async def test_a_duplicate_is_not_acknowledged_if_the_first_one_never_becomes_durable(
    tmp_path: Path, again: tuple[str, ...]
) -> None:
    """Be it alone, or beside a message that is new and lies where the disk does not fail."""
    disk = FaultyFiles()
    async with broker_on(tmp_path, disk) as broker:
        with disk.hanging(of_topic("t", 0)) as begun:
            first = publishing(broker, "one")
            assert await asyncio.to_thread(begun.wait, 30)
            second = publishing(broker, *again, partition=1)
            await turns_of_the_loop()
            disk.fails = of_topic("t", 0)
        [stored], found = await first, await second
        assert isinstance(stored, StorageFailed)
        assert isinstance(found[again.index("one")], StorageFailed)


@on_a_loop
@pytest.mark.parametrize("again", [("early", "late"), ("late", "early")])
async def test_several_duplicates_are_not_acknowledged_before_the_last_of_the_first_ones_is_durable(
    tmp_path: Path, again: tuple[str, str]
) -> None:
    disk = FaultyFiles()
    async with broker_on(tmp_path, disk) as broker:
        await publishing(broker, "early")
        with disk.hanging(of_topic("t")) as begun:
            late = publishing(broker, "late")
            assert await asyncio.to_thread(begun.wait, 30)
            both = publishing(broker, *again)
            await turns_of_the_loop()
            assert not late.done()
            assert not both.done()
        await late
        assert [isinstance(each, Published) and each.is_duplicate for each in await both] == [True, True]


@on_a_loop
async def test_a_batch_of_frames_is_not_acknowledged_before_it_is_durable(tmp_path: Path) -> None:
    disk = FaultyFiles()
    async with broker_on(tmp_path, disk) as broker:
        run = parse_batch(join_frames([encode_frame(b"", b"v", b"", broker.clock.now_ns())], 0).to_wire())
        with disk.hanging(of_topic("t")) as begun:
            publishing = asyncio.create_task(broker.publish_frames("t", 0, run))
            assert await asyncio.to_thread(begun.wait, 30)
            await turns_of_the_loop()
            assert not publishing.done()
        assert await publishing == 0


@on_a_loop
async def test_what_nobody_waits_for_is_brought_to_the_disk_by_and_by(tmp_path: Path) -> None:
    async with Broker(config_for(tmp_path, storage=QUIET | {"fsync_interval_ms": 10})) as broker:
        await broker.create_topic("t", {"partitions": 1, "fsync": "interval"})
        await broker.publish("t", [NewMessage(b"v")])
        await until(lambda: broker.topic("t").partitions[0].log.durable_offset == 1)
