"""Looking up instants, and retention: the first by producers' timestamps, the second by when the broker appended."""

from __future__ import annotations

from random import Random

import pytest
from doubles.messages import START_NS, OpenLog, Ticking, batch_of, read_all
from doubles.pinned import Pinned

from goqueue.storage.log.log import Log

SECOND = 1_000_000_000


def first_at(log: Log, timestamp: int) -> int:
    """The answer by looking at every message."""
    later = [message.offset for message in read_all(log) if message.timestamp_ns >= timestamp]
    return later[0] if later else log.end_offset


def shuffled(reopen: OpenLog, seed: int) -> tuple[Log, list[int]]:
    rng = Random(seed)
    log = reopen()
    instants = [START_NS + rng.randrange(100) for _ in range(40)]
    for instant in instants:
        log.append(batch_of([b"v" * rng.randrange(60)], timestamps=[instant]))
    return log, [START_NS - 1, *sorted(set(instants)), START_NS + 100]


@pytest.mark.parametrize("seed", range(5))
def test_an_instant_is_found_however_disordered_the_timestamps_are(reopen: OpenLog, seed: int) -> None:
    log, instants = shuffled(reopen, seed)
    assert [log.offset_at(instant) for instant in instants] == [first_at(log, instant) for instant in instants]


@pytest.mark.parametrize("seed", range(5))
def test_an_instant_is_found_after_a_start_without_a_recovery_point(reopen: OpenLog, seed: int) -> None:
    _, instants = shuffled(reopen, seed)
    log = reopen()
    assert [log.offset_at(instant) for instant in instants] == [first_at(log, instant) for instant in instants]


@pytest.mark.parametrize("seed", range(5))
def test_an_instant_is_found_after_clean_starts_and_a_new_segment(reopen: OpenLog, seed: int) -> None:
    log, instants = shuffled(reopen, seed)
    log = reopen(log.recovery_point())
    log.roll()
    log.append(batch_of([b"x"], timestamps=[START_NS]))
    log = reopen(log.recovery_point())
    assert [log.offset_at(instant) for instant in instants] == [first_at(log, instant) for instant in instants]


@pytest.mark.parametrize("seed", range(5))
def test_an_instant_is_never_found_below_the_start(reopen: OpenLog, seed: int) -> None:
    log, instants = shuffled(reopen, seed)
    for start in range(0, 40, 3):
        log.start_offset = start
        assert [log.offset_at(instant) for instant in instants] == [first_at(log, instant) for instant in instants]


def test_retention_goes_by_the_time_of_the_append_and_not_by_timestamps(reopen: OpenLog, clock: Ticking) -> None:
    log = reopen()
    log.append(batch_of([b"new"], timestamps=[1]))
    log.roll()
    log.append(batch_of([b"x"]))
    assert log.expired(1_000, None) == 0
    clock.now_ns += 2 * SECOND
    log.append(batch_of([b"from the future"], timestamps=[clock.now_ns + 1_000 * SECOND]))
    log.roll()
    log.append(batch_of([b"y"]))
    assert log.expired(1_000, None) == 1


def test_retention_by_time_holds_across_a_clean_start(reopen: OpenLog, clock: Ticking) -> None:
    log = reopen()
    log.append(batch_of([b"old"]))
    log.roll()
    log.append(batch_of([b"x"]))
    log = reopen(log.recovery_point())
    clock.now_ns += 2 * SECOND
    log.append(batch_of([b"y"]))
    assert log.expired(1_000, None) == 1


def test_an_idle_active_segment_expires_as_well(reopen: OpenLog, clock: Ticking) -> None:
    log = reopen()
    log.append(batch_of([b"a", b"b"]))
    clock.now_ns += 2 * SECOND
    assert log.expired(1_000, None) == 2


def test_segments_whose_append_time_is_lost_count_as_appended_now(reopen: OpenLog, clock: Ticking) -> None:
    log = reopen()
    log.append(batch_of([b"a"]))
    log.roll()
    log.append(batch_of([b"b"]))
    clock.now_ns += 100 * SECOND
    again = reopen()
    assert again.expired(1_000, None) == 0


def test_retention_by_size_takes_the_oldest_segments(reopen: OpenLog) -> None:
    log = reopen(segment_bytes=100)
    for _ in range(6):
        log.append(batch_of([b"x" * 60]))
    size = log.segments[0].size
    assert log.expired(None, 3 * size) == 3


def test_files_below_the_start_are_removed_and_stay_removed(reopen: OpenLog) -> None:
    log = reopen(segment_bytes=100)
    for _ in range(6):
        log.append(batch_of([b"x" * 60]))
    log.start_offset = 3
    assert Pinned(log, ()).drop_below_start(log.start_offset) == 3
    again = reopen(log.recovery_point(), segment_bytes=100)
    assert (again.start_offset, again.segments[0].base) == (3, 3)
