from __future__ import annotations

from pathlib import Path

import pytest
from behaviour.clock import ManualClock
from behaviour.faulty_files import FaultyFiles

from goqueue.broker.runtime.disk_guard import DiskGuard
from goqueue.model.errors import DiskFull


class CountingFiles(FaultyFiles):
    looks = 0

    def free_bytes(self, path: Path) -> int:
        self.looks += 1
        return super().free_bytes(path)


@pytest.fixture
def disk() -> CountingFiles:
    files = CountingFiles()
    files.free = 1_000
    return files


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def guard(disk: CountingFiles, clock: ManualClock) -> DiskGuard:
    return DiskGuard(disk, Path("/"), 1_000, clock)


def test_as_much_room_as_the_watermark_is_enough(guard: DiskGuard) -> None:
    guard.check()


def test_a_byte_less_is_refused_with_a_time_to_come_back(guard: DiskGuard, disk: CountingFiles) -> None:
    disk.free = 999
    with pytest.raises(DiskFull, match="min_free_bytes") as refusal:
        guard.check()
    assert refusal.value.retriable
    assert refusal.value.retry_after_s == 1


def test_the_disk_is_looked_at_no_more_than_every_100_ms(
    guard: DiskGuard, disk: CountingFiles, clock: ManualClock
) -> None:
    for _ in range(50):
        guard.check()
    assert disk.looks == 1
    clock.advance_ms(99)
    guard.check()
    assert disk.looks == 1
    clock.advance_ms(1)
    guard.check()
    assert disk.looks == 2


def test_it_recovers_by_itself(guard: DiskGuard, disk: CountingFiles, clock: ManualClock) -> None:
    disk.free = 0
    with pytest.raises(DiskFull):
        guard.check()
    disk.free = 5_000
    clock.advance_ms(100)
    guard.check()
    assert not guard.full
    assert guard.free_bytes == 5_000


def test_whoever_only_wants_to_know_sees_the_recovery_too(
    guard: DiskGuard, disk: CountingFiles, clock: ManualClock
) -> None:
    disk.free = 0
    assert guard.is_full()
    disk.free = 5_000
    clock.advance_ms(100)
    assert not guard.is_full()


def test_looking_tells_how_much_is_free(guard: DiskGuard) -> None:
    assert guard.look() == 1_000


def test_a_watermark_of_nothing_never_refuses(disk: CountingFiles, clock: ManualClock) -> None:
    disk.free = 0
    DiskGuard(disk, Path("/"), 0, clock).check()
