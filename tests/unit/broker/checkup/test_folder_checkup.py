"""A check-up of the files that follow from a log: what a kill leaves is no damage, and damage is."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from goqueue.broker.broker import Broker
from goqueue.broker.checkup.folder_checkup import Checkup, CheckupOptions
from goqueue.broker.partitions.partition import Partition
from goqueue.model.config import Config, StorageConfig
from goqueue.model.publishing import NewMessage
from goqueue.storage.checkup.findings import Finding, Severity
from goqueue.storage.files.checkpoint import CheckpointFile, RecoveryPoint
from goqueue.storage.files.files import OsFiles
from goqueue.storage.log.group_commit import GroupCommit
from goqueue.storage.log.log import Log
from goqueue.wire.batch import FrameRun, join_frames, parse_batch
from goqueue.wire.frame import encode_frame
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.producer_frames import stamp_batch

NEVER_MS = 3_600_000
MESSAGES = 5
LARGE = b"v" * 300_000
SETTINGS: dict[str, object] = {"partitions": 1, "retention_bytes": 1 << 20}
"""Of as many messages as these, retention keeps nothing but the segment that grows."""


@asynccontextmanager
async def running(root: Path) -> AsyncIterator[Broker]:
    """One that does nothing by itself."""
    storage = StorageConfig(
        path=str(root), min_free_bytes=0, checkpoint_interval_ms=NEVER_MS, cleanup_interval_ms=NEVER_MS
    )
    async with Broker(Config(storage=storage)) as broker:
        yield broker


async def publish(broker: Broker) -> None:
    for _ in range(MESSAGES):
        await broker.publish("t", [NewMessage(LARGE, partition=0)])


async def publish_idempotently(broker: Broker, producer_id: int, sequence: int = 0) -> None:
    frame = encode_frame(b"", b"v", b"", broker.clock.now_ns())
    run: FrameRun = parse_batch(
        join_frames(stamp_batch([frame], ProducerStamp(producer_id, 0, sequence, 1)), 0).to_wire()
    )
    await broker.publish_frames("t", 0, run)


async def publish_with_id(broker: Broker, producer_id: int) -> None:
    await broker.publish("t", [NewMessage(b"v", partition=0, dedup_id="d")])


def partition_of(broker: Broker) -> Partition:
    return broker.topic("t").partitions[0]


def killed(root: Path, copy: Path) -> Path:
    """What a broker leaves that is killed now."""
    return Path(shutil.copytree(root, copy, dirs_exist_ok=True))


def found_in(root: Path) -> list[Finding]:
    return [each for each in Checkup(root, CheckupOptions()).run().every_finding() if each.severity != Severity.NOTE]


def point_in(root: Path) -> RecoveryPoint:
    (point,) = (point for name, point in CheckpointFile(OsFiles(), root / "checkpoint").load().items() if "/t~" in name)
    return point


async def purge(broker: Broker) -> None:
    await broker.purge_topic("t")


async def retention(broker: Broker) -> None:
    partition_of(broker).log.roll()
    await broker._upkeep.expire()


@pytest.mark.parametrize("publish_first", [publish_idempotently, publish_with_id])
@pytest.mark.parametrize("removal", [purge, retention])
async def test_a_producer_that_comes_while_the_start_moves_leaves_no_file_to_be_missed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    removal: Callable[[Broker], Awaitable[None]],
    publish_first: Callable[[Broker, int], Awaitable[None]],
) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.create_topic("t", SETTINGS)
        producer = await broker.transactions.init()
        await publish(broker)
        log = partition_of(broker).log
        sync = GroupCommit.sync

        async def sync_and_meet_a_producer(self: GroupCommit, logs: Iterable[Log]) -> None:
            """The point is taken when this returns: of a log whose start has moved, with a producer behind it."""
            monkeypatch.undo()
            assert log.start_offset == log.end_offset == MESSAGES
            await publish_first(broker, producer.producer_id)
            await sync(self, logs)

        monkeypatch.setattr(GroupCommit, "sync", sync_and_meet_a_producer)
        await removal(broker)
        root = killed(tmp_path / "data", tmp_path / "killed")
    point = point_in(root)
    assert (point.start_offset, point.base, point.count) == (MESSAGES, MESSAGES, 1)
    assert not list(root.glob("logs/t~*/0/producers")), "nothing is gone that told of anybody"
    assert found_in(root) == []


async def test_a_start_without_recovery_points_leaves_no_file_to_be_missed(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.create_topic("t", SETTINGS)
        producer = await broker.transactions.init()
        await publish(broker)
        await purge(broker)
        await publish_idempotently(broker, producer.producer_id)
        root = killed(tmp_path / "data", tmp_path / "killed")
    (root / "checkpoint").unlink()
    assert found_in(root) == []
    async with running(root) as broker:
        assert partition_of(broker).producers.state.known.keys() == {producer.producer_id}
        await broker.checkpoints.save(list(broker.recoverables()))
        again = killed(root, tmp_path / "again")
    assert point_in(again).start_offset == MESSAGES
    assert not list(again.glob("logs/t~*/0/producers"))
    assert found_in(again) == []


async def test_every_damage_to_the_file_of_producers_is_found_after_a_purge(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.create_topic("t", SETTINGS)
        before, after = await broker.transactions.init(), await broker.transactions.init()
        await publish(broker)
        await publish_idempotently(broker, before.producer_id)
        await purge(broker)
        await publish_idempotently(broker, after.producer_id)
        root = killed(tmp_path / "data", tmp_path / "killed")
    assert found_in(root) == []
    (path,) = root.glob("logs/t~*/0/producers")
    right = path.read_bytes()
    flipped = [right[:at] + bytes([right[at] ^ 0x10]) + right[at + 1 :] for at in range(len(right))]
    for content in (*flipped, right[:-1], b"", None):
        path.unlink() if content is None else path.write_bytes(content)
        assert [(each.severity, each.path) for each in found_in(root)] == [(Severity.DAMAGE, path)], content
