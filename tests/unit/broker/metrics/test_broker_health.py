"""Each check fails for its own reason, and says what it is and what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from behaviour.clock import ManualClock
from behaviour.faulty_files import FaultyFiles, of_metadata, of_topic
from behaviour.host import config_for
from doubles.async_tests import until
from doubles.group_broker import GROUP, desk
from doubles.group_movers import mover_of
from doubles.loop import on_a_loop

from goqueue.broker.broker import Broker
from goqueue.broker.delays import firing as firing_module
from goqueue.broker.metrics.health import (
    HOPELESS_FSYNC_NS,
    LATE_DELAYS_NS,
    MOST_NAMED,
    SLOW_FSYNC_NS,
    STUCK_FSYNC_NS,
    Check,
)
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.errors import DiskFull, StorageFailed
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage

ONE = [NewMessage(b"v", partition=0)]
MIB = 1 << 20
PATIENCE_S = 30.0


class Patient:
    """A broker of which everything can be made to fail, and whose time the test owns."""

    def __init__(self, broker: Broker, disk: FaultyFiles, clock: ManualClock) -> None:
        self.broker, self.disk, self.clock = broker, disk, clock

    def wrong(self) -> dict[str, Check]:
        # The disk is looked at anew only after a while.
        self.clock.advance_ms(100)
        return {name: check for name, check in self.broker.health.checks().items() if check.status != "pass"}

    def only(self, name: str) -> Check:
        wrong = self.wrong()
        assert list(wrong) == [name], wrong
        return wrong[name]


@asynccontextmanager
async def patient(path: Path, **storage: object) -> AsyncIterator[Patient]:
    disk, clock = FaultyFiles(), ManualClock()
    async with Broker(config_for(path, storage=storage), files=disk, clock=clock) as broker:
        await broker.create_topic("t", {"partitions": 2})
        # However busy the machine is.
        broker.health._loop_delay.worst_ns = lambda: 0  # type: ignore[method-assign]
        try:
            yield Patient(broker, disk, clock)
        finally:
            disk.fails = disk.cannot_write = lambda path: False


def of_groups(path: Path) -> bool:
    return "__shards" in path.parts and "logs" in path.parts


@on_a_loop
async def test_nothing_is_wrong_with_a_broker_that_works(tmp_path: Path) -> None:
    async with patient(tmp_path) as it:
        await it.broker.publish("t", ONE)
        checks = it.broker.health.checks()
        assert set(checks) == {
            "storage", "journals", "disk", "fsync", "shutdown", "event_loop", "delays", "transfers",
            "transactions", "upkeep", "traces", "damage",
        }  # fmt: skip
        assert {check.status for check in checks.values()} == {"pass"}
        assert it.broker.problems() == {}


@on_a_loop
async def test_a_partition_whose_disk_failed_is_named_and_wants_a_restart(tmp_path: Path) -> None:
    async with patient(tmp_path) as it:
        it.disk.fails = of_topic("t", 0)
        assert isinstance((await it.broker.publish("t", ONE))[0], StorageFailed)
        check = it.only("storage")
        assert (check.status, check.needs_restart) == ("fail", True)
        assert "1 log takes no writes" in check.message
        assert "t/0 (fsync: Input/output error)" in check.message
        assert "restart" in check.message


@on_a_loop
async def test_no_more_partitions_are_named_than_anyone_reads(tmp_path: Path) -> None:
    async with patient(tmp_path) as it:
        topic = await it.broker.create_topic("many", {"partitions": MOST_NAMED + 5})
        for partition in topic.partitions:
            partition.log.fail("gone")
        message = it.only("storage").message
        assert "25 logs take no writes" in message
        assert (message.count("many/"), "and 5 more" in message) == (MOST_NAMED, True)


@pytest.mark.parametrize(
    ("which", "work", "stands_still", "named"),
    [
        (of_metadata, lambda broker: broker.create_topic("u"), "topics cannot be made", "__metadata/0"),
        (of_groups, lambda broker: broker.groups.configure("g", {}), "deliver and settle nothing", "__shards/"),
    ],
    ids=["metadata", "groups"],
)
@on_a_loop
async def test_a_journal_that_takes_no_writes_says_what_stands_still(
    tmp_path: Path, which: Callable[[Path], bool], work: Callable[[Broker], Any], stands_still: str, named: str
) -> None:
    async with patient(tmp_path) as it:
        it.disk.fails = which
        with pytest.raises(StorageFailed):
            await work(it.broker)
        wrong = it.wrong()
        assert set(wrong) == {"journals", "storage"}
        assert (wrong["journals"].status, wrong["journals"].needs_restart) == ("fail", True)
        assert stands_still in wrong["journals"].message
        assert named in wrong["storage"].message


# The disk


@on_a_loop
async def test_less_room_than_the_watermark_fails_and_twice_of_it_is_a_warning(tmp_path: Path) -> None:
    async with patient(tmp_path, min_free_bytes=MIB) as it:
        it.disk.free = MIB - 1
        check = it.only("disk")
        assert (check.status, check.needs_restart) == ("fail", False)
        assert "1024.0 KiB free, less than storage.min_free_bytes (1.0 MiB)" in check.message
        assert "retention" in check.message
        it.disk.free = 2 * MIB - 1
        check = it.only("disk")
        assert (check.status, it.broker.problems()) == ("warn", {})
        assert "will be refused below storage.min_free_bytes" in check.message
        it.disk.free = 2 * MIB
        assert it.wrong() == {}


@on_a_loop
async def test_without_a_watermark_a_disk_without_room_fails_all_the_same(tmp_path: Path) -> None:
    async with patient(tmp_path) as it:
        it.disk.free = 0
        assert "0 bytes free" in it.only("disk").message


@on_a_loop
async def test_a_write_that_finds_no_room_is_seen_until_it_is_a_while_ago(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        return [each.levelname for each in caplog.records if "a write finds no room on the disk" in each.getMessage()]

    async with patient(tmp_path) as it:
        it.disk.cannot_write = of_topic("t")
        for _ in range(3):
            assert isinstance((await it.broker.publish("t", ONE))[0], DiskFull)
        assert told() == ["ERROR"], "the log says it, once"
        check = it.only("disk")
        assert check.status == "fail"
        assert "finds no room" in check.message
        it.clock.advance_ms(10_000)
        assert it.wrong() == {}
        assert isinstance((await it.broker.publish("t", ONE))[0], DiskFull)
        assert told() == ["ERROR"] * 2, "and again when it was over for a while"


@on_a_loop
async def test_a_data_folder_that_cannot_be_looked_at_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with patient(tmp_path) as it:

        def refuse(path: Path) -> int:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(it.disk, "free_bytes", refuse)
        assert "Input/output error" in it.only("disk").message


# The others


@on_a_loop
async def test_an_fsync_that_does_not_return_is_reported_sooner_or_later_in_stronger_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with patient(tmp_path) as it:
        with it.disk.hanging(of_topic("t")) as begun:
            publishing = asyncio.create_task(it.broker.publish("t", ONE))
            assert await asyncio.to_thread(begun.wait, PATIENCE_S)
            began_ns = it.clock.monotonic_ns()

            def after(nanos: int) -> Check:
                it.clock.advance_ms((began_ns + nanos - it.clock.monotonic_ns()) // NANOS_PER_MS)
                return it.broker.health.checks()["fsync"]

            assert after(SLOW_FSYNC_NS - NANOS_PER_MS).status == "pass"
            slow = after(SLOW_FSYNC_NS)
            assert (slow.status, slow.took_ns) == ("warn", SLOW_FSYNC_NS)
            assert "has been running for 2 s" in slow.message
            stuck = after(STUCK_FSYNC_NS)
            assert (stuck.status, stuck.needs_restart) == ("fail", False)
            assert "everyone who publishes waits for it" in stuck.message
            hopeless = after(HOPELESS_FSYNC_NS)
            assert (hopeless.status, hopeless.needs_restart) == ("fail", True)
            assert list(it.broker.problems()) == ["fsync"]
        assert isinstance((await publishing)[0], Published)
        assert it.broker.health.checks()["fsync"] == Check(took_ns=HOPELESS_FSYNC_NS)
    [line] = [record for record in caplog.records if record.getMessage().startswith("an fsync round was slow")]
    assert line.fields["took_ms"] == 60_000  # type: ignore[attr-defined]


@on_a_loop
async def test_a_loop_that_was_late_is_a_warning(tmp_path: Path) -> None:
    async with patient(tmp_path) as it:
        it.broker.health._loop_delay.worst_ns = lambda: 1_000 * NANOS_PER_MS  # type: ignore[method-assign]
        assert it.wrong() == {}
        it.broker.health._loop_delay.worst_ns = lambda: 1_500 * NANOS_PER_MS  # type: ignore[method-assign]
        check = it.only("event_loop")
        assert check.status == "warn"
        assert "held up for 1.5 s" in check.message


@on_a_loop
async def test_delayed_messages_that_are_due_and_cannot_be_written_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firing_module, "_TRY_AGAIN_S", 1_000.0)
    async with patient(tmp_path) as it:
        await it.broker.publish("t", [NewMessage(b"v", partition=1, delay_ms=1_000)])
        it.disk.cannot_write = of_topic("t")
        it.clock.advance_ms(1_010)
        it.broker.clockwork.ring()
        firing = it.broker.delays._firing
        await until(lambda: firing._put_off)
        assert it.broker.health.checks()["delays"] == Check()
        it.clock.advance_ms(LATE_DELAYS_NS // NANOS_PER_MS)
        check = it.broker.health.checks()["delays"]
        assert check.status == "warn"
        assert "due for more than 10 s" in check.message
        assert "t/1 (the disk is full: No space left on device)" in check.message
        it.disk.cannot_write = lambda path: False
        firing._try_again()
        await until(lambda: it.broker.delays.pending == 0)
        assert it.broker.health.checks()["delays"] == Check()


@on_a_loop
async def test_a_delayed_message_that_was_cancelled_is_not_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firing_module, "_TRY_AGAIN_S", 1_000.0)
    async with patient(tmp_path) as it:
        [stored] = await it.broker.publish("t", [NewMessage(b"v", partition=1, delay_ms=1_000)])
        assert isinstance(stored, Published)
        it.disk.cannot_write = of_topic("t")
        it.clock.advance_ms(1_010)
        it.broker.clockwork.ring()
        await until(lambda: it.broker.delays._firing._put_off)
        it.disk.cannot_write = lambda path: False
        await it.broker.delays.cancel("t", 1, stored.offset)
        it.clock.advance_ms(LATE_DELAYS_NS // NANOS_PER_MS)
        assert it.broker.health.checks()["delays"] == Check()


@on_a_loop
async def test_dead_letters_that_cannot_be_moved_are_a_warning() -> None:
    async with desk() as at:
        transfers, settling = mover_of(at.groups), at.groups.settling
        create = transfers._create

        async def refuse(name: str, settings: dict[str, object]) -> Any:
            raise DiskFull("no room for it", retry_after_s=1)

        transfers._create = settling._create = refuse
        await at.publish(b"v", b"w")
        await at.settle("reject", await at.poll())
        await until(lambda: at.groups.held_up())
        check = at.broker.health.checks()["transfers"]
        assert check.status == "warn"
        assert f"2 of group {GROUP} (no room for it)" in check.message
        transfers._create = create
        await until(lambda: at.broker.health.checks()["transfers"] == Check())


@on_a_loop
async def test_upkeep_that_fails_is_a_warning_until_it_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with patient(tmp_path, checkpoint_interval_ms=5) as it:
        with monkeypatch.context() as broken:

            async def refuse() -> None:
                raise ZeroDivisionError("why")

            broken.setattr(it.broker, "snapshot_if_due", refuse)
            await until(it.wrong)
            check = it.only("upkeep")
            assert check.status == "warn"
            assert "checkpoint (ZeroDivisionError: why)" in check.message
        await until(lambda: it.wrong() == {})


@on_a_loop
async def test_damaged_messages_are_a_warning(tmp_path: Path) -> None:
    async with patient(tmp_path) as it:
        it.broker.topic("t").partitions[1].note_damage([3, 4])
        check = it.only("damage")
        assert (check.status, it.broker.problems()) == ("warn", {})
        assert "t/1: offsets 3, 4 fail their checksums" in check.message


@on_a_loop
async def test_a_broker_that_stops_takes_nothing_new_and_needs_no_restart(tmp_path: Path) -> None:
    async with patient(tmp_path) as it:
        it.broker.stop_accepting()
        check = it.only("shutdown")
        assert (check.status, check.needs_restart) == ("fail", False)
        assert "stopping" in check.message
        with suppress(StorageFailed):
            await it.broker.close()
