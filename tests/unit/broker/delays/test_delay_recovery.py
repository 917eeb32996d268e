"""What a start must read to know which messages wait, and whom it believes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from behaviour.clock import ManualClock
from doubles.delay_ledger import TOPIC, Shown, shown_by
from doubles.delay_scripts import CONFIG, HOUR_MS, SECOND_MS, TICK_MS, Stage
from doubles.loop import on_a_loop
from doubles.power_loss import PowerLossDisk

from goqueue.broker.broker import Broker
from goqueue.broker.partitions.partition_delays import FILE_NAME
from goqueue.delivery.delay_index import PendingDelays
from goqueue.model.errors import DelayedNotFound
from goqueue.model.publishing import NewMessage
from goqueue.storage.files.atomic import write_atomically

VALUE_BYTES = 1_000
Damage = Callable[[Stage], None]


async def stage_with_a_long_log() -> Stage:
    """Five segments of 100 messages; two that wait, in the third and in the last. It was stopped properly."""
    stage = Stage(Random(0), outcomes=0)
    await stage.start()
    await stage.topic()
    for number in range(5):
        await stage.broker.publish(TOPIC, [NewMessage(b"x" * VALUE_BYTES)] * 100)
        if number in (2, 4):
            await stage.publish(HOUR_MS * number, SECOND_MS)
        stage.roll()
    await stage.broker.publish(TOPIC, [NewMessage(b"x")])
    await pass_time(stage.broker, stage.clock, SECOND_MS + TICK_MS)
    await stage.broker.close()
    return stage


async def pass_time(broker: Broker, clock: ManualClock, milliseconds: int) -> Shown:
    clock.advance_ms(milliseconds)
    broker.clockwork.ring()
    return await shown_by(broker)


async def read_by_a_start(stage: Stage) -> int:
    """How many bytes a start reads, that of other logs and of indexes included."""
    stage.disk.release_locks()
    before = stage.disk.bytes_read
    stage.broker = Broker(CONFIG, files=stage.disk, clock=stage.clock)
    await stage.broker.start()
    return stage.disk.bytes_read - before


async def waiting(broker: Broker) -> list[tuple[bytes, int]]:
    return (await shown_by(broker)).waits


@on_a_loop
async def test_a_start_with_the_file_of_delays_does_not_read_the_log() -> None:
    stage = await stage_with_a_long_log()
    assert await read_by_a_start(stage) < 20 * VALUE_BYTES
    assert [value for value, _ in await waiting(stage.broker)] == [b"v001", b"v003"]
    await stage.broker.close()


@on_a_loop
async def test_a_start_reads_the_log_only_from_where_the_file_of_delays_ends() -> None:
    stage = await stage_with_a_long_log()
    await read_by_a_start(stage)
    await stage.broker.publish(TOPIC, [NewMessage(b"x" * VALUE_BYTES)] * 50)
    await stage.publish(SECOND_MS, HOUR_MS)
    await pass_time(stage.broker, stage.clock, SECOND_MS + TICK_MS)
    await stage.checkpoint()
    await stage.kill()
    stage.disk.release_locks()
    read = await read_by_a_start(stage)
    assert 50 * VALUE_BYTES < read < 80 * VALUE_BYTES
    assert [value for value, _ in await waiting(stage.broker)] == [b"v006", b"v001", b"v003"]
    await stage.broker.close()


def remove(stage: Stage) -> None:
    stage.disk.remove(stage.log.folder / FILE_NAME)


def turn_a_bit(stage: Stage) -> None:
    stage.disk.damage(stage.log.folder / FILE_NAME, lambda data: data[:-1] + bytes([data[-1] ^ 1]))


def cut_short(stage: Stage) -> None:
    stage.disk.damage(stage.log.folder / FILE_NAME, lambda data: data[:-5])


def know_more_than_the_log(stage: Stage) -> None:
    """As if the log had lost its end: one that waits never came, and another is not known to wait."""
    pending = PendingDelays()
    pending.add_many(np.array([3], np.int64), np.array([stage.clock.now_ns() + 1], np.int64))
    write_atomically(stage.disk, stage.log.folder / FILE_NAME, pending.dump(stage.log.end_offset + 1))


def be_of_another_version(stage: Stage) -> None:
    write_atomically(stage.disk, stage.log.folder / FILE_NAME, b"\xff" * 20)


@pytest.mark.parametrize("damage", [remove, turn_a_bit, cut_short, know_more_than_the_log, be_of_another_version])
@on_a_loop
async def test_without_a_file_of_delays_that_is_of_use_the_log_tells_the_same(damage: Damage) -> None:
    stage = await stage_with_a_long_log()
    damage(stage)
    read = await read_by_a_start(stage)
    # From the first that waits on, in the third segment.
    assert 200 * VALUE_BYTES < read < 280 * VALUE_BYTES
    shown = await shown_by(stage.broker)
    assert [value for value, _ in shown.waits] == [b"v001", b"v003"]
    shown = await pass_time(stage.broker, stage.clock, 5 * HOUR_MS)
    assert sorted(set(shown.values) - {b"x", b"x" * VALUE_BYTES}) == [b"v001", b"v002", b"v003", b"v004"]
    assert (shown.values.count(b"v001"), shown.values.count(b"v002")) == (1, 1)
    await stage.broker.close()


@on_a_loop
async def test_a_start_without_any_recovery_point_finds_the_same() -> None:
    stage = await stage_with_a_long_log()
    remove(stage)
    stage.disk.remove(stage.broker._folder.checkpoint)
    await read_by_a_start(stage)
    assert [value for value, _ in await waiting(stage.broker)] == [b"v001", b"v003"]
    await stage.broker.close()


@on_a_loop
async def test_a_file_of_delays_that_was_not_believed_is_not_back_after_a_power_loss() -> None:
    """When the log has grown again, it would no longer know more than the log."""
    stage = Stage(Random(0), outcomes=0)
    await stage.start()
    await stage.topic()
    await stage.publish(HOUR_MS, 0, 0, 0, 0)
    await stage.broker.close()
    know_more_than_the_log(stage)
    await read_by_a_start(stage)
    left: list[PowerLossDisk] = []
    stage.disk.before_call = lambda: left.extend(stage.disk.crash(stage.rng) for _ in range(10))
    await stage.publish(0, 0, 0)
    await stage.broker.close()
    assert len(left) > 20
    for disk in left:
        broker = Broker(CONFIG, files=disk, clock=stage.clock)
        await broker.start()
        assert [value for value, _ in await waiting(broker)] == [b"v001"]
        await broker.close()


@on_a_loop
async def test_rule_19_what_the_file_of_delays_names_is_compacted_only_when_it_is_written_anew() -> None:
    """Else a start would take for pending what became visible and was superseded long ago."""
    stage = Stage(Random(0), outcomes=0)
    await stage.start()
    await stage.topic(cleanup="compact")
    [place] = await stage.publish(HOUR_MS, key=b"k")
    await stage.save()
    await stage.reschedule(place, SECOND_MS)
    await stage.pass_time(SECOND_MS + TICK_MS)
    for _ in range(3):
        await stage.publish(0, key=b"k")
        stage.roll()
        await stage.compact()
    assert kept(stage) == [0, 1, 2, 5]
    await stage.kill()
    with pytest.raises(DelayedNotFound):
        await stage.broker.delays.cancel(TOPIC, 0, place.offset)
    await stage.checkpoint()
    for _ in range(2):
        await stage.publish(0, key=b"k")
        stage.roll()
        await stage.compact()
    assert kept(stage) == [7]
    await stage.kill()
    shown = await pass_time(stage.broker, stage.clock, 2 * HOUR_MS)
    assert (shown.waits, shown.values) == ([], [b"v006"])
    await stage.broker.close()


def kept(stage: Stage) -> list[int]:
    """The offsets of all records that are in the files."""
    found: list[int] = []
    while (slice_ := stage.log.read_kept(found[-1] + 1 if found else 0, 1 << 20)) is not None:
        found += slice_.load().columns()["offset"].tolist()
    return found


@on_a_loop
async def test_the_file_of_delays_is_written_although_nobody_has_waited_for_what_it_tells() -> None:
    stage = Stage(Random(0), outcomes=0)
    await stage.start()
    await stage.topic(fsync="interval")
    await stage.publish(SECOND_MS)
    assert stage.log.durable_offset < stage.log.end_offset
    await stage.save()
    assert stage.log.durable_offset == stage.log.end_offset
    await stage.broker.close()
