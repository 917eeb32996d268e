"""Trace files: written, rotated, kept for a while, searched, and never in the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from goqueue.observe.trace_event import DLQ, PUBLISH, TraceEvent
from goqueue.observe.trace_files import Budget, TraceFiles, Wanted
from goqueue.storage.files.files import OsFile, OsFiles

SECOND_NS = 1_000_000_000


class Clock:
    now_ns = 1_700_000_000 * SECOND_NS

    def __call__(self) -> int:
        return self.now_ns


class FailingFile:
    def __init__(self, file: OsFile, files: FailingFiles) -> None:
        self._file, self._files = file, files

    def write(self, position: int, data: Any) -> None:
        if self._files.is_full:
            self._file.write(position, bytes(data)[: len(data) // 2])
            raise OSError(28, "No space left on device")
        self._file.write(position, data)

    def read(self, position: int, size: int) -> bytes:
        self._files.reads += size
        if self._files.cannot_read:
            raise OSError(5, "Input/output error")
        return self._file.read(position, size)


class FailingFiles(OsFiles):
    is_full = cannot_read = cannot_remove = False
    reads = 0

    def open(self, path: Path, *, create: bool = False) -> Any:
        return FailingFile(super().open(path, create=create), self)

    def remove(self, path: Path) -> None:
        if self.cannot_remove:
            raise OSError(13, "Permission denied")
        super().remove(path)


class Shelf:
    """Trace files in a folder; ``number`` counts events as a tracer would."""

    def __init__(self, folder: Path, **limits: int) -> None:
        self.folder = folder
        self.clock = Clock()
        self.disk = FailingFiles()
        self.limits = {"file_bytes": 1_000, "retention_bytes": 1 << 30, "retention_ms": 3_600_000} | limits
        self.open()

    def open(self) -> None:
        self.number = 0
        self.files = TraceFiles(self.disk, self.folder, now_ns=self.clock, **self.limits)

    def write(self, *events: TraceEvent) -> None:
        first, self.number = self.number, self.number + len(events)
        self.files.write(events, first)

    def found(self, wanted: Wanted | None = None, budget: Budget | None = None, before: int | None = None) -> list[int]:
        """The times of what a search finds."""
        found = self.files.search(wanted or Wanted(), budget or Budget(1 << 30), before)
        return [each.at for part in found for each in part]

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


def event(at: int, place: str = "t/0", first: int | None = None, **fields: Any) -> TraceEvent:
    first = at if first is None else first
    return TraceEvent(place, at, fields.pop("kind", PUBLISH), [first, first + 1], **fields)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "traces")


def test_what_was_written_is_found_the_newest_first(shelf: Shelf) -> None:
    for at in range(0, 100, 2):
        shelf.write(event(at), event(at + 1))
    assert len(shelf.names()) > 3
    assert shelf.found() == list(range(99, -1, -1))
    assert shelf.files.size_bytes == sum(path.stat().st_size for path in shelf.folder.iterdir())


def test_a_file_is_lines_of_json(shelf: Shelf) -> None:
    shelf.write(event(5, group="g", reason='say "no"'), event(6))
    (name,) = shelf.names()
    assert (shelf.folder / name).read_text().splitlines() == [
        '{"place":"t/0","at":5,"event":"publish","offsets":[5,6],"group":"g","reason":"say \\"no\\""}',
        '{"place":"t/0","at":6,"event":"publish","offsets":[6,7]}',
    ]


def test_old_files_are_deleted_when_there_is_too_much(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, retention_bytes=3_000)
    for at in range(500):
        shelf.write(event(at))
    assert shelf.files.size_bytes <= 3_000
    found = shelf.found()
    assert found == list(range(499, 499 - len(found), -1))


def test_old_files_are_deleted_when_their_time_is_over(shelf: Shelf) -> None:
    shelf.write(event(1))
    for hours in (0.5, 1.4):
        shelf.clock.now_ns = Clock.now_ns + int(hours * 3_600 * SECOND_NS)
        shelf.write(event(int(hours * 10)))
    assert shelf.found() == [14, 5, 1]
    shelf.clock.now_ns = Clock.now_ns + int(1.6 * 3_600 * SECOND_NS)
    shelf.files.clean()
    assert shelf.found() == [14, 5]
    shelf.clock.now_ns += 100 * 3_600 * SECOND_NS
    shelf.files.clean()
    assert (shelf.found(), shelf.names()) == ([], [])


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_last_file_becomes_too_old_as_well(shelf: Shelf, is_restarted: bool) -> None:
    shelf.write(event(1))
    shelf.files.clean()
    if is_restarted:
        shelf.open()
    else:
        shelf.clock.now_ns += 3_600 * SECOND_NS // 7
        shelf.files.clean()
    shelf.clock.now_ns += 3_600 * SECOND_NS
    shelf.files.clean()
    assert shelf.found() == [1]
    shelf.clock.now_ns += 1
    shelf.files.clean()
    assert (shelf.found(), shelf.names(), shelf.files.size_bytes) == ([], [], 0)
    shelf.write(event(2))
    assert shelf.found() == [2]


def test_a_part_of_a_budget_is_taken_from_the_whole() -> None:
    whole = Budget(100)
    part = whole.part(60)
    assert part.take(50)
    assert not part.take(20)
    assert (whole.left_bytes, whole.is_spent, part.is_spent) == (50, False, True)
    other = whole.part(60)
    assert not other.take(55)
    assert (whole.left_bytes, whole.is_spent, other.is_spent) == (50, True, True)


def test_a_file_that_cannot_be_deleted_is_no_reason_to_fail(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, retention_bytes=1_500)
    shelf.disk.cannot_remove = True
    for at in range(100):
        shelf.write(event(at))
    assert shelf.found()[0] == 99
    assert shelf.files.size_bytes <= 1_500


def test_a_restart_reads_what_there_is_and_goes_on_in_another_file(shelf: Shelf) -> None:
    shelf.write(event(1), event(2))
    shelf.open()
    assert shelf.found() == [2, 1]
    shelf.write(event(3))
    assert shelf.found() == [3, 2, 1]
    assert len(shelf.names()) == 2
    # What was written before the start is in no one's memory.
    assert shelf.found(before=0) == [2, 1]


def test_files_follow_one_another_also_if_the_clock_goes_back(shelf: Shelf) -> None:
    shelf.write(event(1))
    shelf.clock.now_ns -= 50 * SECOND_NS
    shelf.open()
    shelf.write(event(2))
    shelf.open()
    shelf.write(event(3))
    assert shelf.found() == [3, 2, 1]


def test_what_is_no_event_is_passed_over(shelf: Shelf) -> None:
    shelf.write(event(1), event(2), event(3))
    (name,) = shelf.names()
    first, second, third = (shelf.folder / name).read_bytes().splitlines()
    garbage = [
        b"\xff\xfe\x00",
        b"{}",
        b"[1]",
        b"[" * 5_000,
        b'{"place":"t/0","at":1,"event":"publish","offsets":[1]}',
        b'{"place":"t/0","at":1,"event":"publish","offsets":"x:y"}',
        b'{"place":"t/0","at":1,"event":"publish","offsets":"7"}',
        b'{"place":"t/0","at":1,"event":"publish","offsets":[]}',
        b'{"place":"t","at":1,"event":"publish","offsets":[1,2]}',
        b'{"place":"t/0","at":1,"event":"dlq","offsets":[1,2],"to":"t"}',
        b'{"place":"t/0","at":"now","event":"publish","offsets":[1,2]}',
        b"",
    ]
    (shelf.folder / name).write_bytes(b"\n".join([first, *garbage, second, third[:-7]]))
    shelf.open()
    assert shelf.found() == [2, 1]
    assert shelf.found() == [2, 1]


def test_fields_of_a_later_version_are_passed_over(shelf: Shelf) -> None:
    shelf.folder.mkdir(exist_ok=True)
    line = b'{"place":"t/0","at":9,"event":"sharded","offsets":[1,2],"shard":{"a":[1]},"size":7}\n'
    (shelf.folder / "00000000000000000001.jsonl").write_bytes(line)
    shelf.open()
    assert shelf.found() == [9]


def test_other_files_are_left_alone(shelf: Shelf) -> None:
    for name in ("notes.txt", "x.jsonl", "².jsonl"):
        (shelf.folder / name).write_text("mine")
    shelf.open()
    shelf.write(event(1))
    assert shelf.found() == [1]
    assert len(shelf.names()) == 4


def test_long_lines_and_many_pieces(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, file_bytes=1 << 30)
    for at in range(60):
        shelf.write(event(at, reason="x" * (at * 1_000)), event(at, place="u/0"))
    long = event(100, reason="y" * 700_000)
    shelf.write(long, event(101))
    assert shelf.found(Wanted({"t/0": None})) == [101, 100, *range(59, -1, -1)]
    shelf.open()
    assert shelf.found(Wanted({"u/0": None})) == list(range(59, -1, -1))


def test_a_full_disk_costs_only_what_was_to_be_written(shelf: Shelf) -> None:
    shelf.write(event(1))
    shelf.disk.is_full = True
    for at in (2, 3, 4):
        with pytest.raises(OSError, match="No space"):
            shelf.write(event(at))
    assert len(shelf.names()) == 1
    shelf.disk.is_full = False
    shelf.write(event(5))
    assert shelf.found() == [5, 1]
    shelf.open()
    assert shelf.found() == [5, 1]


def test_a_file_that_is_deleted_or_fails_during_a_search_is_left_out(shelf: Shelf) -> None:
    for at in range(100):
        shelf.write(event(at))
    search = shelf.files.search(Wanted(), Budget(1 << 30))
    newest = next(search)
    for name in shelf.names():
        (shelf.folder / name).unlink()
    assert [*search] == []
    assert newest[0].at == 99
    shelf.disk.cannot_read = True
    assert shelf.found() == []


def test_a_search_stops_where_its_budget_ends_and_says_so(shelf: Shelf) -> None:
    for at in range(100):
        shelf.write(event(at))
    budget = Budget(2_500)
    found = shelf.found(budget=budget)
    assert budget.is_spent
    assert found == list(range(99, 99 - len(found), -1))
    assert 20 < len(found) < 60
    enough = Budget(shelf.files.size_bytes)
    assert len(shelf.found(budget=enough)) == 100
    assert not enough.is_spent


@pytest.mark.parametrize("is_restarted", [False, True])
def test_files_that_cannot_hold_it_are_not_read(shelf: Shelf, is_restarted: bool) -> None:
    for at in range(100):
        shelf.write(event(at, place=f"t/{at % 2}"))
    if is_restarted:
        shelf.open()
        shelf.found()
    for wanted, expected in (
        (Wanted({"t/0": 50}), [50]),
        (Wanted({"t/1": 50}), []),
        (Wanted({"u/0": None}), []),
        (Wanted(start_ns=97), [99, 98, 97]),
        (Wanted(end_ns=1), [1, 0]),
        (Wanted(copies_in="t/0"), []),
    ):
        shelf.disk.reads = 0
        assert shelf.found(wanted) == expected
        assert shelf.disk.reads <= 2_200


def test_places_kinds_and_copies(shelf: Shelf) -> None:
    shelf.write(
        event(1), event(2, place="t/1"), event(3, kind=DLQ, to="t.dlq/0"), event(4, place="t/10"), event(5, first=1)
    )
    for _ in range(2):
        assert shelf.found(Wanted({"t/1": None})) == [2]
        assert shelf.found(Wanted({"t/0": 1})) == [5, 1]
        assert shelf.found(Wanted(kind=DLQ)) == shelf.found(Wanted(copies_in="t.dlq/0")) == [3]
        assert shelf.found(Wanted(kind=PUBLISH)) == [5, 4, 2, 1]
        shelf.open()


@pytest.mark.parametrize("before", range(7))
def test_what_memory_has_is_left_out(shelf: Shelf, before: int) -> None:
    shelf.limits["file_bytes"] = 150
    shelf.open()
    shelf.write(event(0), event(1))
    shelf.write(event(2))
    shelf.write(event(3), event(4), event(5))
    assert shelf.found(before=before) == list(range(before - 1, -1, -1))


def test_a_gap_in_the_numbers_begins_another_file(shelf: Shelf) -> None:
    shelf.files.write([event(0), event(1)], 0)
    shelf.files.write([event(7)], 7)
    assert shelf.found(before=7) == [1, 0]
    assert shelf.found(before=1) == [0]
