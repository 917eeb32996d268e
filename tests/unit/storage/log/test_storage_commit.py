"""Group commit: who waits, what is synced, and what a failing disk does to whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from doubles.loop import on_a_loop
from doubles.messages import Ticking, batch_of, values_of
from doubles.power_loss import PowerLossDisk

from goqueue.model.errors import StorageFailed
from goqueue.storage.log.group_commit import MOST_SINGLE_SYNCS, GroupCommit
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recoverable import Recoverable
from goqueue.storage.log.recovery import open_log
from goqueue.storage.log.truncation import truncate_to

ROOT = Path("/data")


@pytest.fixture
def disk() -> PowerLossDisk:
    made = PowerLossDisk()
    made.make_dirs(ROOT)
    return made


@pytest.fixture
def open_one(disk: PowerLossDisk) -> Callable[[str], Log]:
    open_files = OpenFiles(disk, 300)
    clock = Ticking()
    return lambda name: open_log(open_files, ROOT / name, LogOptions(400, 100), clock)


@asynccontextmanager
async def scheduling(disk: PowerLossDisk) -> AsyncIterator[GroupCommit]:
    scheduler = GroupCommit(disk, ROOT)
    yield scheduler
    await scheduler.close()


def failing(error_from: str) -> Callable[[str, int], bool]:
    return lambda site, _: site.startswith(error_from)


@on_a_loop
async def test_waiters_of_one_moment_share_a_round(disk: PowerLossDisk, open_one: Callable[[str], Log]) -> None:
    log = open_one("a")
    async with scheduling(disk) as scheduler:
        ends = [log.append(batch_of([b"x"])) + 1 for _ in range(10)]
        await asyncio.gather(*(scheduler.reached(log, end) for end in ends))
        assert scheduler.rounds == 1
        assert log.durable_offset == 10


@on_a_loop
async def test_few_dirty_files_are_synced_one_by_one(disk: PowerLossDisk, open_one: Callable[[str], Log]) -> None:
    logs = [open_one(str(number)) for number in range(MOST_SINGLE_SYNCS // 2)]
    async with scheduling(disk) as scheduler:
        for log in logs:
            log.append(batch_of([b"x"]))
        await scheduler.sync(logs)
    assert disk.filesystem_syncs == 0
    assert all(log.durable_offset == 1 for log in logs)


@on_a_loop
async def test_many_dirty_files_are_synced_with_the_whole_file_system(
    disk: PowerLossDisk, open_one: Callable[[str], Log]
) -> None:
    logs = [open_one(str(number)) for number in range(MOST_SINGLE_SYNCS // 2 + 1)]
    async with scheduling(disk) as scheduler:
        for log in logs:
            log.append(batch_of([b"x"]))
        before = disk.syncs
        await scheduler.sync(logs)
    assert (disk.filesystem_syncs, disk.syncs - before) == (1, 1)
    assert all(log.durable_offset == 1 for log in logs)


@on_a_loop
async def test_a_failed_fsync_is_told_to_waiters_and_never_tried_again(
    disk: PowerLossDisk, open_one: Callable[[str], Log]
) -> None:
    log = open_one("a")
    async with scheduling(disk) as scheduler:
        log.append(batch_of([b"safe"]))
        await scheduler.reached(log, 1)
        disk.sync_fault = failing("storage/log/group_commit.py")
        log.append(batch_of([b"lost"]))
        outcomes = await asyncio.gather(*(scheduler.reached(log, 2) for _ in range(3)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StorageFailed] * 3
        disk.sync_fault = lambda site, count: False
        syncs = disk.syncs
        with pytest.raises(StorageFailed):
            await scheduler.reached(log, 2)
        with pytest.raises(StorageFailed):
            log.append(batch_of([b"more"]))
        await scheduler.sync([log])
        assert disk.syncs == syncs
        assert log.durable_offset == 1


@on_a_loop
async def test_a_round_that_did_not_come_to_its_end_makes_nothing_durable(
    disk: PowerLossDisk, open_one: Callable[[str], Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(planned: object) -> None:
        raise RuntimeError("a defect")

    log = open_one("a")
    async with scheduling(disk) as scheduler:
        monkeypatch.setattr(scheduler, "_carry_out", defect)
        log.append(batch_of([b"x"]))
        waits = scheduler.reached(log, 1)
        running = scheduler._running
        assert running is not None
        with pytest.raises(RuntimeError):
            await running
        with pytest.raises(StorageFailed):
            await waits
        assert log.durable_offset == 0


@on_a_loop
async def test_reading_goes_on_after_a_failed_fsync(disk: PowerLossDisk, open_one: Callable[[str], Log]) -> None:
    log = open_one("a")
    async with scheduling(disk) as scheduler:
        log.append(batch_of([b"safe"]))
        await scheduler.reached(log, 1)
        disk.sync_fault = failing("storage/log/group_commit.py")
        log.append(batch_of([b"lost"]))
        with pytest.raises(StorageFailed):
            await scheduler.reached(log, 2)
    assert values_of(log)[:1] == [b"safe"]


@on_a_loop
async def test_a_failed_fsync_concerns_no_other_log(disk: PowerLossDisk, open_one: Callable[[str], Log]) -> None:
    bad, good = open_one("bad"), open_one("good")
    async with scheduling(disk) as scheduler:
        count = disk.syncs
        disk.sync_fault = lambda site, number: number == count + 1
        bad.append(batch_of([b"x"]))
        good.append(batch_of([b"x"]))
        outcomes = await asyncio.gather(scheduler.reached(bad, 1), scheduler.reached(good, 1), return_exceptions=True)
    assert isinstance(outcomes[0], StorageFailed)
    assert outcomes[1] is None
    assert good.failure is None


@on_a_loop
async def test_a_failed_sync_of_the_file_system_fails_all_logs_of_the_round(
    disk: PowerLossDisk, open_one: Callable[[str], Log]
) -> None:
    logs = [open_one(str(number)) for number in range(MOST_SINGLE_SYNCS)]
    async with scheduling(disk) as scheduler:
        disk.sync_fault = failing("storage/log/group_commit.py")
        for log in logs:
            log.append(batch_of([b"x"]))
        outcomes = await asyncio.gather(*(scheduler.reached(log, 1) for log in logs), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {StorageFailed}


@on_a_loop
async def test_a_segment_that_retention_took_before_its_fsync_harms_nobody(
    disk: PowerLossDisk, open_one: Callable[[str], Log]
) -> None:
    log = open_one("a")
    async with scheduling(disk) as scheduler:
        for _ in range(3):
            log.append(batch_of([b"x" * 300]))
        log.start_offset = log.active.base
        Recoverable(log).point_saved(log.recovery_point())
        await scheduler.reached(log, 3)
    assert log.durable_offset == 3


@on_a_loop
async def test_a_file_that_cannot_be_opened_fails_its_log_and_leaves_nobody_waiting(
    disk: PowerLossDisk, open_one: Callable[[str], Log]
) -> None:
    log, other = open_one("a"), open_one("b")
    async with scheduling(disk) as scheduler:
        for _ in range(2):
            log.append(batch_of([b"x" * 300]))
        other.append(batch_of([b"x"]))
        gone = log.segments[0]
        gone.close()
        disk.remove(gone.log_path)
        outcomes = await asyncio.gather(scheduler.reached(log, 2), scheduler.reached(other, 1), return_exceptions=True)
    assert isinstance(outcomes[0], StorageFailed)
    assert outcomes[1] is None


@on_a_loop
async def test_messages_that_are_cut_away_during_a_round_are_not_acknowledged(
    disk: PowerLossDisk, open_one: Callable[[str], Log]
) -> None:
    log = open_one("a")
    async with scheduling(disk) as scheduler:
        log.append(batch_of([b"x", b"y"]))
        waiting = asyncio.ensure_future(scheduler.reached(log, 2))
        await asyncio.sleep(0)
        truncate_to(log, 1, lambda: None)
        with pytest.raises(StorageFailed):
            await waiting


@on_a_loop
async def test_messages_that_stay_are_acknowledged_by_the_round_during_which_others_are_cut_away(
    disk: PowerLossDisk, open_one: Callable[[str], Log]
) -> None:
    log = open_one("a")
    async with scheduling(disk) as scheduler:
        log.append(batch_of([b"x", b"y"]))
        stays, goes = scheduler.reached(log, 1), scheduler.reached(log, 2)
        await asyncio.sleep(0)
        truncate_to(log, 1, lambda: None)
        with pytest.raises(StorageFailed):
            await goes
        await stays


@on_a_loop
async def test_a_message_that_was_cut_away_is_not_acknowledged_by_another_one_with_its_offset(
    disk: PowerLossDisk, open_one: Callable[[str], Log]
) -> None:
    log = open_one("a")
    async with scheduling(disk) as scheduler:
        log.append(batch_of([b"x", b"y"]))
        gone = scheduler.reached(log, 2)
        truncate_to(log, 1, lambda: None)
        log.append(batch_of([b"anew", b"more"]))
        await scheduler.reached(log, 3)
        with pytest.raises(StorageFailed):
            await gone
