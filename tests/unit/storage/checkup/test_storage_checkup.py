"""A check-up of a log: whatever is wrong with one of its files is found, called by its name, and left as it is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from doubles.messages import START_NS, OpenLog, Ticking, batch_of, values_of

from goqueue.storage.checkup.checkup_log import as_started, check_log, check_start
from goqueue.storage.checkup.findings import Finding, PartitionReport, Repair, Severity
from goqueue.storage.files.atomic import write_atomically
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.files.files import OsFiles
from goqueue.storage.log.index_file import LANE_MAGIC, TIME_ENTRY, read_entries, with_footer
from goqueue.storage.log.lane_index import sealed_entries
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.swap import Swap, decide_swap
from goqueue.storage.log.truncation import Cut
from goqueue.storage.reader.scratch import ScratchFiles

MESSAGES = 14
VALUES = [b"value %02d" % number * 4 for number in range(MESSAGES)]
FIRST, MIDDLE, LAST = (f"{base:020d}" for base in (0, 4, 12))
DAMAGE, REPAIRABLE, NOTE = Severity.DAMAGE, Severity.REPAIRABLE, Severity.NOTE


@pytest.fixture
def whole(reopen: OpenLog) -> Log:
    """Fourteen messages, four to a segment."""
    log = reopen(segment_bytes=300, index_interval_bytes=60)
    for value in VALUES:
        log.append(batch_of([value]))
    assert [segment.base for segment in log.segments] == [0, 4, 8, 12]
    return log


def looked_at(
    folder: Path, point: RecoveryPoint | None = None, *, compacted: bool = False, quick: bool = False
) -> list[Finding]:
    report = PartitionReport("t", 0, folder)
    check_log(report, point, may_have_gaps=compacted, quick=quick, on_segment=lambda size: None)
    with as_started(folder, point, LogOptions(compacted=compacted), Ticking()) as (_, log):
        check_start(report, log, point)
    return report.findings


def content_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {each.name: (each.stat().st_mtime_ns, each.read_bytes()) for each in folder.iterdir()}


def each_damage_to(path: Path, step: int = 1) -> Iterator[tuple[str, bytes]]:
    """One wrong byte at every place, then the file cut at every length; or only at some."""
    right = path.read_bytes()
    for place in range(0, len(right), step):
        yield f"byte {place}", right[:place] + bytes([right[place] ^ 0x10]) + right[place + 1 :]
    for length in range(0, len(right), step):
        yield f"length {length}", right[:length]
    path.write_bytes(right)


@pytest.mark.parametrize("with_point", [True, False])
def test_nothing_is_found_in_a_log_that_is_whole(whole: Log, folder: Path, with_point: bool) -> None:
    assert looked_at(folder, whole.recovery_point() if with_point else None) == []


@pytest.mark.parametrize("base", [FIRST, MIDDLE, LAST])
def test_every_damage_to_a_log_file_is_found_and_nothing_is_changed(whole: Log, folder: Path, base: str) -> None:
    point = whole.recovery_point()
    path = folder / f"{base}.log"
    frame = path.stat().st_size // (2 if base == LAST else 4)
    for how, content in each_damage_to(path, step=3):
        path.write_bytes(content)
        before = content_of(folder)
        found = looked_at(folder, point)
        lost = [each for each in found if each.severity is DAMAGE]
        assert lost, (how, found)
        number = int(how.split()[1])
        first = int(base) + number // frame
        assert any(each.first_offset == first or each.path == folder for each in lost), (how, lost)
        assert content_of(folder) == before
    assert looked_at(folder, point) == []


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".lanes"])
@pytest.mark.parametrize("base", [FIRST, MIDDLE, LAST])
def test_every_damage_to_an_index_file_is_found_and_costs_no_message(
    whole: Log, folder: Path, base: str, suffix: str
) -> None:
    point = whole.recovery_point()
    path = folder / (base + suffix)
    for how, content in each_damage_to(path):
        path.write_bytes(content)
        found = looked_at(folder, point)
        assert [each.path for each in found] == [path], how
        # One that lacks its end may not have been written yet.
        allowed = {REPAIRABLE} if how.startswith("byte") else {REPAIRABLE, NOTE}
        assert found[0].severity in allowed and found[0].repair is Repair.RECOVER, how
    path.unlink()
    assert [(each.severity, each.path) for each in looked_at(folder, point)] == [(NOTE, path)]


def test_what_the_index_of_times_says_behind_the_recovery_point_is_never_believed(
    reopen: OpenLog, folder: Path, tmp_path: Path
) -> None:
    """So nobody needs to be told that it is damaged. The frames could not tell in every case: when something was
    appended stands nowhere else."""
    log = reopen(segment_bytes=1 << 20, index_interval_bytes=60)
    times = [START_NS + number * 1_000 for number in range(MESSAGES)]
    for number, value in enumerate(VALUES):
        if number == MESSAGES // 2:
            point = log.recovery_point()
        log.append(batch_of([value], timestamps=[times[number]]))
    path = folder / f"{FIRST}.timeindex"
    vouched = point.time_entries * TIME_ENTRY.itemsize
    left = shutil.copytree(folder, tmp_path / "left")
    right = path.read_bytes()
    assert 0 < vouched < len(right)
    for place in range(vouched, len(right)):
        shutil.copytree(left, folder, dirs_exist_ok=True)
        path.write_bytes(right[:place] + bytes([right[place] ^ 0x10]) + right[place + 1 :])
        started = reopen(point, segment_bytes=1 << 20)
        assert [started.offset_at(each) for each in times] == list(range(MESSAGES)), place
        entries = read_entries(OsFiles().open(path), TIME_ENTRY, started.active.times.entries)
        assert entries["last_offset"][-1] == MESSAGES - 1
        assert looked_at(folder, started.recovery_point()) == [], place
        started.close()


def test_an_index_that_lies_with_a_right_checksum_is_found(whole: Log, folder: Path) -> None:
    other = folder / f"{MIDDLE}.lanes"
    right = other.read_bytes()
    size = (folder / f"{MIDDLE}.log").stat().st_size
    other.write_bytes(with_footer(LANE_MAGIC, sealed_entries(np.array([0, 1, 1, 2], np.uint8)), size))
    assert other.read_bytes() != right
    (found,) = looked_at(folder, whole.recovery_point())
    assert found.severity is REPAIRABLE and "right checksum" in found.what


def test_a_torn_write_is_only_a_note_and_one_that_was_durable_is_not(whole: Log, folder: Path) -> None:
    point = whole.recovery_point()
    whole.append(batch_of([b"written later"]))
    path = folder / f"{LAST}.log"
    path.write_bytes(path.read_bytes()[:-3])
    (found,) = looked_at(folder, point)
    assert (found.severity, found.path, found.repair) == (NOTE, path, Repair.RECOVER)
    assert "are no whole message" in found.what
    assert "the index knows of 1 messages there" in found.meaning
    (folder / f"{LAST}.index").write_bytes((folder / f"{LAST}.index").read_bytes()[:-4])
    (found,) = looked_at(folder, point)
    assert found.meaning == "a write was interrupted there"
    (found,) = looked_at(folder)
    assert found.severity is NOTE
    path.write_bytes(path.read_bytes()[: point.size - 1])
    assert {each.severity for each in looked_at(folder, point)} == {DAMAGE}


def test_part_of_a_producers_batch_is_a_torn_write(whole: Log, folder: Path) -> None:
    point = whole.recovery_point()
    whole.append(batch_of([b"a", b"b", b"c"], stamped=True))
    path = folder / f"{max(segment.base for segment in whole.segments):020d}.log"
    path.write_bytes(path.read_bytes()[:-35])
    (found,) = looked_at(folder, point)
    assert (found.severity, found.path) == (NOTE, path)


@pytest.mark.parametrize("base", [FIRST, MIDDLE, LAST])
def test_a_segment_that_is_gone_is_missed(whole: Log, folder: Path, base: str) -> None:
    point = whole.recovery_point()
    for suffix in (".log", ".index", ".timeindex", ".lanes"):
        (folder / (base + suffix)).unlink()
    found = looked_at(folder, point)
    assert found and {each.severity for each in found} == {DAMAGE}
    if base == MIDDLE:
        assert [(each.first_offset, each.last_offset) for each in found] == [(4, 7)]
        assert looked_at(folder) == found, "a gap is seen without a recovery point"
        assert looked_at(folder, compacted=True) == [], "compaction makes gaps"


def acknowledge(log: Log) -> None:
    """Somebody accepts what is lost."""
    log.lost.save(ranges := log.lost.acknowledged(1))
    log.lost.saved(ranges)


def test_what_was_set_aside_explains_what_is_missing(whole: Log, folder: Path, reopen: OpenLog) -> None:
    path = folder / f"{MIDDLE}.log"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    log = reopen(segment_bytes=300)
    assert len(values_of(log)) == MESSAGES - 1
    (loss,) = [each for each in looked_at(folder) if each.severity is not NOTE]
    assert (loss.severity, loss.first_offset, loss.last_offset) == (DAMAGE, 5, 5)
    acknowledge(log)
    found = looked_at(folder)
    assert {each.severity for each in found} == {NOTE}
    assert any("offset 5 is missing" in each.what for each in found)
    assert any("set aside" in each.what for each in found)


def test_leftovers_are_notes(whole: Log, folder: Path) -> None:
    (folder / f"{FIRST}.log.tmp").write_bytes(b"half")
    (folder / f"{FIRST}.log.compacted").write_bytes(b"half")
    found = looked_at(folder, whole.recovery_point())
    assert [each.severity for each in found] == [NOTE, NOTE]


def test_a_compaction_that_was_decided_counts_as_carried_out(whole: Log, folder: Path) -> None:
    point = whole.recovery_point()
    for suffix in (".log", ".index", ".timeindex", ".lanes"):
        shutil.copy(folder / (FIRST + suffix), folder / f"{FIRST}{suffix}.compacted")
    decide_swap(OsFiles(), folder, Swap([0, 4], empty=False))
    found = looked_at(folder, point, compacted=True)
    assert {each.severity for each in found} == {NOTE}
    assert any("was decided and not finished" in each.what for each in found)


def test_a_cut_that_was_decided_and_not_finished_is_no_damage(whole: Log, folder: Path) -> None:
    cut = Cut(6, 4, whole.segments[1].position_of(2))
    write_atomically(OsFiles(), cut.manifest(folder), msgspec.json.encode(cut))
    # Of what was carried out a power loss may have kept anything.
    (folder / f"{MIDDLE}.log").write_bytes((folder / f"{MIDDLE}.log").read_bytes()[: cut.size])
    (folder / f"{MIDDLE}.index").unlink()
    found = looked_at(folder, None)
    assert DAMAGE not in {each.severity for each in found}
    assert any("a cut was decided and not finished" in each.what for each in found)


def test_a_quick_look_believes_an_index_and_still_sees_what_is_gone(whole: Log, folder: Path) -> None:
    point = whole.recovery_point()
    path = folder / f"{FIRST}.log"
    content = bytearray(path.read_bytes())
    content[50] ^= 1
    path.write_bytes(content)
    assert looked_at(folder, point, quick=True) == []
    path.write_bytes(content[:-1])
    assert {each.severity for each in looked_at(folder, point, quick=True)} == {DAMAGE}


def test_scratch_files_never_touch_the_disk(tmp_path: Path) -> None:
    kept = tmp_path / "disk" / "kept"
    kept.parent.mkdir()
    kept.write_bytes(b"0123456789")
    (tmp_path / "scratch").mkdir()
    files = ScratchFiles(tmp_path / "scratch")
    first, second = files.open(kept), files.open(kept)
    first.write(2, b"XX")
    assert second.read(0, 10) == b"01XX456789", "all who have it open see the change"
    second.truncate(3)
    assert (files.size(kept), first.read(0, 10)) == (3, b"01X")
    files.rename(kept, kept.with_name("moved"))
    files.open(kept.with_name("made"), create=True).write(0, b"made")
    assert files.list_dir(kept.parent) == ["made", "moved"]
    assert not files.exists(kept) and files.exists(kept.with_name("moved"))
    files.remove(kept.with_name("moved"))
    with pytest.raises(FileNotFoundError):
        files.open(kept)
    for refused in (files.remove_tree, files.lock):
        with pytest.raises(PermissionError):
            refused(kept)
    assert kept.read_bytes() == b"0123456789" and [each.name for each in kept.parent.iterdir()] == ["kept"]


def test_a_closed_segment_with_gaps_is_kept_whole_if_the_one_behind_it_is_gone(
    whole: Log, folder: Path, reopen: OpenLog
) -> None:
    point = whole.recovery_point()
    path = folder / f"{MIDDLE}.log"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    reopen(segment_bytes=300)
    # Now it has a gap, as after compaction.
    for later in (8, 12, 14):
        for each in folder.glob(f"{later:020d}.*"):
            each.unlink()
    found = looked_at(folder, point, compacted=True)
    assert not any("no whole message" in each.what for each in found)
    assert DAMAGE in {each.severity for each in found}
    assert values_of(reopen(point, segment_bytes=300)) == [value for at, value in enumerate(VALUES[:8]) if at != 5]


def test_a_segment_of_which_nothing_is_left_is_explained_by_what_was_set_aside(
    whole: Log, folder: Path, reopen: OpenLog
) -> None:
    whole.append(batch_of([b"x" * 250]))
    point = whole.recovery_point()
    assert point.count == 1, "it has a segment of its own"
    path = folder / f"{point.base:020d}.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    path.with_suffix(".index").unlink()
    assert DAMAGE in {each.severity for each in looked_at(folder, point)}
    log = reopen(point, segment_bytes=300)
    assert [each.what for each in looked_at(folder) if each.severity is not NOTE] == ["offset 14 is lost"]
    acknowledge(log)
    found = looked_at(folder, None)
    assert {each.severity for each in found} == {NOTE}
    assert any("offset 14 is missing" in each.what for each in found), found
