from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from doubles.messages import Ticking, batch_of, values_of
from doubles.power_loss import PowerLossDisk

from goqueue.broker.runtime.checkpoints import Checkpoints
from goqueue.storage.files.checkpoint import CheckpointFile, RecoveryPoint
from goqueue.storage.log.group_commit import GroupCommit
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recoverable import Recoverable
from goqueue.storage.log.recovery import open_log

ROOT = Path("/data")
PATH = ROOT / "checkpoint"
OPTIONS = LogOptions(64 << 10)


@dataclass
class Bench:
    disk: PowerLossDisk
    files: OpenFiles
    checkpoints: Checkpoints

    def log(self, name: str) -> Log:
        folder = ROOT / "logs" / name
        return open_log(self.files, folder, OPTIONS, Ticking(), self.checkpoints.point(folder))

    def saved(self) -> dict[str, int]:
        """How many messages each point vouches for, as it is on the disk."""
        points = CheckpointFile(self.disk, PATH).load()
        return {name: point.base + point.count for name, point in points.items()}


def with_checkpoints(work: Callable[[Bench], Awaitable[None]], disk: PowerLossDisk | None = None) -> PowerLossDisk:
    disk = disk or PowerLossDisk()

    async def run() -> None:
        disk.make_dirs(ROOT)
        commits = GroupCommit(disk, ROOT)
        bench = Bench(disk, OpenFiles(disk, 100), Checkpoints(disk, ROOT, CheckpointFile(disk, PATH), commits))
        try:
            await work(bench)
        finally:
            await commits.close()

    asyncio.run(run())
    return disk


def test_saving_makes_everything_durable_and_notes_how_far_it_is() -> None:
    async def work(bench: Bench) -> None:
        log = bench.log("a")
        log.append(batch_of([b"1", b"2"]))
        assert log.durable_offset == 0
        await bench.checkpoints.save([Recoverable(log)])
        assert log.durable_offset == 2
        assert bench.saved() == {"logs/a": 2}

    with_checkpoints(work)


def test_nothing_is_written_when_nothing_has_changed() -> None:
    async def work(bench: Bench) -> None:
        log = bench.log("a")
        log.append(batch_of([b"1"]))
        await bench.checkpoints.save([Recoverable(log)])
        calls = bench.disk.calls
        await bench.checkpoints.save([Recoverable(log)])
        assert bench.disk.calls == calls

    with_checkpoints(work)


def test_a_log_that_is_gone_is_forgotten_with_the_next_save() -> None:
    async def work(bench: Bench) -> None:
        first, second = bench.log("a"), bench.log("b")
        await bench.checkpoints.save([Recoverable(first), Recoverable(second)])
        await bench.checkpoints.save([Recoverable(second)])
        assert bench.saved().keys() == {"logs/b"}

    with_checkpoints(work)


def test_a_point_can_be_replaced_at_once() -> None:
    async def work(bench: Bench) -> None:
        log = bench.log("a")
        before = log.recovery_point()
        log.append(batch_of([b"1"]))
        await bench.checkpoints.save([Recoverable(log)])
        await bench.checkpoints.replace(log.folder, before)
        assert bench.saved() == {"logs/a": 0}
        assert bench.checkpoints.point(log.folder) == before

    with_checkpoints(work)


def test_a_log_that_failed_keeps_no_point_and_does_not_keep_others_from_theirs() -> None:
    async def work(bench: Bench) -> None:
        good, bad = bench.log("good"), bench.log("bad")
        for log in (good, bad):
            log.append(batch_of([b"1"]))
        bad.fail("its disk is broken")
        await bench.checkpoints.save([Recoverable(good), Recoverable(bad)])
        assert bench.saved() == {"logs/good": 1}

    with_checkpoints(work)


def test_files_below_the_start_go_after_the_point_is_written() -> None:
    async def work(bench: Bench) -> None:
        log = bench.log("a")
        for _ in range(3):
            log.append(batch_of([b"x" * 60_000]))
        await bench.checkpoints.save([Recoverable(log)])
        assert len(log.segments) == 3
        log.start_offset = 2
        await bench.checkpoints.save([Recoverable(log)])
        assert [segment.base for segment in log.segments] == [2]

    with_checkpoints(work)


def test_points_that_cannot_be_written_are_tried_again_and_fail_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async def work(bench: Bench) -> None:
        log = bench.log("a")
        log.append(batch_of([b"1"]))
        await bench.checkpoints.save([Recoverable(log)])
        log.append(batch_of([b"2"]))
        bench.disk.sync_fault = lambda site, count: "atomic.py" in site
        await bench.checkpoints.save([Recoverable(log)])
        assert log.failure is None
        assert bench.saved() in ({"logs/a": 1}, {"logs/a": 2})
        bench.disk.sync_fault = lambda site, count: False
        await bench.checkpoints.save([Recoverable(log)])
        assert bench.saved() == {"logs/a": 2}

    with_checkpoints(work)
    assert any("recovery points cannot be written" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("count", [1, 20])
def test_files_that_cannot_be_synced_fail_their_logs(count: int) -> None:
    """A few are synced one by one, many with their file system."""

    async def work(bench: Bench) -> None:
        logs = [bench.log(f"{number}") for number in range(count)]
        for log in logs:
            log.append(batch_of([b"1"]))
        await bench.checkpoints.save([Recoverable(log) for log in logs])
        for log in logs:
            log.append(batch_of([b"2"]))
        bench.disk.sync_fault = lambda site, count: "checkpoints.py" in site
        await bench.checkpoints.save([Recoverable(log) for log in logs])
        assert all(log.failure is not None for log in logs)
        assert bench.saved() == {f"logs/{number}": 1 for number in range(count)}

    with_checkpoints(work)


@pytest.mark.parametrize("ruin", [lambda content: content[:-2], lambda content: b"", lambda content: b"\xff" * 40])
def test_damaged_points_cost_a_scan_and_nothing_else(ruin: Callable[[bytes], bytes]) -> None:
    async def write(bench: Bench) -> None:
        log = bench.log("a")
        log.append(batch_of([b"1", b"2"]))
        await bench.checkpoints.save([Recoverable(log)])

    disk = with_checkpoints(write)
    disk.damage(PATH, ruin)

    async def look(bench: Bench) -> None:
        assert bench.checkpoints.points == {}
        assert values_of(bench.log("a")) == [b"1", b"2"]

    with_checkpoints(look, disk)


def test_segments_are_removed_only_below_a_start_that_was_written_down() -> None:
    async def work(bench: Bench) -> None:
        log = bench.log("a")
        for value in (b"1", b"2", b"3"):
            log.append(batch_of([value]))
            log.roll()
        log.start_offset = 1
        write_down = bench.checkpoints._file.save

        def while_retention_goes_on(points: dict[str, RecoveryPoint]) -> None:
            log.start_offset = 3
            write_down(points)

        bench.checkpoints._file.save = while_retention_goes_on  # type: ignore[method-assign]
        await bench.checkpoints.save([Recoverable(log)])
        assert log.segments[0].base == 1

    with_checkpoints(work)
