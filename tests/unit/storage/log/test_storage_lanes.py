"""The index of lanes on the disk: what it costs, and that it is never wrong."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from doubles.lane_messages import ALL_LANES, check_all_lanes, check_lanes, lane_batch
from doubles.messages import OpenLog, Ticking, batch_of, read_run
from doubles.power_loss import PowerLoss, PowerLossDisk

from goqueue.model.errors import DiskFull
from goqueue.model.message import HIDDEN, Priority
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.log import lanes
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log
from goqueue.storage.log.truncation import truncate_to

CRITICAL, NORMAL = int(Priority.CRITICAL), int(Priority.NORMAL)
HOME = Path("/data/log")
MIXED = [2, 2, 0, 0, 2, 5, 5, 1, 2, 4]


def filled(log: Log, *batches: list[int]) -> dict[int, int]:
    model: dict[int, int] = {}
    for batch in batches:
        model |= dict(enumerate(batch, log.append(lane_batch(batch))))
    return model


def lanes_file(folder: Path, base: int = 0) -> Path:
    return folder / f"{base:020d}.lanes"


def test_messages_of_one_lane_write_one_entry(reopen: OpenLog, folder: Path) -> None:
    log = reopen(segment_bytes=1 << 20)
    for _ in range(50):
        log.append(batch_of([b"x"] * 10))
    assert lanes_file(folder).read_bytes() == bytes([0, 0, 0, 0, NORMAL])
    assert lanes.count(log, NORMAL, 0, 500) == 500
    log.append(lane_batch([0]))
    assert lanes_file(folder).read_bytes()[5:] == bytes([0, 0, 1, 244, 0])


def test_a_log_with_nothing_special_knows_it_after_a_start(reopen: OpenLog) -> None:
    log = reopen(segment_bytes=1 << 20)
    assert log.special_end == 0
    log.append(batch_of([b"x"] * 10))
    assert log.special_end == 0
    assert reopen(segment_bytes=1 << 20).special_end == 0
    assert reopen(log.recovery_point(), segment_bytes=1 << 20).special_end == 0
    log.append(lane_batch([0]))
    log.append(batch_of([b"x"] * 10))
    assert log.special_end == 11
    assert reopen(segment_bytes=1 << 20).special_end == 11
    log.append(lane_batch([2, 1, 2]))
    assert log.special_end == 24
    truncate_to(log, 5, lambda: None)
    assert log.special_end == 5


def test_what_sealed_segments_hold_is_not_taken_for_normal_unseen(reopen: OpenLog) -> None:
    log = reopen(segment_bytes=200)
    model = filled(log, [2, 1, 2, 2], [2, 2, 2, 2], [2, 2])
    assert len(log.segments) == 3
    again = reopen(log.recovery_point(), segment_bytes=200)
    assert again.special_end == 8
    check_all_lanes(again, model)
    assert reopen(segment_bytes=200).special_end == 4


def test_the_backlog_of_a_lane_counts_within_a_sealed_segment_that_is_not_loaded_yet(reopen: OpenLog) -> None:
    log = reopen(segment_bytes=200)
    filled(log, [2, 4, 2, 4], [2, 2, 2, 2])
    again = reopen(log.recovery_point(), segment_bytes=200)
    # Nothing was read of the first segment before: taken for empty, its messages would be passed over for good.
    assert lanes.counts(again, [8, 8, 8, 8, 1], 8, 100)[4] == 2


@pytest.mark.parametrize("how", ["flip", "cut", "remove"])
@pytest.mark.parametrize("base", [0, 10, 20])
@pytest.mark.parametrize("with_point", [True, False])
def test_a_damaged_index_of_lanes_is_rebuilt(
    reopen: OpenLog, folder: Path, how: str, base: int, with_point: bool
) -> None:
    log = reopen(segment_bytes=380)
    model = filled(log, MIXED, MIXED[::-1], MIXED)
    assert [segment.base for segment in log.segments] == [0, 10, 20]
    path = lanes_file(folder, base)
    right = path.read_bytes()
    contents = {
        "flip": [right[:at] + bytes([right[at] ^ 1]) + right[at + 1 :] for at in range(len(right))],
        "cut": [right[:at] for at in range(len(right))],
        "remove": [b""],
    }[how]
    for content in contents:
        path.write_bytes(content)
        if how == "remove":
            path.unlink()
        again = reopen(log.recovery_point() if with_point else None, segment_bytes=380)
        check_all_lanes(again, model)
        assert path.read_bytes() == right
        path.write_bytes(right)


def test_an_index_of_another_length_is_not_believed(reopen: OpenLog, folder: Path) -> None:
    """Of a segment with as many bytes and another number of messages."""
    log = reopen(segment_bytes=380)
    filled(log, MIXED)
    log.append(lane_batch([1], size=len(MIXED) * 34 - 34))
    log.append(lane_batch([2, 2]))
    assert log.segments[0].size == log.segments[1].size
    lanes_file(folder).write_bytes(lanes_file(folder, 10).read_bytes())
    first = reopen(log.recovery_point(), segment_bytes=380).segments[0]
    counted = [lanes.map_of(first).count(lane, 0, 10) for lane in ALL_LANES]
    assert counted == lanes.totals_in(first) == [2, 1, 4, 0, 1, 2]


def test_a_point_from_before_there_were_lanes_costs_a_scan(reopen: OpenLog, folder: Path) -> None:
    log = reopen(segment_bytes=380)
    model = filled(log, MIXED, MIXED, MIXED)
    old = log.recovery_point()
    point = RecoveryPoint(**{name: getattr(old, name) for name in RecoveryPoint.__struct_fields__[:11]})
    for path in folder.glob("*.lanes"):
        path.unlink()
    again = reopen(point, segment_bytes=380)
    assert again.missing is None
    check_all_lanes(again, model)


def test_the_file_of_an_active_segment_that_was_damaged_meanwhile_is_rebuilt(folder: Path, clock: Ticking) -> None:
    log = open_log(OpenFiles(PowerLossDisk(), 30, max_lane_bytes=0), HOME, LogOptions(), clock)
    model = filled(log, MIXED)
    disk = log.open_files.disk
    assert isinstance(disk, PowerLossDisk)
    disk.damage(lanes_file(HOME), lambda content: b"\xff" + content[1:])
    check_all_lanes(log, model)
    model |= filled(log, MIXED)
    check_all_lanes(log, model)


@pytest.mark.parametrize(("batch", "changes"), [([2, 0, 2], 3), ([1, 1], 0), ([HIDDEN], 1)])
def test_a_disk_that_fills_up_leaves_the_lanes_as_before(batch: list[int], changes: int) -> None:
    disk = PowerLossDisk()
    log = open_log(OpenFiles(disk, 30), HOME, LogOptions(), Ticking())
    model = filled(log, [2, 1])
    before = disk.content(lanes_file(HOME))
    needed = len(lane_batch(batch).frames) + 4 * len(batch) + 5 * changes
    for room in range(needed):
        disk.quota = disk.used_bytes() + room
        with pytest.raises(DiskFull):
            log.append(lane_batch(batch))
        assert disk.content(lanes_file(HOME)) == before
    check_all_lanes(log, model)
    disk.quota = disk.used_bytes() + needed
    model |= filled(log, batch)
    check_all_lanes(log, model)


def test_an_index_that_cannot_be_rebuilt_on_a_full_disk_is_right_in_memory() -> None:
    disk = PowerLossDisk()
    log = open_log(OpenFiles(disk, 30), HOME, LogOptions(segment_bytes=380), Ticking())
    model = filled(log, MIXED, MIXED, MIXED)
    point = log.recovery_point()
    disk.damage(lanes_file(HOME), lambda _: b"")
    again = open_log(OpenFiles(disk, 30, max_lane_bytes=0), HOME, LogOptions(segment_bytes=380), Ticking(), point)
    disk.quota = disk.used_bytes()
    check_all_lanes(again, model)
    disk.quota = None
    check_all_lanes(again, model)
    assert disk.content(lanes_file(HOME))


def test_few_bytes_in_memory_serve_many_segments(folder: Path, clock: Ticking) -> None:
    files = OpenFiles(PowerLossDisk(), 30, max_lane_bytes=2_000)
    log = open_log(files, HOME, LogOptions(segment_bytes=380), clock)
    model: dict[int, int] = {}
    rng = Random(3)
    for _ in range(12):
        model |= filled(log, rng.choices([0, 1, 2, 2, 2, HIDDEN], k=10))
        offset = rng.randrange(log.end_offset)
        check_lanes(log, model, offset, log.end_offset)
        assert 0 < files.lane_bytes <= 2_000
    check_all_lanes(log, model)
    for segment in log.segments:
        segment.close()
    assert files.lane_bytes == 0


def test_sparse_messages_are_found_without_reading_what_lies_between(reopen: OpenLog) -> None:
    log = reopen(segment_bytes=64 << 20)
    for _ in range(3):
        log.append(lane_batch([0, 2, 2, 0]))
        log.append(lane_batch([2] * 400, size=500))
    near = lanes.locate(log, CRITICAL, 0, 1 << 20, 100, log.end_offset)
    assert near is not None
    assert near.slice.size < 1_000
    assert near.load().columns()["offset"].tolist() == [0, 3]
    assert near.next_offset == 4
    behind = lanes.locate(log, CRITICAL, 4, 1 << 20, 100, log.end_offset)
    assert behind is not None
    assert behind.load().columns()["offset"].tolist() == [404, 407]


def test_a_read_takes_only_so_much_along(reopen: OpenLog) -> None:
    log = reopen(segment_bytes=64 << 20)
    for _ in range(60):
        log.append(lane_batch([0]))
        log.append(lane_batch([2] * 20, size=1_500))
    found = lanes.locate(log, CRITICAL, 0, 1 << 20, 100, log.end_offset)
    assert found is not None
    assert 30 < len(found) < 40
    assert found.slice.size < 1_200 << 10


def test_offsets_below_the_start_do_not_count(reopen: OpenLog) -> None:
    log = reopen(segment_bytes=380)
    model = filled(log, MIXED, MIXED)
    log.start_offset = 4
    for offset in range(8):
        check_lanes(log, {each: lane for each, lane in model.items() if each >= 4}, offset, 20)


@pytest.mark.parametrize("seed", range(60))
def test_lanes_are_right_after_a_power_loss(seed: int) -> None:
    """What the frames say is what the index says, whatever became of its file."""
    rng = Random(seed)
    disk = PowerLossDisk()
    clock = Ticking()
    point: RecoveryPoint | None = None
    for _ in range(3):
        disk.fail_at = disk.calls + rng.randrange(5, 200)
        try:
            log = open_log(OpenFiles(disk, 30, rng.choice([0, 1 << 20])), HOME, LogOptions(380, 100), clock, point)
            while True:
                log.append(lane_batch(rng.choices([2, 2, 0, HIDDEN], k=rng.randint(1, 6))))
                what = rng.random()
                if what < 0.1:
                    lanes.count(log, 0, rng.randrange(log.end_offset), log.end_offset)
                elif what < 0.2:
                    point = None
                    truncate_to(log, rng.randrange(log.end_offset), lambda: None)
                elif what < 0.4:
                    taken = log.recovery_point()
                    disk.sync_filesystem(HOME)
                    point = taken
        except PowerLoss:
            disk = disk.crash(rng)
    log = open_log(OpenFiles(disk, 30), HOME, LogOptions(380, 100), clock, point)
    model: dict[int, int] = {}
    while (run := read_run(log, max(model, default=log.start_offset - 1) + 1, 1 << 20)) is not None:
        for header in run.columns():
            model[int(header["offset"])] = HIDDEN if header["flags"] else int(header["priority"])
    check_all_lanes(log, model)
