"""Taking backups of a broker in this process: what is held off, what is not, and what a copy of it knows."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from doubles.async_tests import until
from doubles.power_loss import PowerLossDisk

from goqueue.broker.broker import Broker
from goqueue.broker.partitions.read import Bounds
from goqueue.broker.runtime.file_freeze import FileFreeze
from goqueue.broker.upkeep import backups
from goqueue.model.config import Config, StorageConfig
from goqueue.model.errors import BackupUnderway, RequestTimeout, ShuttingDown, StorageFailed
from goqueue.model.publishing import NewMessage
from goqueue.storage.backup.backup_format import Head, Manifest
from goqueue.storage.backup.backup_reader import read_backup
from goqueue.storage.files.files import OsFiles

ROOT = Path("/data")
LINKS = "backup-links"


class Pieces:
    """A backup that was taken into memory."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)

    def read(self, size: int, /) -> bytes:
        data, self._data = bytes(self._data[:size]), self._data[size:]
        return data


class ToDisk:
    """Restores to a disk in memory."""

    def __init__(self, disk: PowerLossDisk) -> None:
        self._disk = disk

    def begin(self, head: Head) -> None:
        self.head = head

    def begin_file(self, path: str, size: int) -> None:
        self._disk.make_dirs((ROOT / path).parent)
        self._file, self._at = self._disk.open(ROOT / path, create=True), 0

    def write(self, data: bytes) -> None:
        self._file.write(self._at, data)
        self._at += len(data)

    def end_file(self) -> None:
        pass


async def taken(running: Broker) -> bytes:
    backup = await running.backups.begin()
    pieces = []
    while piece := await backup.next():
        pieces.append(piece)
    return b"".join(pieces)


def restored(data: bytes) -> tuple[PowerLossDisk, Manifest]:
    disk = PowerLossDisk()
    return disk, read_backup(Pieces(data), ToDisk(disk))


async def values(running: Broker, topic: str) -> list[bytes | None]:
    start = running.topic(topic).partitions[0].log.start_offset
    return [each.value for each in (await running.read(topic, 0, Bounds(1 << 24), offset=start)).messages]


async def publish(running: Broker, topic: str, *given: bytes) -> None:
    await running.publish(topic, [NewMessage(value) for value in given])


async def until_links_are_gone(root: Path) -> None:
    await until(lambda: not (root / LINKS).exists())


def identities(root: Path) -> dict[Path, int]:
    """Which file lies under each name."""
    return {path: path.stat().st_ino for path in root.rglob("*") if path.is_file()}


async def test_a_copy_begins_where_the_original_does_and_scans_nothing(caplog: pytest.LogCaptureFixture) -> None:
    disk = PowerLossDisk()
    async with Broker(Config(storage=StorageConfig(path=str(ROOT))), files=disk) as running:
        await running.create_topic("orders", {"partitions": 1, "segment_bytes": "64KiB"})
        for number in range(8):
            await publish(running, "orders", b"%d" % number * 20_000)
        await running.purge_topic("orders", 0, None)
        await publish(running, "orders", b"first", b"second")
        # In memory it begins later than any file knows.
        running.topic("orders").partitions[0].log.start_offset += 1
        data = await taken(running)
        await publish(running, "orders", b"too late")
        running.topic("orders").partitions[0].log.start_offset -= 1
    copy, manifest = restored(data)
    assert sum(each.records for each in manifest.partitions if each.topic == "orders") >= 2
    with caplog.at_level("WARNING"):
        async with Broker(Config(storage=StorageConfig(path=str(ROOT))), files=copy) as again:
            assert await values(again, "orders") == [b"second"]
            assert again.damage() == []
            await publish(again, "orders", b"third")
            assert await values(again, "orders") == [b"second", b"third"]
    assert caplog.records == []


async def test_what_only_the_files_of_delays_and_producers_know_is_in_it() -> None:
    disk = PowerLossDisk()
    async with Broker(Config(storage=StorageConfig(path=str(ROOT))), files=disk) as running:
        await running.create_topic("orders", {"partitions": 1})
        await running.publish("orders", [NewMessage(b"later", delay_ms=3_600_000), NewMessage(b"now")])
        await running.publish("orders", [NewMessage(b"once", dedup_id="1")])
        await running.delays.save(everything=True)
        await running.producer_files.save(running.running_topics(), everything=True)
        data = await taken(running)
    copy, manifest = restored(data)
    names = {Path(each.path).name for each in manifest.files}
    assert {"delays", "producers", "checkpoint", "FORMAT"} <= names
    async with Broker(Config(storage=StorageConfig(path=str(ROOT))), files=copy) as again:
        assert again.delays.pending == 1
        # What was sent with an id before the backup is not stored again.
        await again.publish("orders", [NewMessage(b"once", dedup_id="1")])
        assert await values(again, "orders") == [b"now", b"once"]


class SlowLinks(OsFiles):
    """Making the first link takes until it is let go on."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = threading.Event()
        self.may_go_on = threading.Event()
        self.refusal: OSError | None = None

    def link(self, source: Path, target: Path) -> None:
        self.has_begun.set()
        assert self.may_go_on.wait(60)
        if self.refusal is not None:
            raise self.refusal
        super().link(source, target)


@asynccontextmanager
async def slow(root: Path) -> AsyncIterator[tuple[Broker, SlowLinks]]:
    files = SlowLinks()
    config = Config(storage=StorageConfig(path=str(root), min_free_bytes=0, checkpoint_interval_ms=3_600_000))
    async with Broker(config, files=files) as running:
        try:
            yield running, files
        finally:
            files.may_go_on.set()


async def test_no_file_goes_or_changes_while_links_are_made_and_messages_are_taken(tmp_path: Path) -> None:
    async with slow(tmp_path) as (running, files):
        await running.create_topic("orders", {"partitions": 1, "segment_bytes": "64KiB"})
        await running.create_topic("gone", {"partitions": 1})
        await publish(running, "gone", b"x")
        for _ in range(4):
            await publish(running, "orders", b"y" * 60_000)
        running._catalog._snapshot_every = 1
        before = identities(tmp_path)
        beginning = asyncio.create_task(taken(running))
        await asyncio.to_thread(files.has_begun.wait, 60)
        changes = [
            asyncio.create_task(running.snapshot_if_due()),
            asyncio.create_task(running.purge_topic("orders")),
            asyncio.create_task(running.delete_topic("gone")),
            asyncio.create_task(running.create_topic("new", {"partitions": 1})),
        ]
        for _ in range(50):
            await publish(running, "orders", b"z")
        assert not any(task.done() for task in changes)
        assert before.items() <= identities(tmp_path).items()
        files.may_go_on.set()
        data = await beginning
        await asyncio.gather(*changes)
        await until_links_are_gone(tmp_path)
        assert list((tmp_path / "snapshots").iterdir())
    copy, _ = restored(data)
    async with Broker(Config(storage=StorageConfig(path=str(ROOT))), files=copy) as again:
        assert again.topic_names() == ["gone", "orders"]
        assert await values(again, "gone") == [b"x"]
        assert len(await values(again, "orders")) == 4


async def test_there_is_one_at_a_time_and_none_when_the_broker_stops(tmp_path: Path) -> None:
    async with slow(tmp_path) as (running, files):
        files.may_go_on.set()
        backup = await running.backups.begin()
        with pytest.raises(BackupUnderway):
            await running.backups.begin()
        await backup.next()
        running.stop_accepting()
        with pytest.raises(ShuttingDown):
            await backup.next()
        with pytest.raises(ShuttingDown):
            await running.backups.begin()
        await until_links_are_gone(tmp_path)


async def test_one_who_takes_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backups, "STALL_S", 0.02)
    async with slow(tmp_path) as (running, files):
        files.may_go_on.set()
        backup = await running.backups.begin()
        await until_links_are_gone(tmp_path)
        with pytest.raises(RequestTimeout, match="given up"):
            await backup.next()
        monkeypatch.setattr(backups, "STALL_S", 60.0)
        assert await taken(running)


async def test_one_who_goes_while_links_are_made_leaves_none(tmp_path: Path) -> None:
    async with slow(tmp_path) as (running, files):
        asking = asyncio.create_task(running.backups.begin())
        await asyncio.to_thread(files.has_begun.wait, 60)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        files.may_go_on.set()
        await until_links_are_gone(tmp_path)
        assert await taken(running)


@pytest.mark.parametrize(
    ("code", "told"), [(errno.EPERM, "no second name.*--data"), (errno.ENOSPC, "cannot be begun: No space")]
)
async def test_where_links_cannot_be_made_it_says_so_and_nothing_is_left(tmp_path: Path, code: int, told: str) -> None:
    async with slow(tmp_path) as (running, files):
        files.may_go_on.set()
        files.refusal = OSError(code, "No space left on device" if code == errno.ENOSPC else "Operation not permitted")
        with pytest.raises(StorageFailed, match=told):
            await running.backups.begin()
        await until_links_are_gone(tmp_path)
        files.refusal = None
        assert await taken(running)


async def test_a_hold_waits_for_changes_and_changes_wait_for_a_hold() -> None:
    stillness, done = FileFreeze(), []

    async def change(name: str, go_on: asyncio.Event) -> None:
        async with stillness.changing():
            await go_on.wait()
        done.append(name)

    async def hold(go_on: asyncio.Event) -> None:
        async with stillness.held():
            done.append("held")
            await go_on.wait()

    first, second, third = asyncio.Event(), asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(change("first", first))
        tasks.create_task(change("second", second))
        await asyncio.sleep(0)
        tasks.create_task(hold(third))
        await asyncio.sleep(0)
        late = tasks.create_task(change("late", first))
        first.set()
        await until(lambda: "first" in done)
        assert done == ["first"]
        second.set()
        await until(lambda: "held" in done)
        assert done == ["first", "second", "held"]
        assert not late.done()
        third.set()
    assert done == ["first", "second", "held", "late"]
