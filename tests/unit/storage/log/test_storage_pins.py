"""Files that something pending needs stay, although the log's start has moved past them."""

from __future__ import annotations

from pathlib import Path

import pytest
from doubles.messages import OpenLog, batch_of, read_run, values_of
from doubles.pinned import Pinned

from goqueue.model.errors import OffsetOutOfRange
from goqueue.storage.log.log import Log
from goqueue.storage.log.truncation import truncate_to


@pytest.fixture
def log(reopen: OpenLog) -> Log:
    """Eight messages, each in a segment of its own; the start is 6."""
    log = reopen(segment_bytes=100)
    for number in range(8):
        log.append(batch_of([b"%d" % number * 60]))
    assert len(log.segments) == 8
    log.start_offset = 6
    return log


@pytest.fixture
def pinned(log: Log) -> Pinned:
    """Those at 1 and 4 are pending."""
    return Pinned(log, {1, 4})


def bases(log: Log) -> list[int]:
    return [segment.base for segment in log.segments]


def test_only_what_holds_something_pending_stays_below_the_start(log: Log, pinned: Pinned, folder: Path) -> None:
    assert pinned.drop_below_start(6) == 4
    assert bases(log) == [1, 4, 6, 7]
    assert sorted(int(path.stem) for path in folder.glob("*.lanes")) == [1, 4, 6, 7]
    assert pinned.drop_below_start(6) == 0
    pinned.pending = {4}
    assert pinned.drop_below_start(6) == 1
    assert bases(log) == [4, 6, 7]
    assert log.size_bytes == sum(path.stat().st_size for path in folder.glob("*.log"))


def test_what_is_kept_can_be_read_and_is_not_served(log: Log, pinned: Pinned) -> None:
    pinned.drop_below_start(6)
    kept = log.read_kept(4, 1 << 20)
    assert kept is not None
    assert bytes(kept.load().frames).endswith(b"4" * 60)
    following = log.read_kept(2, 1 << 20)
    assert following is not None
    assert following.load().columns()["offset"].tolist() == [4]
    assert [log.has(offset) for offset in range(9)] == [False, True, False, False, True, False, True, True, False]
    with pytest.raises(OffsetOutOfRange):
        read_run(log, 4, 1 << 20)
    assert values_of(log) == [b"6" * 60, b"7" * 60]


def test_a_start_keeps_what_was_kept_and_finds_nothing_missing(log: Log, pinned: Pinned, reopen: OpenLog) -> None:
    pinned.drop_below_start(6)
    again = reopen(pinned.recovery_point(), segment_bytes=100)
    assert bases(again) == [1, 4, 6, 7]
    assert again.missing is None
    assert again.start_offset == 6
    assert Pinned(again, {4}).drop_below_start(6) == 1
    assert bases(again) == [4, 6, 7]


def test_a_start_removes_what_nothing_pending_can_need(log: Log, pinned: Pinned, reopen: OpenLog) -> None:
    assert bases(reopen(pinned.recovery_point(), segment_bytes=100)) == [1, 2, 3, 4, 5, 6, 7]
    pinned.pending = {4}
    assert bases(reopen(pinned.recovery_point(), segment_bytes=100)) == [4, 5, 6, 7]
    pinned.pending = set()
    assert bases(reopen(pinned.recovery_point(), segment_bytes=100)) == [6, 7]


@pytest.mark.parametrize("lost", [6, 7])
def test_a_segment_that_is_missing_at_the_start_or_above_is_noticed(
    log: Log, pinned: Pinned, reopen: OpenLog, folder: Path, lost: int
) -> None:
    log.append(batch_of([b"8" * 60]))
    pinned.drop_below_start(6)
    (folder / f"{lost:020d}.log").unlink()
    again = reopen(pinned.recovery_point(), segment_bytes=100)
    assert again.missing is not None
    assert "1 of 3 segments" in again.missing


def test_what_is_kept_below_the_start_does_not_expire_anything(log: Log, pinned: Pinned, clock: object) -> None:
    pinned.drop_below_start(6)
    one = log.active.size
    assert log.expired(None, 2 * one) == 6
    assert log.expired(None, one) == 7
    clock.now_ns += 10**12  # type: ignore[attr-defined]
    assert log.expired(1_000, None) == 8
    assert bases(log) == [1, 4, 6, 7, 8]


def test_a_cut_leaves_what_is_kept(log: Log, pinned: Pinned, reopen: OpenLog) -> None:
    pinned.drop_below_start(6)
    truncate_to(log, 0, lambda: None)
    assert (log.start_offset, log.end_offset) == (6, 6)
    assert bases(log) == [1, 4, 6]
    assert log.has(4)
    log.append(batch_of([b"new"]))
    again = reopen(pinned.recovery_point(), segment_bytes=100)
    assert values_of(again) == [b"new"]
    assert again.has(1)
