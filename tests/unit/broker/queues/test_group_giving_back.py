"""What becomes of messages that a member has when it goes, comes back, or never got them."""

from __future__ import annotations

from pathlib import Path

from doubles.group_bench import GroupBench, unpack
from doubles.loop import on_a_loop

from goqueue.broker.queues.polling import PollBounds
from goqueue.model.config import Config, StorageConfig
from goqueue.model.errors import StaleReceipt

MANY = 6
"""More often than a message is tried."""


def bench(path: Path) -> GroupBench:
    return GroupBench(Config(storage=StorageConfig(path=str(path))))


@on_a_loop
async def test_a_message_that_is_released_counts_as_if_it_had_never_been_delivered(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        await it.publish(b"a", b"b")
        member = await it.join(kind="shared")
        for _ in range(MANY):
            got = await it.poll(member)
            assert [(each.value, each.count) for each in got] == [(b"a", 1), (b"b", 1)]
            assert await it.settle("release", *got) == [None, None]
        assert "t.dlq" not in it.broker.topic_names()


@on_a_loop
async def test_a_released_message_keeps_the_tries_that_counted_over_a_restart(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        await it.publish(b"a")
        member = await it.join(kind="shared")
        await it.nack(*await it.poll(member))
        got = await it.poll(member)
        assert [each.count for each in got] == [2]
        await it.settle("release", *got)
    async with bench(tmp_path) as it:
        assert [each.count for each in await it.poll(member)] == [2]


@on_a_loop
async def test_what_is_not_in_flight_cannot_be_released(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        await it.publish(b"a")
        member = await it.join(kind="shared")
        got = await it.poll(member)
        await it.nack(*got, delay_ms=60_000)
        assert [type(each) for each in await it.settle("release", *got)] == [StaleReceipt]


@on_a_loop
async def test_an_orderly_leave_never_makes_dead_letters(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        await it.publish(b"a")
        for time in range(1, MANY + 1):
            member = await it.join(kind="shared")
            assert [each.count for each in await it.poll(member)] == [time]
            await it.broker.groups.membership.leave("g", member)
        assert "t.dlq" not in it.broker.topic_names()


@on_a_loop
async def test_a_message_that_ends_its_consumers_becomes_a_dead_letter(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(visibility_timeout_ms="1h")
        await it.publish(b"poison")
        for _ in range(4):
            member = await it.join(kind="shared")
            assert [each.value for each in await it.poll(member)] == [b"poison"]
            it.pass_time(31_000)
        await it.moved()
        assert "t.dlq" in it.broker.topic_names()


@on_a_loop
async def test_a_member_that_comes_back_gets_at_once_what_it_never_got(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        await it.publish(b"held", b"lost")
        member = await it.join(kind="shared")
        polling = it.broker.groups.polling
        (held,) = await polling.poll("g", member, PollBounds(1, 1 << 20))
        await polling.poll("g", member, PollBounds(1, 1 << 20))
        await it.broker.groups.membership.resume("g", member, {("t", 0, held.lease)})
        assert [(each.value, each.count) for each in await it.poll(member)] == [(b"lost", 1)]
        await it.ack(*unpack([held]))


@on_a_loop
async def test_a_stream_that_comes_back_goes_on_at_what_is_committed(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        await it.publish(*(b"%d" % number for number in range(6)))
        member = await it.join(mode="stream")
        assert len(await it.poll(member, 4)) == 4
        await it.broker.groups.offsets.commit("g", member, {"t": {0: 2}})
        await it.broker.groups.membership.resume("g", member, ())
        assert [each.offset for each in await it.poll(member)] == [2, 3, 4, 5]


@on_a_loop
async def test_what_a_join_sets_takes_effect_in_a_group_that_exists(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        await it.join(kind="shared")
        await it.join(kind="shared", max_in_flight=7)
        shards = it.broker.groups.shards
        assert shards.find("g").settings.max_in_flight == 7
