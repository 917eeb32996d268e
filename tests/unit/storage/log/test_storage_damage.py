"""One wrong byte or a file cut short, in every kind of file: what is served is right, and the rest is reported."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from doubles.messages import OpenLog, batch_of, read_all, values_of

from goqueue.model.errors import CorruptData
from goqueue.storage.files.checkpoint import CheckpointFile
from goqueue.storage.files.data_folder import DataFolder
from goqueue.storage.files.files import OsFiles
from goqueue.storage.log.log import Log
from goqueue.storage.log.swap import Swap, decide_swap, finish_swaps

MESSAGES = 12
VALUES = [b"value %02d" % number * 4 for number in range(MESSAGES)]
FIRST, LAST = "00000000000000000000", "00000000000000000008"


@pytest.fixture
def whole(reopen: OpenLog, caplog: pytest.LogCaptureFixture) -> Log:
    """Twelve messages; four to a segment."""
    caplog.set_level("INFO")
    log = reopen(segment_bytes=300)
    for value in VALUES:
        log.append(batch_of([value]))
    assert [segment.base for segment in log.segments] == [0, 4, 8]
    return log


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :]


def served(log: Log) -> dict[int, bytes]:
    return {message.offset: message.value for message in read_all(log)}


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.msg.event for record in caplog.records if hasattr(record, "fields")]


def each_byte_of(path: Path) -> list[bytes]:
    content = path.read_bytes()
    return [flipped(content, place) for place in range(len(content))]


def each_length_of(path: Path) -> list[bytes]:
    content = path.read_bytes()
    return [content[:length] for length in range(len(content))]


@pytest.mark.parametrize("base", [FIRST, LAST])
@pytest.mark.parametrize("damages", [each_byte_of, each_length_of])
def test_damage_in_a_log_file_costs_no_message_but_the_damaged(
    whole: Log,
    reopen: OpenLog,
    folder: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    base: str,
    damages: object,
) -> None:
    path = folder / f"{base}.log"
    frame = path.stat().st_size // 4
    original = shutil.copytree(folder, tmp_path / "original")
    for place, content in enumerate(damages(path)):  # type: ignore[operator]
        shutil.rmtree(folder)
        shutil.copytree(original, folder)
        path.write_bytes(content)
        caplog.clear()
        found = served(reopen(segment_bytes=300))
        lost = set(range(MESSAGES)) - set(found)
        first_hit = int(base) + place // frame
        expected = {first_hit} if damages is each_byte_of else set(range(first_hit, int(base) + 4))
        assert lost == expected, place
        assert all(found[offset] == VALUES[offset] for offset in found)
        on_boundary = damages is each_length_of and place % frame == 0
        # What lacks its end is what a write looks like that was torn.
        is_torn = base == LAST and damages is each_length_of
        told = (
            "an unfinished write was cut off the end" if is_torn else "bytes that are no whole message were taken out"
        )
        assert on_boundary or f"{told} of a segment" in events(caplog)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damages", [each_byte_of, each_length_of])
def test_a_damaged_index_file_is_rebuilt_as_it_was(
    whole: Log, reopen: OpenLog, folder: Path, caplog: pytest.LogCaptureFixture, suffix: str, damages: object
) -> None:
    point = whole.recovery_point()
    path = folder / (FIRST + suffix)
    right = path.read_bytes()
    for place, content in enumerate(damages(path)):  # type: ignore[operator]
        path.write_bytes(content)
        caplog.clear()
        log = reopen(point, segment_bytes=300)
        assert values_of(log) == VALUES, place
        assert "index files missing or damaged, rebuilding them from the log" in events(caplog)
        if suffix == ".index":
            assert path.read_bytes() == right
        path.write_bytes(right)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damages", [each_byte_of, each_length_of])
def test_a_damaged_index_of_the_active_segment_is_not_believed(
    whole: Log, reopen: OpenLog, folder: Path, suffix: str, damages: object
) -> None:
    whole.append(batch_of([b"x" * 200]))
    whole.append(batch_of([b"y" * 20]))
    point = whole.recovery_point()
    path = whole.active.index_path if suffix == ".index" else whole.active.times.path
    right = path.read_bytes()
    assert right
    for content in damages(path):  # type: ignore[operator]
        path.write_bytes(content)
        log = reopen(point, segment_bytes=300)
        assert values_of(log) == [*VALUES, b"x" * 200, b"y" * 20]
        assert log.offset_at(0) == 0
        path.write_bytes(right)


def test_missing_index_files_are_made_again(whole: Log, reopen: OpenLog, folder: Path) -> None:
    point = whole.recovery_point()
    for suffix in (".index", ".timeindex"):
        (folder / (FIRST + suffix)).unlink()
    assert values_of(reopen(point, segment_bytes=300)) == VALUES


@pytest.mark.parametrize("damages", [each_byte_of, each_length_of])
def test_a_damaged_checkpoint_costs_a_scan_and_is_reported(
    whole: Log, reopen: OpenLog, tmp_path: Path, caplog: pytest.LogCaptureFixture, damages: object
) -> None:
    path = tmp_path / "checkpoint"
    checkpoint = CheckpointFile(OsFiles(), path)
    checkpoint.save({"log": whole.recovery_point()})
    assert checkpoint.load() == {"log": whole.recovery_point()}
    for content in damages(path):  # type: ignore[operator]
        path.write_bytes(content)
        caplog.clear()
        assert checkpoint.load() == {}
        assert events(caplog) == ["recovery points cannot be read; every segment will be scanned"]
    assert values_of(reopen(None, segment_bytes=300)) == VALUES


@pytest.mark.parametrize("damages", [each_byte_of, each_length_of])
def test_a_damaged_swap_manifest_changes_nothing_and_is_reported(
    whole: Log, reopen: OpenLog, folder: Path, caplog: pytest.LogCaptureFixture, damages: object
) -> None:
    swap = Swap([0, 4], empty=False)
    decide_swap(OsFiles(), folder, swap)
    for content in damages(swap.manifest(folder)):  # type: ignore[operator]
        swap.manifest(folder).write_bytes(content)
        caplog.clear()
        finish_swaps(OsFiles(), folder, OsFiles().list_dir(folder))
        assert events(caplog) == ["swap manifest is damaged and ignored; old segments stay"]
        assert not swap.manifest(folder).exists()
    assert values_of(reopen(None, segment_bytes=300)) == VALUES


@pytest.mark.parametrize("damages", [each_byte_of, each_length_of])
def test_a_damaged_format_file_is_refused(tmp_path: Path, damages: object) -> None:
    DataFolder(OsFiles(), tmp_path).close()
    path = tmp_path / "FORMAT"
    for content in damages(path):  # type: ignore[operator]
        path.write_bytes(content)
        with pytest.raises(CorruptData, match="FORMAT"):
            DataFolder(OsFiles(), tmp_path)


def test_a_changed_side_file_is_nobodys_business(whole: Log, reopen: OpenLog, folder: Path) -> None:
    path = folder / f"{LAST}.log"
    path.write_bytes(flipped(path.read_bytes(), 40))
    expected = values_of(reopen(segment_bytes=300))
    (aside,) = folder.glob("*.damaged-*")
    aside.write_bytes(b"anything")
    assert values_of(reopen(segment_bytes=300)) == expected
