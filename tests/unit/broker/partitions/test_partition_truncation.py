"""A partition is cut back while others write to it, read it and wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from doubles.loop import on_a_loop
from doubles.messages import START_NS, Ticking, batch_of, values_of
from doubles.no_listeners import NoListeners

from goqueue.broker.partitions.dedup_ids import DedupIds, Room
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.read import wait_for_any
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.partitions.truncation import truncate_partition
from goqueue.broker.runtime.checkpoints import Checkpoints
from goqueue.broker.runtime.file_freeze import FileFreeze
from goqueue.coordination.catalog import TopicRecord
from goqueue.model.errors import InvalidRequest, OffsetOutOfRange, Overloaded, StorageFailed
from goqueue.model.ids import TopicId
from goqueue.model.topic_settings import FsyncPolicy, TopicSettings
from goqueue.storage.files.checkpoint import CheckpointFile
from goqueue.storage.files.files import File, OsFiles
from goqueue.storage.log.group_commit import GroupCommit
from goqueue.storage.log.log import LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log


class Full(OsFiles):
    """A disk without room for the manifest of a cut."""

    is_full = False

    def open(self, path: Path, *, create: bool = False) -> File:  # type: ignore[override]
        if self.is_full and create:
            raise OSError(28, "No space left on device")
        return super().open(path, create=create)


class Held(GroupCommit):
    """Rounds of fsync can be held up."""

    def __init__(self, files: OsFiles, root: Path) -> None:
        super().__init__(files, root)
        self.go_on = Event()
        self.go_on.set()

    def _carry_out(self, planned: Any) -> Any:
        self.go_on.wait()
        return super()._carry_out(planned)


class Stage:
    def __init__(self, folder: Path, policy: FsyncPolicy) -> None:
        self.files = Full()
        self.commits = Held(self.files, folder)
        self.stillness = FileFreeze()
        self.checkpoints = Checkpoints(
            self.files, folder, CheckpointFile(self.files, folder / "checkpoint"), self.commits, self.stillness
        )
        self.place = folder / "logs" / "t" / "0"
        log = open_log(OpenFiles(self.files, 40), self.place, LogOptions(200), Ticking())
        self.partition = Partition(log, self.commits, policy, "t/0", NoListeners(), NoListeners())
        record = TopicRecord(TopicId("0" * 32), "t", 1, START_NS)
        self.topic = Topic(record, TopicSettings(), [self.partition], DedupIds(Room(10)))

    def write(self, *values: bytes) -> None:
        for value in values:
            self.partition.append(batch_of([value]))

    async def cut(self, offset: int) -> int:
        return await truncate_partition(self.topic, 0, offset, self.checkpoints, self.stillness)


@asynccontextmanager
async def staged(folder: Path, policy: FsyncPolicy = "always") -> AsyncIterator[Stage]:
    stage = Stage(folder, policy)
    try:
        yield stage
    finally:
        await stage.commits.close()


@on_a_loop
async def test_a_partition_that_was_cut_goes_on_from_there(tmp_path: Path) -> None:
    async with staged(tmp_path) as it:
        it.write(b"1", b"2", b"3", b"4", b"5", b"6")
        assert await it.cut(2) == 2
        it.write(b"new")
        await it.partition.acknowledge(3)
        assert it.partition.high_watermark == 3
        assert values_of(it.partition.log) == [b"1", b"2", b"new"]
        again = open_log(OpenFiles(it.files, 40), it.place, LogOptions(200), Ticking())
        assert values_of(again) == [b"1", b"2", b"new"]


@on_a_loop
async def test_what_counts_is_never_cut_off(tmp_path: Path) -> None:
    async with staged(tmp_path) as it:
        it.write(b"1", b"2")
        await it.partition.acknowledge(2)
        it.write(b"3")
        with pytest.raises(InvalidRequest, match="everything below 2 counts"):
            await it.cut(1)
        assert await it.cut(2) == 2
        assert values_of(it.partition.log) == [b"1", b"2"]


@on_a_loop
async def test_where_messages_count_at_once_nothing_is_cut_off(tmp_path: Path) -> None:
    async with staged(tmp_path, "interval") as it:
        it.write(b"1", b"2")
        with pytest.raises(InvalidRequest, match="counts"):
            await it.cut(1)
        assert await it.cut(2) == 2


@on_a_loop
async def test_appends_are_refused_while_a_partition_is_cut_and_reading_goes_on(tmp_path: Path) -> None:
    async with staged(tmp_path) as it:
        it.write(*[b"%d" % number for number in range(9)])
        cutting = asyncio.create_task(it.cut(5))
        refused = 0
        while not cutting.done():
            await asyncio.sleep(0)
            if it.partition.log.is_being_cut:
                refused += 1
                with pytest.raises(Overloaded, match="being cut back"):
                    it.write(b"no")
                assert values_of(it.partition.log)[:5] == [b"0", b"1", b"2", b"3", b"4"]
        assert refused
        assert await cutting == 5
        it.write(b"yes")
        assert values_of(it.partition.log)[5:] == [b"yes"]


@on_a_loop
async def test_whoever_waits_behind_a_cut_is_told(tmp_path: Path) -> None:
    async with staged(tmp_path) as it:
        it.write(b"1", b"2", b"3", b"4")
        waiting = asyncio.create_task(wait_for_any([(it.partition, 4)], 600_000))
        await asyncio.sleep(0)
        it.commits.go_on.clear()
        acknowledged = it.partition.acknowledge(4)
        try:
            assert await it.cut(1) == 1
        finally:
            it.commits.go_on.set()
        with pytest.raises(StorageFailed, match="cut back"):
            await acknowledged
        assert await waiting
        with pytest.raises(OffsetOutOfRange):
            await it.partition.read(4, 100, 1)


@on_a_loop
async def test_a_partition_whose_cut_failed_takes_no_writes(tmp_path: Path) -> None:
    async with staged(tmp_path) as it:
        it.write(b"1", b"2")
        it.files.is_full = True
        with pytest.raises(StorageFailed, match="cutting failed"):
            await it.cut(1)
        it.files.is_full = False
        with pytest.raises(StorageFailed):
            it.write(b"3")
        assert not it.partition.log.is_being_cut
