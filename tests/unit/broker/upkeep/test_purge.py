"""A purge that cannot be made durable is not answered as if it were."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from doubles.power_loss import PowerLossDisk

from goqueue.broker.broker import Broker
from goqueue.model.config import Config, StorageConfig
from goqueue.model.errors import DiskFull, StorageFailed, TopicNotFound
from goqueue.model.publishing import NewMessage
from goqueue.storage.files.checkpoint import CheckpointFile
from goqueue.storage.log.log import Log


def config() -> Config:
    return Config(storage=StorageConfig(path="/data", min_free_bytes=0))


async def filled(broker: Broker, name: str = "t") -> None:
    await broker.create_topic(name, {"partitions": 1})
    await broker.publish(name, [NewMessage(b"a", partition=0), NewMessage(b"b", partition=0)])


async def test_recovery_points_that_cannot_be_written_are_told_and_a_second_try_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_room(self: CheckpointFile, points: dict[str, Any]) -> None:
        raise OSError(errno.ENOSPC, "no room")

    disk = PowerLossDisk()
    async with Broker(config(), files=disk) as broker:
        await filled(broker)
        with monkeypatch.context() as patch:
            patch.setattr(CheckpointFile, "save", no_room)
            with pytest.raises(StorageFailed, match="is still in its files; purge it again"):
                await broker.purge_topic("t")
        (again,) = await broker.purge_topic("t")
        assert (again.earliest_before, again.earliest, again.removed) == (2, 2, 0)
        point = broker.checkpoints.point(broker.topic("t").partitions[0].log.folder)
        assert point is not None and point.start_offset == 2


async def test_a_full_disk_does_not_keep_a_topic_from_being_purged(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(self: Log) -> None:
        raise DiskFull("no room for another segment")

    async with Broker(config(), files=PowerLossDisk()) as broker:
        await filled(broker)
        with monkeypatch.context() as patch:
            patch.setattr(Log, "roll", no_room)
            (purged,) = await broker.purge_topic("t")
        assert (purged.earliest, purged.removed) == (2, 2)


async def test_a_partition_that_takes_no_more_writes_is_told_before_anything_changes() -> None:
    async with Broker(config(), files=PowerLossDisk()) as broker:
        await broker.create_topic("t", {"partitions": 2})
        await broker.publish("t", [NewMessage(b"a", partition=0), NewMessage(b"b", partition=1)])
        broker.topic("t").partitions[1].log.fail("it was pulled out")
        with pytest.raises(StorageFailed, match=r"t.*1.*it was pulled out"):
            await broker.purge_topic("t")
        assert [each.log.start_offset for each in broker.topic("t").partitions] == [0, 0]
        (purged,) = await broker.purge_topic("t", 0)
        assert purged.removed == 1


async def test_a_topic_that_is_deleted_meanwhile_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with Broker(config(), files=PowerLossDisk()) as broker:
        await filled(broker)
        save = broker.checkpoints.save

        async def delete_then_save(logs: list[Log]) -> None:
            monkeypatch.undo()
            await broker.delete_topic("t")
            await save(logs)

        monkeypatch.setattr(broker.checkpoints, "save", delete_then_save)
        with pytest.raises(TopicNotFound):
            await broker.purge_topic("t")
