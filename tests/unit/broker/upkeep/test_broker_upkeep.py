from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest
from behaviour.clock import START_NS, ManualClock
from behaviour.faulty_files import FaultyFiles, of_checkpoint, of_topic
from behaviour.host import config_for
from doubles.power_loss import PowerLossDisk

from goqueue.broker.broker import Broker
from goqueue.broker.partitions.read import Bounds
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage

HOUR_MS = 3_600_000
QUIET = {"cleanup_interval_ms": HOUR_MS, "checkpoint_interval_ms": HOUR_MS, "fsync_interval_ms": 60_000}
EVERYTHING = Bounds(1 << 30)
WithBroker = Callable[[Callable[[Broker], Awaitable[None]]], None]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def disk() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def with_broker(tmp_path: Path, clock: ManualClock, disk: FaultyFiles) -> WithBroker:
    """Runs a test on a broker that does nothing by itself."""

    def run(work: Callable[[Broker], Awaitable[None]]) -> None:
        async def inside() -> None:
            async with Broker(config_for(tmp_path, storage=QUIET), clock=clock, files=disk) as broker:
                await work(broker)

        asyncio.run(inside())

    return run


async def clean_up(broker: Broker) -> None:
    await broker._upkeep.expire()
    await broker._upkeep.compact()


async def publish(broker: Broker, topic: str, *values: bytes, **fields: object) -> None:
    for value in values:
        (outcome,) = await broker.publish(topic, [NewMessage(value, partition=0, **fields)])  # type: ignore[arg-type]
        assert isinstance(outcome, Published), outcome


async def offsets(broker: Broker, topic: str) -> list[int]:
    return [message.offset for message in (await broker.read(topic, 0, EVERYTHING)).messages]


def log_files(root: Path, topic: str) -> list[str]:
    (folder,) = (root / "logs").glob(f"{topic}~*")
    return sorted(path.name for path in (folder / "0").glob("*.log"))


BIG = b"x" * 60_000
SMALL_SEGMENTS = {"partitions": 1, "segment_bytes": 64 << 10}


def test_rule_9_retention_goes_by_the_time_of_the_append(with_broker: WithBroker, clock: ManualClock) -> None:
    """Producers' timestamps say the opposite: the first is new and the last is ancient."""

    async def work(broker: Broker) -> None:
        await broker.create_topic("t", {**SMALL_SEGMENTS, "retention_ms": HOUR_MS})
        await publish(broker, "t", BIG, timestamp_ns=START_NS + HOUR_MS * 1_000_000)
        clock.advance_ms(HOUR_MS // 2)
        await publish(broker, "t", BIG, timestamp_ns=0)
        clock.advance_ms(HOUR_MS // 2 - 1)
        await clean_up(broker)
        assert await offsets(broker, "t") == [0, 1]
        clock.advance_ms(2)
        await clean_up(broker)
        assert await offsets(broker, "t") == [1]

    with_broker(work)


def test_a_segment_that_still_takes_appends_expires_too(with_broker: WithBroker, clock: ManualClock) -> None:
    async def work(broker: Broker) -> None:
        await broker.create_topic("t", {"partitions": 1, "retention_ms": HOUR_MS})
        await publish(broker, "t", b"a", b"b")
        clock.advance_ms(HOUR_MS + 1)
        await clean_up(broker)
        assert await offsets(broker, "t") == []
        await publish(broker, "t", b"c")
        assert await offsets(broker, "t") == [2]

    with_broker(work)


def test_unlimited_retention_keeps_everything(with_broker: WithBroker, clock: ManualClock) -> None:
    async def work(broker: Broker) -> None:
        await broker.create_topic("t", {**SMALL_SEGMENTS, "retention_ms": "unlimited"})
        await publish(broker, "t", BIG, BIG)
        clock.advance_ms(HOUR_MS * 24 * 3_650)
        await clean_up(broker)
        assert await offsets(broker, "t") == [0, 1]

    with_broker(work)


def test_files_go_only_after_the_new_start_is_durable(
    with_broker: WithBroker, clock: ManualClock, disk: FaultyFiles, tmp_path: Path
) -> None:
    async def work(broker: Broker) -> None:
        await broker.create_topic("t", {**SMALL_SEGMENTS, "retention_ms": HOUR_MS})
        await publish(broker, "t", BIG, BIG)
        clock.advance_ms(HOUR_MS + 1)
        disk.cannot_write = of_checkpoint
        await clean_up(broker)
        assert len(log_files(tmp_path, "t")) == 3
        disk.cannot_write = lambda path: False
        await broker._upkeep.checkpoint()
        assert len(log_files(tmp_path, "t")) == 1

    with_broker(work)


def test_a_partition_without_room_does_not_keep_the_others_from_being_cleaned(
    with_broker: WithBroker, clock: ManualClock, disk: FaultyFiles
) -> None:
    async def work(broker: Broker) -> None:
        for name in ("a", "b"):
            await broker.create_topic(name, {"partitions": 1, "retention_ms": HOUR_MS})
            await publish(broker, name, b"v")
        clock.advance_ms(HOUR_MS + 1)
        disk.cannot_write = of_topic("a")
        await clean_up(broker)
        assert await offsets(broker, "a") == [0]
        assert await offsets(broker, "b") == []
        disk.cannot_write = lambda path: False
        await clean_up(broker)
        assert await offsets(broker, "a") == []

    with_broker(work)


def test_what_is_not_durable_is_not_expired(with_broker: WithBroker, clock: ManualClock, disk: FaultyFiles) -> None:
    async def work(broker: Broker) -> None:
        await broker.create_topic("t", {**SMALL_SEGMENTS, "retention_ms": HOUR_MS})
        await publish(broker, "t", BIG)
        with disk.hanging(of_topic("t")) as begun:
            publishing = asyncio.create_task(publish(broker, "t", BIG))
            assert await asyncio.to_thread(begun.wait, 30)
            clock.advance_ms(HOUR_MS + 1)
            expiring = asyncio.create_task(broker._upkeep._retention._apply(broker.topic("t")))
            await asyncio.sleep(0)
        assert await expiring
        await publishing
        log = broker.topic("t").partition(0).log
        assert (log.start_offset, log.end_offset) == (1, 2)

    with_broker(work)


def test_compaction_leaves_room_for_appends_while_it_runs(with_broker: WithBroker) -> None:
    async def work(broker: Broker) -> None:
        await broker.create_topic("t", {**SMALL_SEGMENTS, "cleanup": "compact"})
        for number in range(40):
            messages = [NewMessage(b"%d" % number, b"k%d" % key, partition=0) for key in range(100)]
            await broker.publish("t", messages)
        cleaning = asyncio.create_task(clean_up(broker))
        stored = 0
        while not cleaning.done():
            await publish(broker, "t", b"meanwhile", key=b"new-%d" % stored)
            stored += 1
        await cleaning
        assert stored > 1
        found = (await broker.read("t", 0, EVERYTHING)).messages
        assert len(found) < 4_000
        last = {message.key: message.value for message in found}
        assert {key: value for key, value in last.items() if key and key.startswith(b"k")} == {
            b"k%d" % key: b"39" for key in range(100)
        }
        assert sum(value == b"meanwhile" for value in last.values()) == stored

    with_broker(work)


def test_compaction_leaves_alone_what_is_not_durable_and_what_that_supersedes(tmp_path: Path) -> None:
    """Else a power loss takes the new value, and the old one is gone already."""

    async def run() -> None:
        disk = PowerLossDisk()
        broker = Broker(config_for(tmp_path, storage=QUIET), files=disk)
        await broker.start()
        await broker.create_topic("t", {**SMALL_SEGMENTS, "cleanup": "compact", "fsync": "interval"})
        await publish(broker, "t", b"old", key=b"k")
        await publish(broker, "t", BIG, key=b"other")
        await broker._upkeep.sync_by_interval()
        await publish(broker, "t", b"new", BIG, key=b"k")
        await publish(broker, "t", BIG, key=b"k")
        log = broker.topic("t").partition(0).log
        assert log.durable_offset == 2 < log.active.base
        await broker._upkeep.compact()
        left = [disk.crash(Random(seed)) for seed in range(20)]
        await broker.close()
        for seed, each in enumerate(left):
            async with Broker(config_for(tmp_path, storage=QUIET), files=each) as again:
                found = (await again.read("t", 0, EVERYTHING)).messages
                assert b"k" in {message.key for message in found}, f"seed {seed}"

    asyncio.run(run())


def test_compaction_looks_at_what_is_durable(with_broker: WithBroker) -> None:
    async def work(broker: Broker) -> None:
        await broker.create_topic("t", {**SMALL_SEGMENTS, "cleanup": "compact", "fsync": "interval"})
        await publish(broker, "t", BIG, BIG, BIG, key=b"k")
        await broker._upkeep.compact()
        assert await offsets(broker, "t") == [0, 1, 2]
        await broker._upkeep.sync_by_interval()
        await broker._upkeep.compact()
        assert await offsets(broker, "t") == [1, 2]

    with_broker(work)


def test_tombstones_go_when_their_time_is_over(with_broker: WithBroker, clock: ManualClock) -> None:
    async def work(broker: Broker) -> None:
        await broker.create_topic("t", {**SMALL_SEGMENTS, "cleanup": "compact", "tombstone_retention_ms": HOUR_MS})
        await publish(broker, "t", b"v", key=b"k")
        await broker.publish("t", [NewMessage(None, b"k", partition=0)])
        await publish(broker, "t", BIG, BIG, key=b"other")
        await clean_up(broker)
        assert await offsets(broker, "t") == [1, 2, 3]
        clock.advance_ms(HOUR_MS + 1)
        await publish(broker, "t", BIG, BIG, key=b"other")
        await clean_up(broker)
        assert 1 not in await offsets(broker, "t")

    with_broker(work)


def test_a_topic_deleted_while_it_is_compacted_is_simply_gone(with_broker: WithBroker, tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await broker.create_topic("t", {**SMALL_SEGMENTS, "cleanup": "compact"})
        for _ in range(20):
            await broker.publish("t", [NewMessage(b"x" * 500, b"k%d" % key, partition=0) for key in range(100)])
        cleaning = asyncio.create_task(clean_up(broker))
        await asyncio.sleep(0)
        await broker.delete_topic("t")
        await cleaning
        assert broker.topic_names() == []
        assert list((tmp_path / "logs").glob("t~*")) == []

    with_broker(work)


def test_stopping_waits_for_what_is_being_done(tmp_path: Path, disk: FaultyFiles) -> None:
    """A thread that still wrote recovery points after the folder was let go would meet the next broker's."""

    async def run() -> None:
        broker = Broker(config_for(tmp_path, storage={**QUIET, "checkpoint_interval_ms": 100}), files=disk)
        await broker.start()
        await broker.create_topic("t", {"partitions": 1})
        await publish(broker, "t", b"v")
        with disk.hanging(of_checkpoint) as begun:
            assert await asyncio.to_thread(begun.wait, 30)
            (checkpointing,) = [task for task in broker._upkeep._tasks if task.get_name() == "checkpoint"]
            closing = asyncio.create_task(broker.close())
            for _ in range(10):
                await asyncio.sleep(0)
            assert not checkpointing.done()
            assert not closing.done()
        await closing
        async with Broker(config_for(tmp_path, storage=QUIET)) as again:
            assert await offsets(again, "t") == [0]

    asyncio.run(run())


def test_one_failed_round_of_upkeep_is_followed_by_another(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with Broker(config_for(tmp_path, storage={**QUIET, "cleanup_interval_ms": 100})) as broker:
            rounds = asyncio.Event()
            calls = 0

            def fail() -> list[object]:
                nonlocal calls
                calls += 1
                if calls == 2:
                    rounds.set()
                raise RuntimeError("a defect")

            real, broker.running_topics = broker.running_topics, fail  # type: ignore[method-assign, assignment]
            async with asyncio.timeout(30):
                await rounds.wait()
            broker.running_topics = real  # type: ignore[method-assign]

    asyncio.run(run())
    assert any("it will be tried again" in record.getMessage() for record in caplog.records)
