"""What a log has lost, and that a person has accepted it, survive a power loss at any call."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from doubles.messages import Ticking, batch_of, values_of
from doubles.power_loss import PowerLoss, PowerLossDisk

from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log

FOLDER = Path("/srv/goqueue/logs/t~1/0")
VALUES = [b"value %d" % number for number in range(6)]
OUTCOMES = 20


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def opened(disk: PowerLossDisk) -> Log:
    return open_log(OpenFiles(disk, 12), FOLDER, LogOptions(), Ticking())


def damaged(places: tuple[int, ...]) -> PowerLossDisk:
    """Six durable messages, of which some have a flipped bit."""
    disk = PowerLossDisk()
    log = opened(disk)
    for value in VALUES:
        log.append(batch_of([value]))
    for segment in log.segments:
        for file in segment.files():
            file.sync()
    disk.sync_dir(FOLDER)
    path = log.active.log_path

    def change(content: bytes) -> bytes:
        for place in places:
            content = content.replace(VALUES[place], b"v#" + VALUES[place][2:])
        return content

    disk.damage(path, change)
    return disk


def after_each_call(disk: PowerLossDisk, work: object) -> Iterator[tuple[bool, PowerLossDisk]]:
    """What may be found after a power loss at every call of some work; and whether the work had ended."""
    began = disk.crash(Random(0))
    at = 0
    while True:
        at += 1
        tried = began.crash(Random(0))
        tried.fail_at = at
        is_done = False
        try:
            work(tried)  # type: ignore[operator]
            is_done = True
        except PowerLoss:
            pass
        for seed in range(OUTCOMES):
            yield is_done, tried.crash(Random(seed))
        if is_done:
            return


def ranges(log: Log) -> list[tuple[int, int]]:
    return [(each.first, each.end) for each in log.lost.open]


@pytest.mark.parametrize("places", [(1,), (5,), (1, 3), (2, 3, 5)])
def test_no_power_loss_while_damage_is_taken_out_makes_it_be_forgotten(places: tuple[int, ...]) -> None:
    left = [value for place, value in enumerate(VALUES) if place not in places]
    lost = {offset for place in places for offset in (place,)}
    for _, disk in after_each_call(damaged(places), opened):
        for _ in range(2):
            log = opened(disk)
            assert values_of(log) == left
            assert {offset for first, end in ranges(log) for offset in range(first, end)} == lost
            assert log.end_offset == len(VALUES)


def test_what_was_acknowledged_stays_so_and_nothing_else_is() -> None:
    disk = damaged((1, 5))
    opened(disk)

    def acknowledge(tried: PowerLossDisk) -> None:
        log = opened(tried)
        ranges = log.lost.acknowledged(7)
        log.lost.save(ranges)
        log.lost.saved(ranges)

    outcomes = set()
    for is_done, found in after_each_call(disk, acknowledge):
        log = opened(found)
        told = [(each.first, each.end, each.acknowledged_ns) for each in log.lost.ranges]
        assert told in ([(1, 2, 0), (5, 6, 0)], [(1, 2, 7), (5, 6, 7)])
        assert not is_done or told[0][2] == 7
        assert log.end_offset == len(VALUES)
        outcomes.add(told[0][2])
    assert outcomes == {0, 7}
