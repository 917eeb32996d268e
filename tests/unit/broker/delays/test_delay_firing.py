"""Making messages visible when something is in the way: the disk, the clock, one's own change of mind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from behaviour.clock import MS
from behaviour.faulty_files import FaultyFiles, of_topic
from doubles.async_tests import until
from doubles.delay_ledger import TOPIC, at_rest
from doubles.delay_scripts import HOUR_MS, SECOND_MS, TICK_MS, Stage
from doubles.group_bench import GroupBench
from doubles.loop import on_a_loop

from goqueue.broker.delays import firing as firing_module
from goqueue.broker.delays.firing import Waiting
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.partition_delays import FILE_NAME
from goqueue.broker.partitions.read import Bounds
from goqueue.broker.runtime import timer_service as clockwork_module
from goqueue.delivery.delay_index import PendingDelays
from goqueue.model.config import Config, StorageConfig
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage
from goqueue.storage.files.atomic import write_atomically

DAY_MS = 24 * HOUR_MS
BOTH = (0, 1)


async def staged(**settings: object) -> Stage:
    stage = Stage(Random(0), outcomes=0)
    await stage.start()
    await stage.topic(**settings)
    return stage


async def values(stage: Stage, partition: int = 0) -> list[bytes]:
    return [each.value for each in (await stage.broker.read(TOPIC, partition, Bounds(1 << 26))).messages]


def count_appends(partition: Partition) -> list[int]:
    """Offsets at which somebody tried to append from now on."""
    tried: list[int] = []
    append = partition.log.append

    def noted(batch: Any) -> int:
        tried.append(partition.log.end_offset)
        return append(batch)

    partition.log.append = noted  # type: ignore[method-assign]
    return tried


def ring_after(stage: Stage, milliseconds: int) -> None:
    stage.clock.advance_ms(milliseconds)
    stage.told.now_ns = stage.clock.now_ns()
    stage.broker.clockwork.ring()


# The disk


@on_a_loop
async def test_what_is_due_while_the_disk_is_full_waits_and_comes_once_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(firing_module, "_TRY_AGAIN_S", 0.005)
    stage = await staged()
    await stage.publish(SECOND_MS, 2 * SECOND_MS)
    stage.disk.quota = stage.disk.used_bytes()
    tried = count_appends(stage.broker.topic(TOPIC).partitions[0])
    ring_after(stage, SECOND_MS + TICK_MS)
    await until(lambda: len(tried) > 2)
    ring_after(stage, SECOND_MS)
    assert await values(stage) == []
    assert stage.broker.delays.pending == 2
    stage.disk.quota = None
    await until(lambda: stage.broker.delays.pending == 0)
    assert (await stage.look()).values == [b"v001", b"v002"]
    await stage.broker.close()


@on_a_loop
async def test_a_message_is_pending_until_it_is_durable_so_that_it_always_counts_somewhere(tmp_path: Path) -> None:
    """Its append waits for the disk: it is not behind any group's lag yet."""
    disk = FaultyFiles()
    async with GroupBench(Config(storage=StorageConfig(path=str(tmp_path))), files=disk) as it:
        await it.topic(partitions=1)
        member = await it.join()
        await it.broker.publish("t", [NewMessage(b"later", delay_ms=SECOND_MS)])
        with disk.hanging(of_topic("t")) as syncing:
            it.pass_time(SECOND_MS + TICK_MS)
            await until(syncing.is_set)
            assert (it.broker.delays.pending, it.lag()) == (1, 0)
        await until(lambda: it.lag() == 1)
        await until(lambda: it.broker.delays.pending == 0)
        await it.ack(*await it.poll(member))


@on_a_loop
async def test_what_is_put_off_is_not_tried_with_everything_that_becomes_due_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(firing_module, "_TRY_AGAIN_S", 1_000.0)
    stage = await staged()
    await stage.publish(*[number * SECOND_MS for number in range(1, 11)])
    stage.disk.quota = stage.disk.used_bytes()
    tried = count_appends(stage.broker.topic(TOPIC).partitions[0])
    for _ in range(10):
        ring_after(stage, SECOND_MS + TICK_MS)
        await at_rest(stage.broker)
    assert len(tried) == 1
    stage.disk.quota = None
    stage.broker.delays._firing._try_again()
    assert (await stage.look()).values == [b"v%03d" % number for number in range(1, 11)]
    await stage.broker.close()


@on_a_loop
async def test_a_read_that_fails_puts_off_and_loses_nothing_while_other_partitions_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(firing_module, "_TRY_AGAIN_S", 1_000.0)
    stage = await staged(partitions=2)
    for number in BOTH:
        await stage.broker.publish(TOPIC, [NewMessage(b"%d" % number, partition=number, delay_ms=SECOND_MS)])
    log = stage.broker.topic(TOPIC).partitions[0].log
    read_kept = log.read_kept

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    log.read_kept = fail  # type: ignore[method-assign,assignment]
    ring_after(stage, SECOND_MS + TICK_MS)
    await at_rest(stage.broker)
    assert [await values(stage, number) for number in BOTH] == [[], [b"1"]]
    log.read_kept = read_kept  # type: ignore[method-assign]
    stage.broker.delays._firing._try_again()
    await at_rest(stage.broker)
    assert [await values(stage, number) for number in BOTH] == [[b"0"], [b"1"]]
    await stage.broker.close()


@on_a_loop
async def test_a_partition_that_takes_no_writes_is_left_alone_until_a_restart() -> None:
    stage = await staged(partitions=2)
    for number in BOTH:
        messages = [NewMessage(b"%d" % number, partition=number, delay_ms=delay_ms) for delay_ms in (1_000, 2_000)]
        await stage.broker.publish(TOPIC, messages)
    failed = stage.broker.topic(TOPIC).partitions[0]
    failed.log.fail("the disk is gone")
    tried = count_appends(failed)
    ring_after(stage, SECOND_MS + TICK_MS)
    await at_rest(stage.broker)
    firing = stage.broker.delays._firing
    assert len(tried) == 1
    assert (firing._again, dict(firing._due), dict(firing._put_off)) == (None, {}, {})
    ring_after(stage, SECOND_MS)
    await at_rest(stage.broker)
    assert len(tried) == 2
    assert await values(stage, 1) == [b"1", b"1"]
    await stage.restart()
    assert await values(stage, 0) == [b"0", b"0"]
    await stage.broker.close()


@on_a_loop
async def test_a_partition_that_fails_while_more_becomes_due_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = await staged(partitions=2)
    for number in BOTH:
        messages = [NewMessage(b"%d" % number, partition=number, delay_ms=delay_ms) for delay_ms in (1_000, 2_000)]
        await stage.broker.publish(TOPIC, messages)
    failed = stage.broker.topic(TOPIC).partitions[0]
    read = firing_module.read_delayed_records

    async def read_while_the_disk_goes(partition: Partition, *arguments: Any) -> Any:
        if partition is failed and failed.log.failure is None:
            failed.log.fail("the disk is gone")
            ring_after(stage, SECOND_MS)
        return await read(partition, *arguments)

    monkeypatch.setattr(firing_module, "read_delayed_records", read_while_the_disk_goes)
    ring_after(stage, SECOND_MS + TICK_MS)
    await at_rest(stage.broker)
    assert [await values(stage, number) for number in BOTH] == [[], [b"1", b"1"]]
    assert stage.broker.delays.pending == 2
    await stage.broker.close()


@on_a_loop
async def test_a_record_that_is_no_delayed_message_is_never_made_visible_a_second_time() -> None:
    """Whatever a file of delays says."""
    stage = await staged()
    [_, plain] = await stage.publish(HOUR_MS, 0)
    await stage.broker.close()
    made_up = PendingDelays()
    made_up.add(plain.offset, stage.clock.now_ns() + MS)
    write_atomically(stage.disk, stage.log.folder / FILE_NAME, made_up.dump(stage.log.end_offset))
    stage.disk.release_locks()
    await stage.start()
    ring_after(stage, SECOND_MS)
    await at_rest(stage.broker)
    assert await values(stage) == [b"v002"]
    assert stage.broker.delays.stats().tally.lost == 1
    await stage.broker.close()


# Changes of mind


@on_a_loop
async def test_a_message_that_is_rescheduled_to_the_time_it_had_comes_once() -> None:
    stage = await staged()
    first, second = await stage.publish(SECOND_MS, SECOND_MS)
    await stage.reschedule(first, SECOND_MS)
    await stage.reschedule(second, 5 * SECOND_MS)
    await stage.reschedule(second, SECOND_MS)
    shown = await stage.pass_time(5 * SECOND_MS + TICK_MS)
    assert shown.values == [b"v001", b"v002"]
    await stage.broker.close()


@on_a_loop
async def test_a_message_that_is_cancelled_or_put_off_while_its_original_is_read_does_not_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = await staged()
    places = await stage.publish(SECOND_MS, SECOND_MS, SECOND_MS)
    reading, go_on = asyncio.Event(), asyncio.Event()
    read = firing_module.read_delayed_records

    async def read_slowly(*arguments: Any) -> Any:
        found = await read(*arguments)
        reading.set()
        await go_on.wait()
        return found

    monkeypatch.setattr(firing_module, "read_delayed_records", read_slowly)
    ring_after(stage, SECOND_MS + TICK_MS)
    await reading.wait()
    await stage.cancel(places[0])
    await stage.reschedule(places[1], SECOND_MS)
    go_on.set()
    assert (await stage.look()).values == [b"v003"]
    assert (await stage.pass_time(SECOND_MS + TICK_MS)).values == [b"v003", b"v002"]
    await stage.broker.close()


# The clock


@on_a_loop
async def test_when_the_clock_goes_back_an_hour_nothing_comes_early() -> None:
    stage = await staged()
    await stage.publish(SECOND_MS, HOUR_MS)
    assert (await stage.pass_time(-HOUR_MS)).values == []
    await stage.publish(SECOND_MS)
    assert (await stage.pass_time(SECOND_MS + TICK_MS)).values == [b"v003"]
    assert (await stage.pass_time(HOUR_MS - 2 * TICK_MS)).values == [b"v003"]
    assert (await stage.pass_time(2 * TICK_MS)).values == [b"v003", b"v001"]
    assert (await stage.pass_time(HOUR_MS)).values == [b"v003", b"v001", b"v002"]
    await stage.broker.close()


@on_a_loop
async def test_what_was_due_and_had_to_wait_does_not_come_early_when_the_clock_goes_back_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(firing_module, "_TRY_AGAIN_S", 1_000.0)
    stage = await staged()
    await stage.publish(SECOND_MS)
    stage.disk.quota = stage.disk.used_bytes()
    ring_after(stage, SECOND_MS + TICK_MS)
    await at_rest(stage.broker)
    stage.disk.quota = None
    stage.clock.advance_ms(-HOUR_MS)
    stage.broker.delays._firing._try_again()
    await at_rest(stage.broker)
    assert await values(stage) == []
    assert (await stage.pass_time(HOUR_MS)).values == [b"v001"]
    await stage.broker.close()


@pytest.mark.parametrize("size", [10, 20_000])
@on_a_loop
async def test_when_the_clock_goes_forward_a_day_all_come_at_once_in_the_order_of_their_times(size: int) -> None:
    stage = await staged()
    delays_ms = [1 + (number * 37) % 100 for number in range(100)]
    messages = [NewMessage(b"%03d" % each + bytes(size), delay_ms=each * SECOND_MS) for each in delays_ms]
    for first in range(0, 100, 20):
        outcomes = await stage.broker.publish(TOPIC, messages[first : first + 20])
        assert all(isinstance(each, Published) for each in outcomes)
    ring_after(stage, DAY_MS)
    await at_rest(stage.broker)
    assert [int(value[:3]) for value in await values(stage)] == sorted(delays_ms)
    await stage.broker.close()


@on_a_loop
async def test_a_clock_that_jumps_is_noticed_by_looking_at_it_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clockwork_module, "_LONGEST_SLEEP_S", 0.005)
    stage = await staged()
    await stage.publish(HOUR_MS)
    stage.clock.advance_ms(-HOUR_MS)
    await asyncio.sleep(0.02)
    assert stage.broker.delays.pending == 1
    stage.clock.advance_ms(DAY_MS)
    stage.told.now_ns = stage.clock.now_ns()
    await until(lambda: stage.broker.delays.pending == 0)
    assert (await stage.look()).values == [b"v001"]
    await stage.broker.close()


def test_of_a_large_backlog_only_what_is_taken_is_touched() -> None:
    pieces = [np.full((size, 3), number, np.int64) for number, size in enumerate((3, 300, 4_000, 5, 6))]
    waiting = Waiting(None)  # type: ignore[arg-type]
    waiting.due.extend(pieces)
    taken = waiting.take(500)
    assert taken[:, 0].tolist() == [0] * 3 + [1] * 300 + [2] * 197
    assert [len(each) for each in waiting.due] == [3_803, 5, 6]
    # What is left is no copy.
    assert waiting.due[0].base is pieces[2]
    assert all(left is piece for left, piece in zip(list(waiting.due)[1:], pieces[3:], strict=True))
    assert len(waiting.take(10_000)) == 3_814 and not waiting.due
