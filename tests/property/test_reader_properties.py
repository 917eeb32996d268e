"""Whoever reads a data folder's files sees what the broker shows, whatever has happened to them."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from behaviour.clock import ManualClock
from doubles.delay_ledger import at_rest
from doubles.group_scripts import CONFIG
from doubles.unsynced_files import UnsyncedFiles
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant
from test_transaction_log_properties import TransactionLog

from goqueue.broker.broker import Broker
from goqueue.broker.partitions.read import Bounds
from goqueue.broker.transactions.open_transactions import OpenTransaction
from goqueue.model.publishing import NewMessage
from goqueue.storage.files.checkpoint import CheckpointFile, RecoveryPoint
from goqueue.storage.reader.reader import FolderReader, LogReader, read_runs
from goqueue.wire.decoding import decode_run

Seen = dict[int, tuple[bytes, bytes]]


class FilesOfALog(TransactionLog):
    """The log of the other test, with its files read from outside after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = self.root / "logs" / "t~1" / "0"
        self.files = UnsyncedFiles()
        self.saved_point: RecoveryPoint | None = None
        self.reader: LogReader | None = None

    def save_point(self) -> None:
        if self.point != self.saved_point:
            points = {} if self.point is None else {str(self.folder.relative_to(self.root)): self.point}
            CheckpointFile(self.files, self.root / "checkpoint").save(points)
            self.saved_point = self.point

    def shown(self, reader: LogReader) -> Seen:
        low, high = reader.start_offset, reader.stable_end
        runs = read_runs(self.folder, low, high, aborted=reader.aborted(low, high), max_bytes=1_000)
        messages = [message for run in runs for message in decode_run(run)[0]]
        assert [each.offset for each in messages] == sorted({each.offset for each in messages})
        return {each.offset: (each.key or b"", each.value) for each in messages}

    @invariant()
    def readers_of_the_files_see_the_same(self) -> None:
        if not hasattr(self, "log"):
            return
        self.save_point()
        if self.reader is None:
            self.reader = LogReader(self.folder)
        self.reader.refresh()
        self.check(self.reader)
        if self.serial % 7 == 0:
            self.check(LogReader(self.folder))

    def check(self, reader: LogReader) -> None:
        assert (reader.end_offset, reader.stable_end) == (self.log.end_offset, self.stable_end)
        if self.point is not None:
            assert reader.start_offset == self.log.start_offset
        expected, shown = self.seen(), self.shown(reader)
        if any(self.folder.glob("*.swap")):
            # Read as if it had been carried out: what is gone was superseded by what is there.
            assert shown.items() <= expected.items()
            superseded = {key for _, (key, _) in shown.items()} | {b""}
            gone = {key for offset, (key, value) in expected.items() if offset not in shown and value}
            assert gone <= superseded | {key for key, value in expected.values() if not value}
        else:
            assert shown == {offset: each for offset, each in expected.items() if offset >= reader.start_offset}


FilesOfALog.TestCase.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
TestFilesOfALog = FilesOfALog.TestCase


class Life:
    """A broker with one topic, and those who use it."""

    def __init__(self, root: Path, topic: dict[str, object]) -> None:
        self.config = replace(CONFIG, storage=replace(CONFIG.storage, path=str(root)))
        self.topic = topic
        self.root = root
        self.clock = ManualClock()
        self.broker = Broker(self.config, files=UnsyncedFiles(), clock=self.clock)
        self.open: dict[int, OpenTransaction] = {}
        self.serial = 0

    async def do(self, action: str, number: int) -> None:
        await getattr(self, action)(number)

    def messages(self, number: int) -> list[NewMessage]:
        made = []
        for _ in range(1 + number * 5):
            self.serial += 1
            delay_ms = 1_000 if self.serial % 11 == 0 else None
            made.append(NewMessage(b"%d" % self.serial * 9, key=b"%d" % (self.serial % 5), delay_ms=delay_ms))
        return made

    async def publish(self, number: int) -> None:
        await self.broker.publish("t", self.messages(number))

    async def publish_in_a_transaction(self, number: int) -> None:
        if number not in self.open:
            producer = await self.broker.transactions.init(None, None)
            self.open[number] = self.broker.transactions.begin(producer.producer_id, producer.epoch)
        await self.broker.publish("t", self.messages(number), self.open[number])

    async def commit(self, number: int) -> None:
        if number in self.open:
            await self.broker.transactions.commit(self.open.pop(number).transaction_id)

    async def abort(self, number: int) -> None:
        if number in self.open:
            await self.broker.transactions.abort(self.open.pop(number).transaction_id)

    async def prepare(self, number: int) -> None:
        if number in self.open:
            await self.broker.transactions.prepare(self.open.pop(number).transaction_id)

    async def wait(self, number: int) -> None:
        self.clock.advance_ms(700 * number)
        self.broker.clockwork.ring()
        await asyncio.sleep(0)

    async def keep_up(self, number: int) -> None:
        upkeep = self.broker._upkeep
        await upkeep.checkpoint()
        await upkeep.expire()
        await upkeep.compact()

    async def restart(self, number: int) -> None:
        await self.broker.close()
        self.open.clear()
        self.broker = Broker(self.config, files=UnsyncedFiles(), clock=self.clock)
        await self.broker.start()
        self.make_small()

    def make_small(self) -> None:
        """Much happens with few messages, less than settings allow."""
        topic = self.broker.topic("t")
        topic.settings = replace(topic.settings, retention_bytes=3_000)
        log = topic.partition(0).log
        log.options = replace(log.options, segment_bytes=1_024)

    async def run(self, actions: list[tuple[str, int]], copy: Path) -> None:
        await self.broker.start()
        try:
            await self.broker.create_topic("t", self.topic)
            self.make_small()
            for action in actions:
                await self.do(*action)
            assert FolderReader(self.root).is_in_use()
            await at_rest(self.broker)
            # What a transaction has written is durable when it ends; until then only files show it.
            await self.broker._upkeep.sync_by_interval()
            expected = await self.shown()
            assert shown_by_files(self.root) == expected
            # As if it were killed now.
            shutil.copytree(self.root, copy)
            assert shown_by_files(copy) == expected
        finally:
            await self.broker.close()
        assert not FolderReader(self.root).is_in_use()
        # Whatever is still open at the end is aborted by the next start, and open until then.
        assert shown_by_files(self.root)[2] == expected[2]

    async def shown(self) -> list[Any]:
        partition = self.broker.topic("t").partition(0)
        found: list[Any] = [partition.high_watermark, partition.stable_end]
        for uncommitted in (False, True):
            offset, frames = partition.log.start_offset, b""
            while True:
                part = await self.broker.read_frames("t", 0, Bounds(700, uncommitted=uncommitted), offset=offset)
                if part.run is None:
                    break
                frames += part.run.frames
                offset = part.next_offset
            found.append(frames)
        return found


def shown_by_files(root: Path) -> list[Any]:
    folder = FolderReader(root)
    log = folder.log(folder.topic("t"), 0)
    low, stable, end = log.start_offset, log.stable_end, log.end_offset
    committed = read_runs(log.folder, low, stable, aborted=log.aborted(low, stable), max_bytes=999)
    everything = read_runs(log.folder, low, end, aborted=log.aborted(low, end), uncommitted=True)
    return [end, stable, *(b"".join(bytes(run.frames) for run in runs) for runs in (committed, everything))]


_often = ("publish", "publish_in_a_transaction", "keep_up")
_actions = st.sampled_from([*_often, *_often, "commit", "abort", "prepare", "wait", "restart"])


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(_actions, st.integers(0, 2)), max_size=14), st.booleans())
def test_files_show_what_a_broker_shows(actions: list[tuple[str, int]], compacted: bool) -> None:
    topic: dict[str, object] = {"cleanup": "compact" if compacted else "delete"}
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(Life(Path(folder, "data"), topic).run(actions, Path(folder, "copy")))
