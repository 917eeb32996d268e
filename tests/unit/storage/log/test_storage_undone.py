"""What was taken back stays so after a power loss, whatever of it the disk had kept by then."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from doubles.messages import Ticking, batch_of, values_of
from doubles.power_loss import PowerLossDisk

from goqueue.model.errors import DiskFull, OffsetOutOfRange
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.log.compaction import compact
from goqueue.storage.log.compaction_choice import CompactionRules
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log
from goqueue.storage.log.swap import MANIFEST
from goqueue.storage.log.truncation import truncate_to

HOME = Path("/data/log")
CRASHES = 40


@pytest.fixture
def disk() -> PowerLossDisk:
    return PowerLossDisk()


def opened(disk: PowerLossDisk, point: RecoveryPoint | None = None) -> Log:
    return open_log(OpenFiles(disk, 30), HOME, LogOptions(1 << 20), Ticking(), point)


def sync(disk: PowerLossDisk) -> None:
    disk.sync_filesystem(HOME)


def test_messages_that_a_cut_took_are_not_back_behind_those_that_came_later(disk: PowerLossDisk) -> None:
    log = opened(disk)
    log.append(batch_of([b"kept", b"cut-1", b"cut-2"]))
    sync(disk)
    assert truncate_to(log, 1, lambda: None) == 1
    log.append(batch_of([b"later"]))
    for seed in range(CRASHES):
        left = values_of(opened(disk.crash(Random(seed))))
        assert left in ([b"kept"], [b"kept", b"later"]), f"seed {seed}"


def test_an_fsync_round_that_began_before_a_cut_makes_nothing_durable_that_came_after_it(disk: PowerLossDisk) -> None:
    log = opened(disk)
    log.append(batch_of([b"kept", b"cut-1", b"cut-2"]))
    round_before = log.unsynced()
    truncate_to(log, 1, lambda: None)
    log.append(batch_of([b"later"]))
    log.synced(round_before)
    assert log.durable_offset <= 1
    log.synced(log.unsynced())
    assert log.durable_offset == 2


def test_a_cut_is_on_the_disk_when_it_is_done(disk: PowerLossDisk) -> None:
    log = opened(disk)
    log.append(batch_of([b"kept"]))
    log.roll()
    log.append(batch_of([b"cut"]))
    sync(disk)
    assert truncate_to(log, 1, lambda: None) == 1
    for seed in range(CRASHES):
        assert values_of(opened(disk.crash(Random(seed)))) == [b"kept"], f"seed {seed}"


def test_the_recovery_point_is_forgotten_before_anything_is_cut(disk: PowerLossDisk) -> None:
    """A crash in between finds a whole log without a point; the other way about, a point that vouches for what is not
    there."""
    log = opened(disk)
    log.append(batch_of([b"first", b"second"]))
    log.roll()
    log.append(batch_of([b"third"]))
    sync(disk)
    point: RecoveryPoint | None = log.recovery_point()
    seen: list[list[bytes]] = []

    def forget() -> None:
        nonlocal point
        point = None
        seen.append(values_of(opened(disk.crash(Random(0)))))

    assert truncate_to(log, 3, forget) == 3
    assert point is not None, "nothing is cut"
    assert truncate_to(log, 1, forget) == 1
    assert seen == [[b"first", b"second", b"third"]]
    log.append(batch_of([b"anew"]))
    sync(disk)
    again = opened(disk.crash(Random(0)), point)
    assert (values_of(again), again.missing) == ([b"first", b"anew"], None)


def test_what_a_full_disk_refused_is_not_back_behind_what_came_later(disk: PowerLossDisk) -> None:
    log = opened(disk)
    log.append(batch_of([b"first"]))
    sync(disk)
    one = log.size_bytes
    disk.quota = disk.used_bytes() + 2 * one + one // 2
    with suppress(DiskFull):
        log.append(batch_of([b"no-1!", b"no-2!", b"no-3!"]))
    disk.quota = None
    log.append(batch_of([b"later"]))
    for seed in range(CRASHES):
        left = values_of(opened(disk.crash(Random(seed))))
        assert left in ([b"first"], [b"first", b"later"]), f"seed {seed}"


def test_a_manifest_that_was_obeyed_is_not_back_after_a_power_loss(disk: PowerLossDisk) -> None:
    """It would be obeyed again, with what the next compaction has half made."""
    log = opened(disk)
    for number in range(4):
        log.append(batch_of([b"%d" % number], keys=[b"k"]))
        log.roll()
    sync(disk)
    for step in compact(log, CompactionRules(log.end_offset, 10**9, 1_000)):
        if step is not None:
            step()
    assert values_of(log) == [b"3"]
    for seed in range(CRASHES):
        assert not [name for name in disk.crash(Random(seed)).list_dir(HOME) if name.endswith(MANIFEST)], f"seed {seed}"


def test_segments_that_compaction_joined_after_the_recovery_point_are_not_missing(disk: PowerLossDisk) -> None:
    options = LogOptions(1 << 20, compacted=True)
    log = open_log(OpenFiles(disk, 30), HOME, options, Ticking())
    for number in range(4):
        log.append(batch_of([b"%d" % number], keys=[b"k"]))
        log.roll()
    point = log.recovery_point()
    for step in compact(log, CompactionRules(log.end_offset, 10**9, 1_000)):
        if step is not None:
            step()
    again = open_log(OpenFiles(disk, 30), HOME, options, Ticking(), point)
    assert (values_of(again), again.missing) == ([b"3"], None)


def test_a_reader_keeps_what_it_has_open_and_never_meets_other_messages_in_its_place(disk: PowerLossDisk) -> None:
    log = opened(disk)
    log.append(batch_of([b"kept", b"cut-1", b"cut-2"]))
    log.roll()
    log.append(batch_of([b"in a file that goes"]))
    inside, behind, before = log.locate(1, 1_000), log.locate(3, 1_000), log.locate(0, 1, 1)
    assert inside is not None
    assert behind is not None
    assert before is not None
    truncate_to(log, 1, lambda: None)
    log.append(batch_of([b"later-1", b"later-2"]))
    with pytest.raises(OffsetOutOfRange, match="cut off"):
        inside.load()
    assert bytes(behind.load().frames).endswith(b"in a file that goes")
    assert bytes(before.load().frames).endswith(b"kept")
