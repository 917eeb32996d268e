"""Rule 19: the log start moves past what waits; only the files of it stay."""

from __future__ import annotations

from random import Random

import pytest
from doubles.delay_ledger import TOPIC
from doubles.delay_scripts import CONFIG, HOUR_MS, MINUTE_MS, SECOND_MS, TICK_MS, Stage
from doubles.loop import on_a_loop

from goqueue.broker.broker import Broker
from goqueue.broker.partitions.read import Bounds
from goqueue.model.errors import DelayedNotFound, OffsetOutOfRange

EVERYTHING = Bounds(1 << 20)


async def stage_with_expired_messages(*, waits_in: int = 1) -> Stage:
    """Five segments of two messages each; one that waits for an hour is the first of one of them."""
    stage = Stage(Random(0), outcomes=0)
    await stage.start()
    await stage.topic(retention_ms=MINUTE_MS)
    for number in range(5):
        await stage.publish(HOUR_MS if number == waits_in else 0, 0)
        stage.roll()
    await stage.pass_time(2 * MINUTE_MS)
    await stage.publish(0)
    await stage.expire()
    return stage


@on_a_loop
async def test_rule_19_what_waits_keeps_only_its_own_file_while_the_start_moves_on() -> None:
    stage = await stage_with_expired_messages()
    assert stage.log.start_offset == 10
    assert stage.segments() == [2, 10]
    names = {name for name in stage.disk.list_dir(stage.log.folder) if name.endswith(".log")}
    assert names == {f"{base:020d}.log" for base in (2, 10)}
    await stage.broker.close()


@pytest.mark.parametrize("offset", [1, 2, 3, 9])
@on_a_loop
async def test_rule_19_readers_below_the_start_get_the_usual_error(offset: int) -> None:
    stage = await stage_with_expired_messages()
    with pytest.raises(OffsetOutOfRange, match="the earliest is 10"):
        await stage.broker.read(TOPIC, 0, EVERYTHING, offset=offset)
    assert [each.offset for each in (await stage.broker.read(TOPIC, 0, EVERYTHING, offset=0)).messages] == [10]
    await stage.broker.close()


@on_a_loop
async def test_rule_19_what_waits_below_the_start_becomes_visible_and_then_its_file_goes() -> None:
    stage = await stage_with_expired_messages()
    shown = await stage.pass_time(HOUR_MS)
    assert [(offset, value) for offset, value, _ in shown.seen] == [(10, b"v011"), (11, b"v003")]
    await stage.checkpoint()
    assert stage.segments() == [10]
    await stage.broker.close()


@on_a_loop
async def test_rule_19_what_is_cancelled_below_the_start_lets_its_file_go() -> None:
    stage = await stage_with_expired_messages()
    await stage.broker.delays.cancel(TOPIC, 0, 2)
    await stage.checkpoint()
    assert stage.segments() == [10]
    await stage.broker.close()


@on_a_loop
async def test_what_waits_below_the_start_is_found_by_a_start_after_a_kill() -> None:
    stage = await stage_with_expired_messages()
    await stage.kill()
    assert stage.segments() == [2, 10]
    assert stage.log.start_offset == 10
    shown = await stage.pass_time(HOUR_MS)
    assert shown.values == [b"v011", b"v003"]
    await stage.broker.close()


@on_a_loop
async def test_what_tells_of_an_end_goes_only_when_the_file_of_delays_knows_it() -> None:
    """One original waits, another beside it has become visible: the file of both stays, and the record of that goes."""
    stage = Stage(Random(0), outcomes=0)
    await stage.start()
    await stage.topic(retention_ms=MINUTE_MS)
    await stage.publish(HOUR_MS, SECOND_MS)
    stage.roll()
    await stage.pass_time(SECOND_MS + TICK_MS)
    stage.roll()
    await stage.pass_time(2 * MINUTE_MS)
    await stage.publish(0)
    stage.told.may_vanish.add(b"v002")
    await stage.broker._upkeep.expire()
    # The start has moved, and whoever looks for what waits would find that one again.
    assert stage.log.start_offset == 3
    assert stage.segments() == [0, 2, 3]
    await stage.checkpoint()
    assert stage.segments() == [0, 3]
    await stage.kill()
    shown = await stage.pass_time(HOUR_MS)
    assert shown.values == [b"v003", b"v001"]
    await stage.broker.close()


@on_a_loop
async def test_a_log_of_which_everything_expired_is_not_damaged_after_a_power_loss() -> None:
    """The files are gone, and the name of the empty one that takes their place may be, too."""
    stage = Stage(Random(0), outcomes=0)
    await stage.start()
    await stage.topic(retention_ms=MINUTE_MS)
    await stage.publish(SECOND_MS, 0)
    await stage.pass_time(2 * MINUTE_MS)
    await stage.expire()
    await stage.pass_time(2 * MINUTE_MS)
    await stage.expire()
    assert stage.log.start_offset == stage.log.end_offset == 3
    for seed in range(40):
        broker = Broker(CONFIG, files=stage.disk.crash(Random(seed)), clock=stage.clock)
        await broker.start()
        log = broker.topic(TOPIC).partitions[0].log
        assert (broker.damage(), log.start_offset, log.end_offset) == ([], 3, 3)
        await broker.close()
    await stage.broker.close()


@on_a_loop
async def test_a_topic_that_is_deleted_takes_what_waits_with_it() -> None:
    stage = await stage_with_expired_messages()
    folder = stage.log.folder
    await stage.broker.delete_topic(TOPIC)
    assert stage.broker.delays.pending == 0
    assert not stage.disk.exists(folder)
    await stage.broker.create_topic(TOPIC, {})
    stage.clock.advance_ms(2 * HOUR_MS)
    stage.broker.clockwork.ring()
    with pytest.raises(DelayedNotFound):
        await stage.broker.delays.get(TOPIC, 0, 2)
    assert (await stage.broker.read(TOPIC, 0, EVERYTHING)).messages == []
    await stage.broker.close()


@on_a_loop
async def test_a_topic_that_is_deleted_while_its_messages_are_due_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = await stage_with_expired_messages()
    stage.clock.advance_ms(HOUR_MS)
    stage.broker.clockwork.ring()
    await stage.broker.delete_topic(TOPIC)
    firing = stage.broker.delays._firing
    assert firing._task is None or await firing._task is None
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    await stage.broker.close()
