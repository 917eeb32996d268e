"""The last record of a journal: a torn write is cut off, damage to what somebody was told of is not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import msgspec
import pytest
from doubles.messages import Ticking
from doubles.power_loss import PowerLossDisk

from goqueue.broker.runtime.journal import Journal
from goqueue.model.errors import CorruptData
from goqueue.storage.files.atomic import make_folder
from goqueue.storage.log.group_commit import GroupCommit
from goqueue.storage.log.log import LogOptions
from goqueue.storage.log.lost import FILE_NAME
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log

ROOT = Path("/data")
FOLDER = ROOT / "logs" / "__names" / "0"
SNAPSHOT = ROOT / "snapshots" / "__names"
LOG = FOLDER / f"{0:020d}.log"
MASKS = (0x01, 0x10, 0x80, 0xFF)


class Named(msgspec.Struct, frozen=True, tag="named"):
    name: str


class Names:
    """Every name that was given, in order."""

    def __init__(self) -> None:
        self.state: list[str] = []

    def apply(self, event: Named) -> None:
        self.state.append(event.name)

    def parts(self) -> list[str]:
        return ["names"]

    def part_of(self, event: Named) -> str:
        return "names"

    def dump(self, part: str) -> bytes:
        return msgspec.json.encode(self.state)

    def restore(self, part: str, payload: bytes) -> None:
        self.state = msgspec.json.decode(payload, type=list[str])


def opened(disk: PowerLossDisk) -> tuple[Journal[Names], GroupCommit]:
    """As a start does, without a recovery point: the last one was before all of this."""
    for folder in (FOLDER, SNAPSHOT.parent):
        make_folder(disk, folder)
    log = open_log(OpenFiles(disk, 100), FOLDER, LogOptions(), Ticking())
    commits = GroupCommit(disk, ROOT)
    journal = Journal(log, commits, SNAPSHOT, Names, Named)
    journal.load()
    return journal, commits


def names_on(disk: PowerLossDisk) -> list[str]:
    return opened(disk)[0].machine.state


def acknowledged(*rounds: list[str]) -> PowerLossDisk:
    """Each list is decided at once, so that one round of fsync serves all of it; then the process is killed."""
    disk = PowerLossDisk()

    async def run() -> None:
        journal, commits = opened(disk)
        for names in rounds:
            await asyncio.gather(*(journal.submit(lambda _, name=name: [Named(name)]) for name in names))
        await commits.close()

    asyncio.run(run())
    return disk


def flipped(disk: PowerLossDisk, at: int, mask: int) -> PowerLossDisk:
    """A copy of the disk with a change to one byte of the log."""
    copy = disk.crash(Random(0))
    copy.damage(LOG, lambda content: content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :])
    return copy


def frames_of(disk: PowerLossDisk) -> list[range]:
    content = disk.content(LOG)
    starts = [at for at in range(len(content)) if content.startswith(b"GQ\x01", at)]
    return [range(low, high) for low, high in zip(starts, [*starts[1:], len(content)], strict=True)]


@pytest.mark.parametrize("mask", MASKS)
def test_no_flip_in_the_last_record_makes_it_look_like_a_torn_write(mask: int) -> None:
    disk = acknowledged(["orders"], ["payments"])
    assert names_on(disk.crash(Random(0))) == ["orders", "payments"]
    for at in frames_of(disk)[-1]:
        hurt = flipped(disk, at, mask)
        for _ in range(2):
            # The first start sets the bytes aside; the next one must not forget what they were.
            with pytest.raises(CorruptData, match="lost events near offset 1"):
                opened(hurt)


@pytest.mark.parametrize("mask", MASKS)
def test_nor_one_in_a_record_that_shared_its_fsync_with_those_behind_it(mask: int) -> None:
    disk = acknowledged(["orders"], ["payments", "refunds", "audits"])
    _, *together = frames_of(disk)
    for number, frame in enumerate(together, 1):
        for at in frame:
            with pytest.raises(CorruptData, match=f"lost events near offset {number}"):
                opened(flipped(disk, at, mask))


def test_records_that_were_longer_than_a_sector_are_no_exception() -> None:
    disk = acknowledged(["orders"], ["x" * 2_000])
    frame = frames_of(disk)[-1]
    for at in [*range(frame.start, frame.start + 60), *range(frame.start + 60, frame.stop, 97), frame.stop - 1]:
        with pytest.raises(CorruptData):
            opened(flipped(disk, at, 0x04))


def test_damage_is_told_although_the_next_record_is_torn() -> None:
    disk = acknowledged(["orders"], ["payments"])
    frame = frames_of(disk)[-1]
    torn = disk.content(LOG)[frame.start : frame.stop - 5]
    for at in range(frame.start + 34, frame.stop):
        hurt = flipped(disk, at, 0x20)
        hurt.damage(LOG, lambda content: content + torn)
        with pytest.raises(CorruptData):
            opened(hurt)


def test_a_write_that_a_kill_has_torn_is_cut_at_whatever_byte() -> None:
    disk = acknowledged(["orders"], ["payments"])
    frame = frames_of(disk)[-1]
    for end in range(frame.start, frame.stop):
        killed = disk.crash(Random(0))
        killed.damage(LOG, lambda content, end=end: content[:end])
        assert names_on(killed) == ["orders"]
        assert not killed.exists(FOLDER / FILE_NAME)


@pytest.mark.parametrize("size", [8, 700, 3_000])
def test_one_that_a_power_loss_has_torn_is_cut_as_well(size: int) -> None:
    """Whatever part of it reached the disk; what did not reads as zeros or is not there."""
    cut = kept = 0
    for seed in range(150):
        disk = acknowledged(["orders"])

        async def write(disk: PowerLossDisk = disk) -> None:
            journal, commits = opened(disk)
            disk.sync_fault = lambda site, count: True
            for number in range(3):
                journal.propose([Named(f"{number}" * size)])
            await commits.close()

        asyncio.run(write())
        found = names_on(disk.crash(Random(seed)))
        assert found == ["orders", *(f"{number}" * size for number in range(len(found) - 1))]
        cut += len(found) < 4
        kept += len(found) > 1
    assert cut and kept
