"""Tracing when something is in its way: nothing else stops for it, what is lost is counted, and health says so."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from behaviour.faulty_files import FaultyFiles
from behaviour.host import config_for
from doubles.async_tests import until
from doubles.group_bench import GroupBench
from doubles.loop import on_a_loop

from goqueue.broker.broker import Broker
from goqueue.broker.metrics.health import Check
from goqueue.broker.topics.topic_opening import TopicOpener
from goqueue.broker.tracing import trace_export as module
from goqueue.model.publishing import NewMessage
from goqueue.observe.spans import Span
from goqueue.observe.trace_files import TraceFiles

ONE = [NewMessage(b"v", partition=0)]
MIB = 1 << 20


class Silent:
    is_closed = False

    def export(self, spans: list[Span]) -> None:
        raise AssertionError

    def close(self) -> None:
        assert not self.is_closed
        self.is_closed = True


def of_traces(path: Path) -> bool:
    return "traces" in path.parts


def check(broker: Broker) -> Check:
    return broker.health.checks()["traces"]


def lines(path: Path) -> int:
    return sum(len(each.read_bytes().splitlines()) for each in (path / "traces").iterdir())


@on_a_loop
@pytest.mark.parametrize("named", ["File", " FILE ", "file,"])
async def test_files_are_written_however_their_name_is_written(tmp_path: Path, named: str) -> None:
    async with Broker(config_for(tmp_path, trace={"exporters": named})) as broker:
        await broker.create_topic("t", {"partitions": 1})
        await broker.publish("t", ONE)
    assert lines(tmp_path) == 1


@on_a_loop
async def test_a_folder_that_cannot_be_used_is_no_reason_not_to_start(tmp_path: Path) -> None:
    (tmp_path / "traces").write_text("not a folder")
    async with Broker(config_for(tmp_path)) as broker:
        await broker.create_topic("t", {"partitions": 1})
        await broker.publish("t", ONE)
        assert (await broker.traces.at("t", 0, 0)).steps
        found = check(broker)
        assert (found.status, broker.problems()) == ("warn", {})
        assert f"{tmp_path / 'traces'} cannot be used (File exists)" in found.message
        assert broker.tracing.dropped() == {"file": 1}
        assert b'goqueue_trace_dropped_total{sink="file"} 1' in await broker.metrics.scrape(openmetrics=True)


@on_a_loop
async def test_what_cannot_be_written_is_counted_and_told_until_it_can(tmp_path: Path) -> None:
    disk = FaultyFiles()
    async with Broker(config_for(tmp_path), files=disk) as broker:
        await broker.create_topic("t", {"partitions": 1})
        assert check(broker) == Check()
        disk.cannot_write = of_traces
        await broker.publish("t", ONE)
        await until(lambda: broker.tracing.dropped() == {"file": 1})
        assert check(broker).status == "warn"
        assert "No space left on device" in check(broker).message
        disk.cannot_write = lambda path: False
        await broker.publish("t", ONE)
        await until(lambda: check(broker) == Check())
    assert (lines(tmp_path), broker.tracing.dropped()) == (1, {"file": 1})


@on_a_loop
async def test_the_last_room_on_a_disk_is_not_for_traces(tmp_path: Path) -> None:
    disk = FaultyFiles()
    disk.free = 100 * MIB
    async with GroupBench(config_for(tmp_path, storage={"min_free_bytes": MIB}), files=disk) as it:
        tracing = it.broker.tracing
        await it.topic()
        member = await it.join()
        await it.broker.publish("t", ONE)
        await until(lambda: tracing.files is not None and tracing.files.size_bytes > 0)
        disk.free = MIB // 2
        it.pass_time(100)
        assert len(await it.poll(member)) == 1
        await until(lambda: tracing.dropped() == {"file": 1})
        assert lines(tmp_path) == 1
        # The check of the disk tells of it.
        assert check(it.broker) == Check()
        disk.free = 100 * MIB
        it.pass_time(100)
        await it.broker.publish("t", ONE)
    assert (lines(tmp_path), tracing.dropped()) == (2, {"file": 1})


@on_a_loop
async def test_no_error_is_the_end_of_tracing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = asyncio.Event()
    write = TraceFiles.write

    def fail(*args: Any) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(module, "_CLEAN_EVERY_NS", 0)
    monkeypatch.setattr(TraceFiles, "write", lambda *args: fail() if failing.is_set() else write(*args))
    async with Broker(config_for(tmp_path)) as broker:
        await broker.create_topic("t", {"partitions": 1})
        failing.set()
        await broker.publish("t", ONE)
        await until(lambda: broker.tracing.dropped() == {"file": 1})
        failing.clear()
        monkeypatch.setattr(TraceFiles, "clean", fail)
        await broker.publish("t", ONE)
        await until(lambda: not broker.tracing.tracer.pending)
        monkeypatch.undo()
        await broker.publish("t", ONE)
    assert lines(tmp_path) == 2


@on_a_loop
async def test_spans_that_could_not_be_made_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "span_exporters", lambda *_: [("silent", Silent())])
    async with Broker(config_for(tmp_path)) as broker:
        await broker.create_topic("t", {"partitions": 1})
        assert broker.tracing._spans is not None
        monkeypatch.setattr(broker.tracing._spans, "spans_of", None)
        await broker.publish("t", ONE * 3)
        await until(lambda: broker.tracing.dropped() == {"file": 0, "silent": 3})


@on_a_loop
async def test_a_start_that_fails_leaves_no_exporter_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = Silent()
    monkeypatch.setattr(module, "span_exporters", lambda *_: [("silent", exporter)])

    async def fail(self: Broker, opener: TopicOpener, journals: object) -> None:
        raise RuntimeError("a defect")

    with monkeypatch.context() as broken:
        broken.setattr(Broker, "_open_groups", fail)
        with pytest.raises(RuntimeError, match="a defect"):
            await Broker(config_for(tmp_path)).start()
    assert exporter.is_closed
    # Nor does it keep the folder.
    exporter.is_closed = False
    async with Broker(config_for(tmp_path)):
        assert not exporter.is_closed
    assert exporter.is_closed
