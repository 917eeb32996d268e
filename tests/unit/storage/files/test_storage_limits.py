"""Full disks, few file descriptors, folders in use, formats from the future."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from doubles.messages import OpenLog, Ticking, batch_of, read_run, values_of
from doubles.power_loss import PowerLossDisk

from goqueue.model.errors import CorruptData, DataFolderLocked, DataFolderTooNew, DiskFull, StorageFailed
from goqueue.storage.files.atomic import read_checked, write_atomically
from goqueue.storage.files.data_folder import FORMAT_VERSION, DataFolder
from goqueue.storage.files.files import OsFiles
from goqueue.storage.log.log import LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recoverable import Recoverable
from goqueue.storage.log.recovery import open_log
from goqueue.storage.log.truncation import truncate_to
from goqueue.wire.decoding import decode_run

HOME = Path("/data/log")


@pytest.fixture
def disk() -> PowerLossDisk:
    return PowerLossDisk()


def contents(disk: PowerLossDisk) -> dict[str, bytes]:
    return {name: disk.content(HOME / name) for name in disk.list_dir(HOME)}


@pytest.mark.parametrize("room", range(0, 95, 7))
def test_a_disk_that_fills_up_during_an_append_leaves_everything_as_before(
    reopen: OpenLog, folder: Path, disk: PowerLossDisk, room: int
) -> None:
    log = open_log(OpenFiles(disk, 30), HOME, LogOptions(), Ticking())
    log.append(batch_of([b"first"]))
    before, end = contents(disk), log.end_offset
    disk.quota = disk.used_bytes() + room
    with pytest.raises(DiskFull):
        log.append(batch_of([b"second", b"x" * 60]))
    assert contents(disk) == before
    assert log.end_offset == end
    disk.quota = None
    assert log.append(batch_of([b"third"])) == 1
    assert values_of(log) == [b"first", b"third"]


def test_a_disk_that_fills_up_when_a_segment_begins_leaves_no_trace(disk: PowerLossDisk) -> None:
    log = open_log(OpenFiles(disk, 30), HOME, LogOptions(100), Ticking())
    log.append(batch_of([b"x" * 30]))
    original = disk.open

    def full(path: Path, *, create: bool = False) -> object:
        if create and path.suffix == ".index" and not disk.exists(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(path, create=create)

    disk.open = full  # type: ignore[method-assign, assignment]
    with pytest.raises(DiskFull):
        log.append(batch_of([b"y" * 60]))
    disk.open = original  # type: ignore[method-assign]
    assert log.append(batch_of([b""])) == 1
    again = open_log(OpenFiles(disk, 30), HOME, LogOptions(100), Ticking())
    assert again.end_offset == 2


def test_a_read_error_is_not_taken_for_an_empty_segment(disk: PowerLossDisk) -> None:
    log = open_log(OpenFiles(disk, 30), HOME, LogOptions(100), Ticking())
    for number in range(4):
        log.append(batch_of([b"%d" % number * 40]))
    again = open_log(OpenFiles(disk, 30), HOME, LogOptions(100), Ticking(), log.recovery_point())
    disk.read_fault = lambda: True
    with pytest.raises(OSError, match="Input/output"):
        read_run(again, 0, 1_000)
    disk.read_fault = lambda: False
    assert len(values_of(again)) == 4


def test_an_error_while_cutting_stops_writes(disk: PowerLossDisk) -> None:
    log = open_log(OpenFiles(disk, 30), HOME, LogOptions(100), Ticking())
    log.append(batch_of([b"a", b"b"]))
    disk.sync_fault = lambda site, count: True
    with pytest.raises(StorageFailed):
        truncate_to(log, 1, lambda: None)
    disk.sync_fault = lambda site, count: False
    with pytest.raises(StorageFailed):
        log.append(batch_of([b"c"]))


def test_five_hundred_logs_share_thirty_files(tmp_path: Path) -> None:
    open_files = OpenFiles(OsFiles(), 30)
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    logs = [open_log(open_files, tmp_path / str(number), LogOptions(), Ticking()) for number in range(500)]
    for turn in range(2):
        for number, log in enumerate(logs):
            log.append(batch_of([b"%d/%d" % (number, turn)]))
            assert len(list(descriptors.iterdir())) <= before + 33
    assert all(values_of(log) == [b"%d/0" % number, b"%d/1" % number] for number, log in enumerate(logs))
    assert len(open_files) <= 30


def test_a_slice_that_is_loaded_in_a_thread_survives_the_eviction_of_its_files(tmp_path: Path) -> None:
    open_files = OpenFiles(OsFiles(), 3)
    logs = [open_log(open_files, tmp_path / str(number), LogOptions(), Ticking()) for number in range(8)]
    for number, log in enumerate(logs):
        log.append(batch_of([b"%d" % number * 50] * 20))
    with ThreadPoolExecutor(4) as threads:
        for _ in range(30):
            slices = [log.locate(0, 1 << 20) for log in logs]
            loads = [threads.submit(each.load) for each in slices if each]
            for log in logs:
                log.offset_at(0)
            for number, load in enumerate(loads):
                messages, damaged = decode_run(load.result())
                assert not damaged
                assert {message.value for message in messages} == {b"%d" % number * 50}


def test_a_slice_survives_the_removal_of_its_segment(reopen: OpenLog) -> None:
    log = reopen(segment_bytes=200)
    for number in range(8):
        log.append(batch_of([b"%d" % number * 40]))
    taken = log.locate(0, 1 << 20)
    assert taken is not None
    log.start_offset = log.active.base
    Recoverable(log).point_saved(log.recovery_point())
    messages, damaged = decode_run(taken.load())
    assert messages[0].value == b"0" * 40
    assert not damaged


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    held = DataFolder(OsFiles(), tmp_path)
    with pytest.raises(DataFolderLocked, match="in use"):
        DataFolder(OsFiles(), tmp_path)
    held.close()
    DataFolder(OsFiles(), tmp_path).close()


def test_a_folder_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    DataFolder(OsFiles(), tmp_path).close()
    write_atomically(OsFiles(), tmp_path / "FORMAT", str(FORMAT_VERSION + 1).encode())
    with pytest.raises(DataFolderTooNew, match=f"format {FORMAT_VERSION + 1}"):
        DataFolder(OsFiles(), tmp_path)


def test_rule_4_a_folder_of_an_older_format_is_taken_and_marked_as_newer(tmp_path: Path) -> None:
    DataFolder(OsFiles(), tmp_path).close()
    write_atomically(OsFiles(), tmp_path / "FORMAT", b"1")
    DataFolder(OsFiles(), tmp_path).close()
    assert read_checked(OsFiles(), tmp_path / "FORMAT") == str(FORMAT_VERSION).encode()


def test_a_folder_with_logs_and_no_format_is_refused(tmp_path: Path) -> None:
    DataFolder(OsFiles(), tmp_path).close()
    (tmp_path / "FORMAT").unlink()
    with pytest.raises(CorruptData, match="missing"):
        DataFolder(OsFiles(), tmp_path)


def test_a_refused_folder_can_be_opened_once_the_cause_is_gone(tmp_path: Path) -> None:
    DataFolder(OsFiles(), tmp_path).close()
    right = (tmp_path / "FORMAT").read_bytes()
    (tmp_path / "FORMAT").write_bytes(b"")
    with pytest.raises(CorruptData):
        DataFolder(OsFiles(), tmp_path)
    (tmp_path / "FORMAT").write_bytes(right)
    DataFolder(OsFiles(), tmp_path).close()
