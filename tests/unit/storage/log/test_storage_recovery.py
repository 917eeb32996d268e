"""What a log is after a start: the tail is cut or the damage set aside, batches are whole, offsets are used once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from doubles.counting import CountingFiles
from doubles.messages import OpenLog, batch_of, read_all, values_of

from goqueue.storage.log.compaction import compact
from goqueue.storage.log.compaction_choice import CompactionRules
from goqueue.storage.log.log import Log
from goqueue.storage.log.truncation import truncate_to
from goqueue.wire.frame import HEADER_SIZE, encode_frame


def run(log: Log, **rules: int) -> None:
    settings = {"below": log.end_offset, "tombstone_retention_ms": 10**6, "max_keys": 1_000, **rules}
    for step in compact(log, CompactionRules(**settings)):
        if step is not None:
            step()


def offsets(log: Log) -> list[int]:
    return [message.offset for message in read_all(log)]


def sides(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("*.damaged-*"))]


def test_a_tail_is_cut_into_a_side_file_when_no_valid_frame_follows(reopen: OpenLog, folder: Path) -> None:
    log = reopen()
    log.append(batch_of([b"first"]))
    torn = encode_frame(b"", b"second", b"", 1, offset=1)[:-3]
    with log.active.log_path.open("ab") as file:
        file.write(torn)
    assert values_of(reopen()) == [b"first"]
    assert sides(folder) == [torn]


def test_a_write_that_a_kill_has_split_anywhere_is_cut_without_a_warning(
    reopen: OpenLog, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The system copies a write page by page, and SIGKILL may end the process between two of them."""
    log = reopen()
    log.append(batch_of([b"first"]))
    original = shutil.copytree(folder, tmp_path / "original")
    second, third = (encode_frame(b"", value, b"", 1, offset=at) for at, value in ((1, b"second"), (2, b"third")))
    written = second + third
    with caplog.at_level("INFO"):
        for length in range(1, len(written)):
            shutil.rmtree(folder)
            shutil.copytree(original, folder)
            with (folder / log.active.log_path.name).open("ab") as file:
                file.write(written[:length])
            caplog.clear()
            assert values_of(reopen()) == [b"first", b"second"][: 1 + (length >= len(second))]
            assert {record.levelname for record in caplog.records} <= {"INFO"}, caplog.text
            assert length == len(second) or "an unfinished write was cut off the end of a segment" in caplog.text


@pytest.mark.parametrize("inner_offset", [1, 2])
def test_a_frame_in_the_value_of_a_torn_write_is_not_taken_for_a_message(
    reopen: OpenLog, folder: Path, inner_offset: int
) -> None:
    log = reopen()
    log.append(batch_of([b"first"]))
    planted = encode_frame(b"", b"forged", b"", 1, flags=0x18, offset=inner_offset)
    torn = encode_frame(b"", b"head " + planted + b" tail", b"", 1, offset=1)[:-3]
    with log.active.log_path.open("ab") as file:
        file.write(torn)
    assert values_of(reopen()) == [b"first"]
    assert sides(folder) == [torn]


def test_messages_behind_a_damaged_length_are_kept(reopen: OpenLog) -> None:
    log = reopen()
    for value in (b"first", b"second", b"third"):
        log.append(batch_of([value]))
    path = log.active.log_path
    data = bytearray(path.read_bytes())
    data[29] ^= 0x40
    path.write_bytes(bytes(data))
    assert values_of(reopen()) == [b"second", b"third"]


def test_damage_before_a_valid_frame_is_set_aside_and_the_frame_kept(reopen: OpenLog, folder: Path) -> None:
    log = reopen()
    for value in (b"first", b"second", b"third"):
        log.append(batch_of([value]))
    path = log.active.log_path
    path.write_bytes(path.read_bytes().replace(b"second", b"sEcond"))
    again = reopen()
    assert values_of(again) == [b"first", b"third"]
    assert again.end_offset == 3
    assert len(sides(folder)) == 1 and b"sEcond" in sides(folder)[0]


def test_nothing_more_is_lost_when_a_repaired_log_is_opened_again_and_again(reopen: OpenLog) -> None:
    log = reopen()
    for value in (b"first", b"second", b"third", b"fourth"):
        log.append(batch_of([value]))
    path = log.active.log_path
    path.write_bytes(path.read_bytes().replace(b"second", b"sEcond"))
    for _ in range(3):
        log = reopen()
        assert values_of(log) == [b"first", b"third", b"fourth"]
    log = reopen(log.recovery_point())
    assert values_of(log) == [b"first", b"third", b"fourth"]


def test_bytes_of_two_accidents_at_the_same_place_are_both_kept(reopen: OpenLog, folder: Path) -> None:
    reopen().append(batch_of([b"first"]))
    for torn in (b"GQ one", b"GQ two"):
        with (folder / f"{0:020d}.log").open("ab") as file:
            file.write(torn)
        reopen()
    assert sorted(sides(folder)) == [b"GQ one", b"GQ two"]


def test_frames_inside_the_value_of_a_damaged_message_are_not_served(reopen: OpenLog) -> None:
    inner = encode_frame(b"", b"never published", b"", 1, offset=1)
    log = reopen(segment_bytes=10_000)
    log.append(batch_of([b"first"]))
    log.append(batch_of([b"outer " + inner]))
    log.append(batch_of([b"third"]))
    path = log.active.log_path
    path.write_bytes(path.read_bytes().replace(b"outer", b"Outer"))
    assert values_of(reopen(segment_bytes=10_000)) == [b"first", b"third"]


def test_a_flag_that_differs_from_its_copy_is_damage(reopen: OpenLog) -> None:
    log = reopen()
    log.append(batch_of([b"first"]))
    log.append(batch_of([b"second"]))
    path = log.active.log_path
    content = bytearray(path.read_bytes())
    content[3] = 4
    path.write_bytes(content)
    assert values_of(reopen()) == [b"second"]


@pytest.mark.parametrize("place", [1, 2], ids=["before another", "last"])
@pytest.mark.parametrize(
    "value", [b"value\0\0", b"", b"\x07" + bytes(1_200)], ids=["zeros behind", "empty", "a sector"]
)
def test_a_flipped_bit_is_no_torn_write_although_the_message_has_zeros(
    folder: Path, reopen: OpenLog, tmp_path: Path, value: bytes, place: int
) -> None:
    """A torn write would have such zeros too. Only a byte that became one may be missing."""
    log = reopen(segment_bytes=10_000)
    for each in (b"first", value, value)[: place + 1]:
        log.append(batch_of([each]))
    if place == 1:
        log.append(batch_of([b"last"]))
    log.synced(log.unsynced())
    path = log.active.log_path
    whole = path.read_bytes()
    start = whole.index(b"first") + len(b"first") + (place - 1) * (HEADER_SIZE + len(value))
    original = shutil.copytree(folder, tmp_path / "original")
    for at in [*range(start + 3, start + HEADER_SIZE + min(len(value), 8)), start + HEADER_SIZE + len(value) - 1]:
        for bit in (0, 3, 7):
            content = bytearray(whole)
            content[at] ^= 1 << bit
            if not content[at]:
                continue
            shutil.rmtree(folder)
            shutil.copytree(original, folder)
            path.write_bytes(content)
            again = reopen(segment_bytes=10_000)
            assert [(each.first, each.end) for each in again.lost.open] == [(place, place + 1)], (at - start, bit)
            assert again.end_offset == log.end_offset


@pytest.mark.parametrize("bit", range(63))
@pytest.mark.parametrize("place", [1, 2])
def test_a_wrong_offset_in_a_sealed_segment_costs_only_its_own_message(reopen: OpenLog, bit: int, place: int) -> None:
    log = reopen()
    for number in range(4):
        log.append(batch_of([b"%d" % number]))
    log.roll()
    log.append(batch_of([b"last"]))
    path = log.segments[0].log_path
    content = bytearray(path.read_bytes())
    frame = len(content) // 4
    wrong = place ^ (1 << bit)
    content[place * frame + 8 : place * frame + 16] = wrong.to_bytes(8)
    path.write_bytes(content)
    found = {message.offset: message.value for message in read_all(reopen())}
    del found[4]
    assert found == {number: b"%d" % number for number in range(4) if number != place}


def test_a_torn_batch_of_a_producer_is_cut_whole(reopen: OpenLog, folder: Path) -> None:
    log = reopen(segment_bytes=10_000)
    log.append(batch_of([b"alone"]))
    log.append(batch_of([b"one", b"two", b"three"], stamped=True))
    path = log.active.log_path
    whole = path.read_bytes()
    for length in range(log.active.locate(0, 1, 1, 1).size, len(whole)):
        path.write_bytes(whole[:length])
        assert values_of(reopen(segment_bytes=10_000)) == [b"alone"]


def test_a_torn_batch_in_a_segment_that_is_not_the_last_is_set_aside_whole(reopen: OpenLog, folder: Path) -> None:
    log = reopen(segment_bytes=10_000)
    log.append(batch_of([b"alone"]))
    log.append(batch_of([b"one", b"two", b"three"], stamped=True))
    path, sealed = log.active.log_path, log.active
    last = sealed.locate(3, 1, 1, 4)
    log.roll()
    log.append(batch_of([b"after"]))
    whole = path.read_bytes()
    for length in (last.position, last.position + 10):
        path.write_bytes(whole[:length])
        assert values_of(reopen(segment_bytes=10_000)) == [b"alone", b"after"]
        path.write_bytes(whole)


def test_damage_inside_a_batch_that_may_never_have_been_whole_takes_all_of_it(reopen: OpenLog, folder: Path) -> None:
    log = reopen(segment_bytes=10_000)
    log.append(batch_of([b"before"]))
    log.append(batch_of([b"one", b"two", b"three"], stamped=True))
    log.append(batch_of([b"after"]))
    path = log.active.log_path
    # As after a power loss: what was not written reads as zeros.
    path.write_bytes(path.read_bytes().replace(b"two", bytes(3)))
    assert values_of(reopen(segment_bytes=10_000)) == [b"before", b"after"]
    assert all(word in sides(folder)[0] for word in (b"one", b"three"))


def test_a_wrong_length_inside_the_last_batch_loses_none_of_it_without_a_word(reopen: OpenLog) -> None:
    log = reopen(segment_bytes=10_000)
    log.append(batch_of([b"before"]))
    log.append(batch_of([b"one", b"two", b"three"], stamped=True))
    path = log.active.log_path
    content = bytearray(path.read_bytes())
    content[content.index(b"two") - HEADER_SIZE + 29] ^= 1
    path.write_bytes(content)
    again = reopen(segment_bytes=10_000)
    assert values_of(again) == [b"before", b"three"]
    assert [(each.first, each.end) for each in again.lost.open] == [(1, 3)]
    assert again.end_offset == 4


@pytest.mark.parametrize(
    ("damaged", "left"),
    [
        (b"one", [b"before", b"two", b"three", b"after"]),
        (b"two", [b"before", b"one", b"three", b"after"]),
        (b"three", [b"before", b"one", b"two", b"after"]),
        (b"after", [b"before", b"one", b"two", b"three"]),
    ],
)
@pytest.mark.parametrize("is_closed", [False, True])
def test_of_a_batch_that_was_on_the_disk_only_what_is_damaged_is_lost(
    reopen: OpenLog, folder: Path, damaged: bytes, left: list[bytes], is_closed: bool
) -> None:
    log = reopen(segment_bytes=10_000)
    log.append(batch_of([b"before"]))
    log.append(batch_of([b"one", b"two", b"three"], stamped=True))
    log.append(batch_of([b"after"]))
    path = log.active.log_path
    if is_closed:
        log.roll()
        log.append(batch_of([b"next"]))
    point = log.recovery_point()
    path.write_bytes(path.read_bytes().replace(damaged, damaged[::-1].upper()))
    path.with_suffix(".index").unlink()
    assert values_of(reopen(point, segment_bytes=10_000)) == left + [b"next"] * is_closed
    assert [damaged[::-1].upper() in side for side in sides(folder)] == [True]


def test_damage_over_two_messages_is_one_range(reopen: OpenLog, folder: Path) -> None:
    log = reopen(segment_bytes=10_000)
    for value in (b"first", b"second", b"third", b"fourth"):
        log.append(batch_of([value]))
    path = log.active.log_path
    content = bytearray(path.read_bytes())
    end = content.index(b"second") + len(b"second")
    content[end - 1 : end + 3] = b"XXXX"
    path.write_bytes(content)
    assert values_of(reopen(segment_bytes=10_000)) == [b"first", b"fourth"]
    assert len(sides(folder)) == 1


def test_a_batch_whose_end_was_on_the_disk_and_is_damaged_keeps_its_beginning(reopen: OpenLog) -> None:
    log = reopen(segment_bytes=10_000)
    log.append(batch_of([b"one", b"two", b"three"], stamped=True))
    point = log.recovery_point()
    path = log.active.log_path
    path.write_bytes(path.read_bytes().replace(b"three", b"THREE"))
    path.with_suffix(".index").unlink()
    assert values_of(reopen(point, segment_bytes=10_000)) == [b"one", b"two"]


def test_a_batch_lies_in_one_segment(reopen: OpenLog) -> None:
    log = reopen(segment_bytes=300)
    for _ in range(6):
        first = log.append(batch_of([b"x" * 30] * 3, stamped=True))
        assert log.segment_at(first) == log.segment_at(first + 2)
    assert len(log.segments) > 3


@pytest.mark.parametrize("target", [1, 2, 3])
def test_truncation_cuts_at_the_boundaries_of_a_batch(reopen: OpenLog, target: int) -> None:
    log = reopen(segment_bytes=10_000)
    log.append(batch_of([b"before"]))
    log.append(batch_of([b"one", b"two", b"three"], stamped=True))
    assert truncate_to(log, target, lambda: None) == 1
    assert values_of(log) == values_of(reopen(segment_bytes=10_000)) == [b"before"]


def test_truncation_leaves_batches_that_it_does_not_split(reopen: OpenLog) -> None:
    log = reopen(segment_bytes=10_000)
    log.append(batch_of([b"one", b"two"], stamped=True))
    log.append(batch_of([b"three"]))
    assert truncate_to(log, 2, lambda: None) == 2
    assert values_of(log) == [b"one", b"two"]


def test_a_log_that_was_cut_inside_a_compacted_segment_goes_on(reopen: OpenLog) -> None:
    log = reopen()
    for number in range(12):
        log.append(batch_of([b"%d" % number], keys=[b"a" if number % 3 else b"k%d" % number]))
    log.roll()
    run(log)
    kept = [offset for offset in offsets(log) if offset < 7]
    assert truncate_to(log, 7, lambda: None) == 7
    assert offsets(log) == kept
    assert log.append(batch_of([b"new"], keys=[b"a"])) == 7
    assert offsets(log) == offsets(reopen()) == [*kept, 7]


def test_a_compaction_under_way_ends_when_the_log_is_cut(reopen: OpenLog) -> None:
    log = reopen(segment_bytes=200)
    for number in range(12):
        log.append(batch_of([b"%d" % number], keys=[b"k%d" % (number % 2)]))
    steps = compact(log, CompactionRules(log.end_offset, 10**6, 1_000))
    next(steps)
    truncate_to(log, 3, lambda: None)
    assert list(steps) == []
    assert log.cleaned_to == 0
    assert offsets(log) == offsets(reopen()) == [0, 1, 2]


def test_rolling_an_empty_segment_does_nothing(reopen: OpenLog) -> None:
    log = reopen()
    log.append(batch_of([b"x"]))
    for _ in range(3):
        log.roll()
    assert [segment.base for segment in log.segments] == [0, 1]


def test_an_offset_below_a_recovery_point_is_not_given_out_again(reopen: OpenLog) -> None:
    log = reopen()
    for value in (b"one", b"two"):
        log.append(batch_of([value]))
    point = log.recovery_point()
    log.active.index_path.write_bytes(b"")
    path = log.active.log_path
    path.write_bytes(path.read_bytes().replace(b"two", b"tWo"))
    again = reopen(point)
    assert values_of(again) == [b"one"]
    assert again.append(batch_of([b"three"])) == 2
    assert values_of(reopen(point)) == [b"one", b"three"]


def test_offsets_go_on_when_all_segments_are_gone(reopen: OpenLog, folder: Path) -> None:
    log = reopen()
    log.append(batch_of([b"one", b"two"]))
    point = log.recovery_point()
    for path in folder.iterdir():
        path.unlink()
    assert reopen(point).append(batch_of([b"three"])) == 2


def test_offsets_go_on_when_only_segments_below_the_start_are_left(reopen: OpenLog, folder: Path) -> None:
    log = reopen(segment_bytes=60)
    for number in range(4):
        log.append(batch_of([b"%d" % number * 30]))
    log.roll()
    log.start_offset = 4
    point = log.recovery_point()
    for path in folder.iterdir():
        if not path.name.startswith(f"{1:020d}"):
            path.unlink()
    assert reopen(point, segment_bytes=60).append(batch_of([b"next"])) == 4


def test_an_empty_file_of_a_segment_that_was_never_begun_is_no_end(reopen: OpenLog, folder: Path) -> None:
    log = reopen()
    for value in (b"one", b"two", b"three"):
        log.append(batch_of([value]))
    (folder / f"{1:020d}.log").touch()
    again = reopen()
    assert values_of(again) == [b"one", b"two", b"three"]
    assert again.append(batch_of([b"four"])) == 3


def test_a_clean_start_reads_no_log_file(reopen: OpenLog) -> None:
    log = reopen(segment_bytes=200)
    for number in range(10):
        log.append(batch_of([b"%d" % number * 20]))
    point = log.recovery_point()
    disk = CountingFiles()
    again = reopen(point, files=disk, segment_bytes=200)
    assert not [path for path in disk.reads if path.suffix == ".log"]
    sealed = {segment.base for segment in again.segments[:-1]}
    assert not [path for path in disk.opened if int(path.stem) in sealed]
    assert offsets(again) == list(range(10))


def test_a_segment_of_which_nothing_was_left_is_read_once_and_not_at_every_start(
    reopen: OpenLog, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = reopen()
    log.append(batch_of([b"the only one"]))
    path = log.active.log_path
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    point = reopen().recovery_point()
    caplog.clear()
    log = reopen(point)
    assert [segment.base for segment in log.segments] == [0, 1]
    assert log.segments[0].last_offset() is None
    assert not caplog.records


def test_a_start_scans_only_behind_the_recovery_point(reopen: OpenLog) -> None:
    log = reopen(segment_bytes=200)
    for number in range(10):
        log.append(batch_of([b"%d" % number * 20]))
    point = log.recovery_point()
    log.append(batch_of([b"more"]))
    disk = CountingFiles()
    again = reopen(point, files=disk, segment_bytes=200)
    assert {int(path.stem) for path in disk.reads} <= {point.base, again.active.base}
    assert offsets(again) == list(range(11))


def test_a_recovery_point_of_before_a_compaction_is_not_believed(reopen: OpenLog) -> None:
    log = reopen(segment_bytes=10_000)
    for number in range(6):
        log.append(batch_of([b"%d" % number], keys=[b"k%d" % (number % 3)]))
    point = log.recovery_point()
    for number in range(6, 12):
        log.append(batch_of([b"%d" % (number % 10)], keys=[b"k%d" % (number % 3 + 3)]))
    log.roll()
    log.append(batch_of([b"x"], keys=[b"x"]))
    run(log)
    expected = offsets(log)
    again = reopen(point, segment_bytes=10_000)
    assert offsets(again) == expected
    assert again.segments[0].last_offset() == log.segments[0].last_offset()
