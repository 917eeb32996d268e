"""A frame's offset is outside of its checksum: its place says what its offset is, whatever it says itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from crc32c import crc32c
from doubles.messages import START_NS, Ticking, batch_of
from doubles.unsynced_files import UnsyncedFiles

from goqueue.storage.log import lanes
from goqueue.storage.log.compaction import compact
from goqueue.storage.log.compaction_choice import CompactionRules
from goqueue.storage.log.index_file import INDEX_MAGIC, POSITION, footer, indexed_count, read_positions
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log
from goqueue.storage.reader.reader import read_runs
from goqueue.storage.reader.reader_files import DISK
from goqueue.wire.batch import FrameRun, damaged_places
from goqueue.wire.frame import HEADER_SIZE

MESSAGES = 12
SUPERSEDED = (0, 1, 3, 4, 5, 6, 7)
OFFSET_AT = range(8, 16)
Read = tuple[list[int], list[int]]
"""The offsets of frames that are whole, and of those that are not."""


def filled(root: Path, *, gaps: bool) -> Log:
    """Twelve messages, eight of them in sealed segments; with ``gaps`` compaction has left 2 of these, in one."""
    options = LogOptions(400, 150)
    log = open_log(OpenFiles(UnsyncedFiles(), 30), root / "logs" / "t~1" / "0", options, Ticking())
    for number in range(MESSAGES):
        key = b"same" if gaps and number in SUPERSEDED else b"%04d" % number
        log.append(batch_of([b"%04d" % number * 14], keys=[key], timestamps=[START_NS + number]))
    assert [segment.base for segment in log.segments] == [0, 4, 8]
    log.synced(log.unsynced())
    if gaps:
        for step in compact(log, CompactionRules(log.end_offset, 0, 1_000)):
            if step is not None:
                step()
        assert [segment.base for segment in log.segments] == [0, 8]
    return log


def places(path: Path) -> list[int]:
    """Where the frames of a segment begin."""
    return read_positions(DISK.open(path.with_suffix(".index")), 0, path.stat().st_size // (HEADER_SIZE + 60)).tolist()


def sorted_out(runs: Sequence[FrameRun]) -> Read:
    whole: list[int] = []
    damaged: list[int] = []
    for run in runs:
        hurt = set(damaged_places(run, run.columns()))
        for place, offset in enumerate(run.columns()["offset"].tolist()):
            (damaged if place in hurt else whole).append(offset)
    return whole, damaged


def by_log(log: Log) -> Read:
    runs, at = [], 0
    while (found := log.locate(at, 1 << 20)) is not None:
        runs.append(found.load())
        at = found.next_offset
    return sorted_out(runs)


def one_by_one(log: Log) -> Read:
    runs = []
    for offset in range(log.end_offset):
        if log.has(offset):
            found = log.locate(offset, 1, 1)
            assert found is not None
            runs.append(found.load())
    return sorted_out(runs)


def by_lane(log: Log) -> Read:
    runs, at = [], 0
    while (found := lanes.locate(log, 2, at, 1 << 20, 1 << 20, log.end_offset)) is not None:
        runs.append(found.load())
        at = found.next_offset
    return sorted_out(runs)


def by_files(log: Log) -> Read:
    return sorted_out(list(read_runs(log.folder, 0, log.end_offset)))


WAYS = [by_log, one_by_one, by_lane, by_files]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("base", [0, 4, 8])
def test_a_flipped_offset_is_never_served(tmp_path: Path, way: Callable[[Log], Read], base: int) -> None:
    """In a sealed segment, and in the one that grows."""
    log = filled(tmp_path, gaps=False)
    path = log.folder / f"{base:020d}.log"
    whole = path.read_bytes()
    for place, start in enumerate(places(path)):
        if way is by_files and base == 8 and place == 3:
            # The last message of a log that nobody vouches for: there a start would look at it, and set it aside.
            continue
        for at in OFFSET_AT:
            for bit in (1, 2, 0x80):
                content = bytearray(whole)
                content[start + at] ^= bit
                path.write_bytes(content)
                expected = [offset for offset in range(MESSAGES) if offset != base + place]
                assert way(log) == (expected, [base + place]), (place, at, bit)


@pytest.mark.parametrize("way", WAYS)
def test_nor_where_compaction_has_left_gaps(tmp_path: Path, way: Callable[[Log], Read]) -> None:
    """There the index tells the offsets: one that fits between its neighbours would not be noticed otherwise."""
    log = filled(tmp_path, gaps=True)
    path = log.folder / f"{0:020d}.log"
    assert sorted_out([log.locate(0, 1 << 20).load()]) == ([2, 7], [])  # type: ignore[union-attr]
    content = bytearray(path.read_bytes())
    content[15] ^= 1
    path.write_bytes(content)
    assert way(log) == ([7, 8, 9, 10, 11], [2])


def test_nor_does_a_reader_of_files_miss_the_last_one_that_compaction_has_left(tmp_path: Path) -> None:
    log = open_log(OpenFiles(UnsyncedFiles(), 30), tmp_path / "logs" / "t~1" / "0", LogOptions(400, 150), Ticking())
    for number, key in enumerate(b"abxxxdefg"):
        log.append(batch_of([b"%04d" % number * 14], keys=[b"%d" % key]))
    log.synced(log.unsynced())
    for step in compact(log, CompactionRules(log.end_offset, 0, 1_000)):
        if step is not None:
            step()
    path = log.segments[0].log_path
    assert by_files(log) == by_log(log) == ([0, 1, 4, 5, 6, 7, 8], [])
    content = bytearray(path.read_bytes())
    content[len(content) // 2 + 12] ^= 1
    path.write_bytes(content)
    assert by_files(log) == by_log(log) == ([0, 4, 5, 6, 7, 8], [1])


def test_what_is_lost_at_the_end_of_a_compacted_segment_is_told_by_its_own_offset(tmp_path: Path) -> None:
    log = filled(tmp_path, gaps=True)
    path = log.segments[0].log_path
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    again = open_log(OpenFiles(UnsyncedFiles(), 30), log.folder, LogOptions(400, 150), Ticking())
    # Which of those that are left it was, nothing tells any more.
    assert [(each.first, each.end) for each in again.lost.open] == [(3, 8)]


def test_after_a_restart_as_well(tmp_path: Path) -> None:
    log = filled(tmp_path, gaps=True)
    path = log.folder / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[places(path)[1] + 15] ^= 2
    path.write_bytes(content)
    point = log.recovery_point()
    again = open_log(OpenFiles(UnsyncedFiles(), 30), log.folder, log.options, Ticking(), point)
    assert by_log(again) == ([2, 8, 9, 10, 11], [7])


@pytest.mark.parametrize("way", [by_log, by_lane, by_files])
def test_an_index_of_an_earlier_version_still_opens(tmp_path: Path, way: Callable[[Log], Read]) -> None:
    """It tells no offsets. Then those count that rise and leave room for one another."""
    log = filled(tmp_path, gaps=True)
    path = log.folder / f"{0:020d}.log"
    index = path.with_suffix(".index")
    count, content = 2, index.read_bytes()[: 2 * POSITION.itemsize]
    index.write_bytes(content + footer(INDEX_MAGIC, count, path.stat().st_size, crc32c(content)))
    assert indexed_count(DISK.open(index), path.stat().st_size) == 2
    again = open_log(OpenFiles(UnsyncedFiles(), 30), log.folder, log.options, Ticking(), log.recovery_point())
    assert way(again) == ([2, 7, 8, 9, 10, 11], [])
    frames = bytearray(path.read_bytes())
    frames[15] ^= 0x40
    path.write_bytes(frames)
    again = open_log(OpenFiles(UnsyncedFiles(), 30), log.folder, log.options, Ticking(), log.recovery_point())
    assert way(again)[0] == [7, 8, 9, 10, 11]
    assert len(way(again)[1]) == 1
