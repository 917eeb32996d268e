from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from doubles.messages import Ticking
from doubles.power_loss import PowerLossDisk

from goqueue.broker.runtime.journal import Journal
from goqueue.model.errors import CorruptData, InvalidRequest, StorageFailed
from goqueue.storage.files.atomic import write_atomically
from goqueue.storage.log.group_commit import GroupCommit
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log

ROOT = Path("/data")
FOLDER = ROOT / "logs" / "__sums" / "0"
SNAPSHOT = ROOT / "snapshots" / "__sums"


class Added(msgspec.Struct, frozen=True, tag="added"):
    amount: int


class Total(msgspec.Struct):
    total: int = 0
    events: int = 0


class Sums:
    """The smallest state machine, all in one part."""

    def __init__(self) -> None:
        self.state = Total()

    def decide_add(self, amount: int) -> list[Added]:
        if amount < 0:
            raise InvalidRequest("only more")
        return [Added(amount)] if amount else []

    def apply(self, event: Added) -> None:
        self.state.total += event.amount
        self.state.events += 1

    def parts(self) -> list[str]:
        return ["sum"]

    def part_of(self, event: Added) -> str:
        return "sum"

    def dump(self, part: str) -> bytes:
        return msgspec.json.encode(self.state)

    def restore(self, part: str, payload: bytes) -> None:
        self.state = msgspec.json.decode(payload, type=Total)


@dataclass
class Bench:
    """A journal on a disk in memory, which can be opened again."""

    disk: PowerLossDisk
    commits: GroupCommit
    log: Log
    journal: Journal[Sums]

    async def add(self, *amounts: int) -> None:
        for amount in amounts:
            await self.journal.submit(lambda sums, amount=amount: sums.decide_add(amount))

    @property
    def total(self) -> int:
        return self.journal.machine.state.total


def opened(disk: PowerLossDisk, snapshot_every: int = 3, start: int = 0, vouched_end: int = 0) -> Bench:
    for folder in (FOLDER, SNAPSHOT.parent):
        disk.make_dirs(folder)
    log = open_log(OpenFiles(disk, 100), FOLDER, LogOptions(), Ticking())
    log.start_offset = max(log.start_offset, start)
    commits = GroupCommit(disk, ROOT)
    journal = Journal(log, commits, SNAPSHOT, Sums, Added, snapshot_every, vouched_end)
    journal.load()
    return Bench(disk, commits, log, journal)


def with_bench(work: Callable[[Bench], Awaitable[None]], disk: PowerLossDisk | None = None) -> PowerLossDisk:
    async def run() -> PowerLossDisk:
        bench = opened(disk or PowerLossDisk())
        try:
            await work(bench)
        finally:
            await bench.commits.close()
        return bench.disk

    return asyncio.run(run())


def test_what_was_submitted_is_there_after_a_restart() -> None:
    async def write(bench: Bench) -> None:
        await bench.add(1, 2, 3)
        assert bench.total == 6

    async def look(bench: Bench) -> None:
        assert bench.total == 6
        assert bench.journal.machine.state.events == 3

    with_bench(look, with_bench(write))


def test_an_error_or_no_event_changes_nothing() -> None:
    async def work(bench: Bench) -> None:
        await bench.add(0)
        with pytest.raises(InvalidRequest):
            await bench.add(-1)
        assert (bench.log.end_offset, bench.total) == (0, 0)

    with_bench(work)


def test_events_are_applied_before_they_are_durable_and_answered_after() -> None:
    async def work(bench: Bench) -> None:
        submitted = asyncio.create_task(bench.add(5))
        await asyncio.sleep(0)
        assert bench.total == 5
        assert not submitted.done()
        await submitted
        assert bench.log.durable_offset == 1

    with_bench(work)


def test_a_refusal_waits_until_what_it_tells_of_is_durable() -> None:
    async def work(bench: Bench) -> None:
        first = asyncio.create_task(bench.add(5))
        refused = asyncio.create_task(bench.add(-1))
        await asyncio.sleep(0)
        assert not refused.done()
        await first
        with pytest.raises(InvalidRequest):
            await refused
        assert bench.log.durable_offset == 1

    with_bench(work)


def test_a_failed_fsync_takes_the_state_back_and_stops_the_journal() -> None:
    async def work(bench: Bench) -> None:
        await bench.add(1)
        bench.disk.sync_fault = lambda site, count: True
        together = await asyncio.gather(bench.add(10), bench.add(20), bench.add(-1), return_exceptions=True)
        assert [type(each) for each in together] == [StorageFailed] * 3
        assert bench.total == 1
        bench.disk.sync_fault = lambda site, count: False
        with pytest.raises(StorageFailed):
            await bench.add(100)
        assert bench.total == 1

    with_bench(work)


def test_a_snapshot_is_due_after_so_many_events() -> None:
    async def work(bench: Bench) -> None:
        await bench.add(1, 1)
        assert not bench.journal.snapshot_due
        await bench.add(1)
        assert bench.journal.snapshot_due
        await bench.journal.snapshot()
        assert not bench.journal.snapshot_due

    with_bench(work)


def test_a_snapshot_replaces_the_events_below_it() -> None:
    async def write(bench: Bench) -> None:
        await bench.add(1, 2, 3)
        await bench.journal.snapshot()
        assert bench.log.start_offset == 3
        await bench.add(4)

    disk = with_bench(write)

    async def look() -> None:
        bench = opened(disk, start=3)
        assert bench.total == 10
        assert bench.journal.machine.state.events == 4
        await bench.commits.close()

    asyncio.run(look())


def test_rule_2_the_start_moves_only_once_the_snapshot_is_durable() -> None:
    async def work(bench: Bench) -> None:
        await bench.add(1, 2, 3)
        bench.disk.sync_fault = lambda site, count: True
        with pytest.raises(OSError, match="Input/output"):
            await bench.journal.snapshot()
        assert bench.log.start_offset == 0

    with_bench(work)


def test_nothing_that_is_not_durable_gets_into_a_snapshot() -> None:
    async def work(bench: Bench) -> None:
        await bench.add(1)
        bench.disk.sync_fault = lambda site, count: "commit" in site
        submitted = asyncio.create_task(bench.add(5))
        await asyncio.sleep(0)
        with pytest.raises(StorageFailed):
            await bench.journal.snapshot()
        assert not bench.disk.exists(SNAPSHOT)
        with pytest.raises(StorageFailed):
            await submitted
        assert bench.total == 1

    with_bench(work)


def test_a_failed_fsync_reads_the_journal_again_once_however_many_wait() -> None:
    async def work(bench: Bench) -> None:
        await bench.add(1)
        bench.disk.sync_fault = lambda site, count: True
        waiting = [asyncio.create_task(bench.add(number)) for number in range(1, 50)]
        await asyncio.gather(*waiting, return_exceptions=True)
        machine = bench.journal.machine
        with pytest.raises(StorageFailed):
            await bench.add(1)
        assert bench.journal.machine is machine
        assert bench.total == 1

    with_bench(work)


def test_large_events_make_a_snapshot_due_before_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goqueue.broker.runtime.journal.SNAPSHOT_EVERY_BYTES", 100)

    async def work(bench: Bench) -> None:
        await bench.add(1)
        assert not bench.journal.snapshot_due
        await bench.add(10**30)
        assert bench.journal.snapshot_due
        await bench.journal.snapshot()
        assert not bench.journal.snapshot_due

    with_bench(work)


def test_rule_4_a_snapshot_of_the_first_format_is_read() -> None:
    async def write(bench: Bench) -> None:
        await bench.add(1, 2, 3)
        old = msgspec.json.encode({"offset": 2, "state": {"total": 30, "events": 2}})
        write_atomically(bench.disk, SNAPSHOT, old)

    async def look(bench: Bench) -> None:
        assert bench.total == 33

    with_bench(look, with_bench(write))


def test_a_damaged_snapshot_is_made_up_for_by_the_whole_journal() -> None:
    async def write(bench: Bench) -> None:
        await bench.add(1, 2, 3)
        await bench.journal.snapshot()

    disk = with_bench(write)
    disk.damage(SNAPSHOT, lambda content: content[:-1] + bytes([content[-1] ^ 1]))

    async def look(bench: Bench) -> None:
        assert bench.total == 6

    with_bench(look, disk)


@pytest.mark.parametrize("ruin", ["damage", "remove"])
def test_without_its_snapshot_a_trimmed_journal_is_corrupt(ruin: str) -> None:
    async def write(bench: Bench) -> None:
        await bench.add(1, 2, 3)
        await bench.journal.snapshot()

    disk = with_bench(write)
    if ruin == "damage":
        disk.damage(SNAPSHOT, lambda content: content[: len(content) // 2])
    else:
        disk.remove(SNAPSHOT)
    with pytest.raises(CorruptData):
        opened(disk, start=3)


def test_a_snapshot_ahead_of_its_journal_is_corrupt() -> None:
    async def write(bench: Bench) -> None:
        await bench.add(1, 2, 3)
        await bench.journal.snapshot()

    disk = with_bench(write)
    for name in list(disk.list_dir(FOLDER)):
        disk.remove(FOLDER / name)
    with pytest.raises(CorruptData, match="ahead"):
        opened(disk)


def test_many_commands_at_once_are_decided_one_after_the_other() -> None:
    async def work(bench: Bench) -> None:
        seen: list[int] = []

        def decide(sums: Sums) -> list[Added]:
            seen.append(sums.state.total)
            return [Added(1)]

        await asyncio.gather(*(bench.journal.submit(decide) for _ in range(50)))
        assert seen == list(range(50))
        assert bench.commits.rounds < 50

    with_bench(work)


def test_the_events_of_one_decision_are_all_there_after_a_crash_or_none() -> None:
    """They are one record, so no torn write can come between them."""

    async def work(bench: Bench) -> None:
        await bench.journal.submit(lambda sums: [*sums.decide_add(1), *sums.decide_add(2), *sums.decide_add(3)])
        assert bench.total == 6
        assert bench.log.end_offset == 1

    disk = with_bench(work)

    async def read(bench: Bench) -> None:
        assert bench.total == 6

    with_bench(read, disk)


def damage_record(disk: PowerLossDisk, value: bytes, *, is_torn: bool = False) -> None:
    """Turn one byte over in the record that holds ``value``; or let it lack its beginning, as after a power loss."""

    def change(content: bytes) -> bytes:
        at = content.index(value)
        start = content.rindex(b"GQ", 0, at)
        if is_torn:
            return content[:start] + bytes(at - start) + content[at:]
        return content[:at] + b"#" + content[at + 1 :]

    for name in disk.list_dir(FOLDER):
        if name.endswith(".log") and value in disk.content(FOLDER / name):
            disk.damage(FOLDER / name, change)
            return
    raise AssertionError("there is no such record")


def test_events_that_a_power_loss_tore_and_all_behind_them_are_cut_off() -> None:
    """None of them was durable, so nobody was told of any; what is written later must not look like damage."""

    async def write(bench: Bench) -> None:
        await bench.add(1)
        bench.journal.propose([Added(20)])
        bench.journal.propose([Added(300)])

    disk = with_bench(write)
    damage_record(disk, b"20", is_torn=True)

    async def go_on(bench: Bench) -> None:
        assert (bench.total, bench.log.end_offset) == (1, 1)
        await bench.add(5)

    async def look(bench: Bench) -> None:
        assert bench.total == 6

    with_bench(look, with_bench(go_on, disk))


def test_events_that_were_durable_and_are_damaged_are_not_made_up_for() -> None:
    async def write(bench: Bench) -> None:
        await bench.add(1, 20, 300)

    disk = with_bench(write)
    damage_record(disk, b"20")
    with pytest.raises(CorruptData, match="lost events near offset 1"):
        opened(disk)


def test_what_a_recovery_point_vouches_for_is_not_cut_off() -> None:
    async def write(bench: Bench) -> None:
        bench.journal.propose([Added(20)])
        bench.journal.propose([Added(300)])

    disk = with_bench(write)
    damage_record(disk, b"20")
    with pytest.raises(CorruptData, match="lost events near offset 0"):
        opened(disk, vouched_end=2)


def test_events_missing_at_the_end_of_a_segment_are_noticed() -> None:
    async def write(bench: Bench) -> None:
        await bench.add(1, 20)
        bench.log.roll()
        await bench.add(300, 4_000)

    disk = with_bench(write)
    damage_record(disk, b"20")
    with pytest.raises(CorruptData, match="lost events near offset 1"):
        opened(disk)
