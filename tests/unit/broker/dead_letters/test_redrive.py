"""Dead letters: how messages become some, what they tell, and how they go back."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from doubles.group_broker import DEAD, GROUP, TOPIC, Desk, config_with, desk
from doubles.group_ledger import settled
from doubles.group_movers import all_queues, mover_of
from doubles.loop import on_a_loop
from doubles.power_loss import PowerLossDisk

from goqueue.broker.dead_letters import redrive as redrive_module
from goqueue.broker.dead_letters.dead_letter_mover import DeadLetterMover
from goqueue.broker.dead_letters.redrive import Filter, Redriven
from goqueue.delivery.events import Moving, Target
from goqueue.model.errors import DiskFull, GroupConflict, InvalidGroupName, InvalidRequest, TopicNotFound
from goqueue.wire import internal_headers as system
from goqueue.wire.frame import MAX_HEADERS_BYTES

EVERYTHING = Filter()


async def redrive(
    at: Desk,
    wanted: Filter = EVERYTHING,
    limit: int = 100,
    rate: float | None = None,
    *,
    dry_run: bool = False,
    topic: str = TOPIC,
) -> Redriven:
    report = await at.groups.dead_letters.redrive(topic, wanted, limit, rate, dry_run=dry_run)
    await settled(at.broker)
    return report


@on_a_loop
async def test_a_message_that_was_tried_often_enough_becomes_a_dead_letter() -> None:
    async with desk(max_retries=2) as at:
        await at.publish(b"poison")
        for count in (1, 2, 3):
            [got] = await at.poll()
            assert got.count == count
            await at.settle("nack", [got], "it does not parse")
        await settled(at.broker)
        assert await at.poll() == []
        [letter] = await at.stored(DEAD)
        told = {name: value.decode() for name, value in letter.headers}
        assert letter.value == b"poison"
        assert told[system.DELIVERIES] == "3"
        assert told[system.ERROR] == "it does not parse"


@on_a_loop
async def test_a_dead_letter_keeps_the_message_and_tells_where_it_came_from() -> None:
    async with desk(partitions=2) as at:
        await at.publish(b"first", b"second", key=b"k", partition=1, headers=(("own", b"header"),), priority=0)
        await at.reject_all("no such customer")
        original = (await at.stored(TOPIC, 1))[1]
        letter = (await at.stored(DEAD, 1))[1]
        assert (letter.value, letter.key, letter.priority) == (b"second", b"k", 0)
        told = dict(letter.headers)
        assert told["own"] == b"header"
        assert told[system.ORIGIN_TOPIC] == b"t"
        assert told[system.ORIGIN_PARTITION] == b"1"
        assert told[system.ORIGIN_OFFSET] == b"1"
        assert told[system.GROUP] == b"g"
        assert told[system.ERROR] == b"no such customer"
        assert told[system.ORIGIN_TIMESTAMP].endswith(b"Z")
        assert letter.timestamp_ns >= original.timestamp_ns


@on_a_loop
async def test_headers_of_a_message_make_room_for_those_of_a_dead_letter() -> None:
    async with desk() as at:
        large = (("large", b"x" * (MAX_HEADERS_BYTES - 100)), ("small", b"y"))
        await at.publish(b"v", headers=large)
        await at.reject_all("x" * 1_000)
        [letter] = await at.stored(DEAD)
        told = dict(letter.headers)
        assert "large" not in told
        assert told["small"] == b"y"
        assert told[system.ERROR] == b"x" * 1_000


@on_a_loop
async def test_rule_16_dead_letters_have_no_dead_letters() -> None:
    async with desk(max_retries=0) as at:
        await at.publish(b"v")
        await at.reject_all()
        await at.join("of-the-dead", DEAD)
        await at.reject_all(group="of-the-dead")
        assert await at.poll(group="of-the-dead") == []
        assert at.broker.topic_names() == [TOPIC, DEAD]
        assert len(await at.stored(DEAD)) == 1


@on_a_loop
async def test_a_topic_may_name_where_its_dead_letters_go_and_that_topic_has_none() -> None:
    async with desk(dead_letter_topic="morgue") as at:
        await at.publish(b"v")
        await at.reject_all()
        assert [each.value for each in await at.stored("morgue")] == [b"v"]
        await at.join("of-the-dead", "morgue")
        await at.reject_all(group="of-the-dead")
        assert at.broker.topic_names() == ["morgue", TOPIC]


@on_a_loop
async def test_dead_letters_stay_whatever_the_defaults_for_topics_are() -> None:
    config = config_with(cleanup="compact", retention_bytes=1 << 20, retention_ms=1_000, message_ttl_ms=1)
    async with desk(config=config, message_ttl_ms=None) as at:
        await at.publish(b"v", key=b"k")
        await at.reject_all()
        kept = at.broker.topic(DEAD).settings
        assert (kept.cleanup, kept.retention_ms, kept.retention_bytes) == ("delete", None, None)
        assert kept.message_ttl_ms is None


@on_a_loop
async def test_a_large_message_does_not_take_those_behind_it_along() -> None:
    """It fills a batch by itself; the others go with the next ones."""
    async with desk() as at:
        await at.publish(b"a", b"x" * (3 << 20), b"b", b"y" * (900 << 10), b"z" * (900 << 10), b"c")
        while got := await at.poll():
            await at.settle("reject", got)
        await settled(at.broker)
        assert [each.value[:1] for each in await at.stored(DEAD)] == [b"a", b"x", b"b", b"y", b"z", b"c"]


@on_a_loop
async def test_a_message_that_retention_removed_before_it_was_copied_is_given_up() -> None:
    async with desk() as at:
        await at.publish(b"old", b"new")
        got = await at.poll()
        at.broker.topic(TOPIC).partitions[0].log.start_offset = 1
        await at.settle("reject", got)
        await settled(at.broker)
        assert [each.value for each in await at.stored(DEAD)] == [b"new"]
        [lag] = at.groups.offsets.lag(GROUP)
        assert (lag.committed, lag.lag) == (2, 0)


@on_a_loop
async def test_messages_follow_a_dead_letter_topic_that_was_deleted_and_is_made_again() -> None:
    async with desk() as at:
        await at.publish(b"before")
        await at.reject_all()
        await at.broker.delete_topic(DEAD)
        await at.publish(b"after")
        await at.reject_all()
        assert [each.value for each in await at.stored(DEAD)] == [b"after"]


NO_TOPIC = "../../x"
"""Earlier versions took this as ``dead_letter_topic``."""


@on_a_loop
async def test_a_folder_that_names_what_can_be_no_topic_has_its_dead_letters_at_the_usual_place() -> None:
    disk = PowerLossDisk()
    async with desk(disk) as at:
        await at.publish(b"v")
        named = at.broker._catalog.machine.decide_change(TOPIC, {"dead_letter_topic": NO_TOPIC})
        await at.broker._catalog.submit(lambda _: named)
    async with desk(disk, join=False) as at:
        assert at.broker.topic(TOPIC).settings.dead_letter_topic == NO_TOPIC
        await at.join("other")
        await at.settle("reject", await at.poll(group="other"))
        await settled(at.broker)
        assert [each.value for each in await at.stored(DEAD)] == [b"v"]


@on_a_loop
async def test_what_is_on_its_way_to_what_can_be_no_topic_arrives_at_the_usual_place() -> None:
    disk = PowerLossDisk()
    async with desk(disk) as at:
        mover_of(at.groups)._stopping.set()
        await at.publish(b"v")
        await at.poll()
        [queue] = at.groups.shards.find(GROUP).queues()
        parts = [(batch.lease, batch.runs) for batch in queue.batches()]
        at.groups.shards.change(GROUP, [Moving(queue.key, parts, [], "no", Target(NO_TOPIC, "", 0, 0))])
    async with desk(disk, join=False) as at:
        await settled(at.broker)
        assert [each.value for each in await at.stored(DEAD)] == [b"v"]
        assert [each.lag for each in at.groups.offsets.lag(GROUP)] == [0]


@on_a_loop
async def test_a_rejection_goes_on_its_way_if_the_topic_for_it_can_be_made_later() -> None:
    async with desk() as at:
        await at.publish(b"v")
        full = [True]
        create = at.broker.topic_commands._check_room

        def no_room() -> None:
            if full:
                raise DiskFull("no room", retry_after_s=1)
            create()

        at.broker.topic_commands._check_room = no_room
        await at.settle("reject", await at.poll())
        full.clear()
        await settled(at.broker)
        assert [each.value for each in await at.stored(DEAD)] == [b"v"]


@on_a_loop
async def test_a_topic_may_be_deleted_while_its_messages_are_on_their_way() -> None:
    async with desk() as at:
        await at.publish(*(b"%d" % number for number in range(50)))
        await at.settle("reject", await at.poll())
        await at.broker.delete_topic(TOPIC)
        await settled(at.broker)
        assert at.groups.offsets.lag(GROUP) == []


@on_a_loop
async def test_rule_16_a_stop_in_the_middle_neither_loses_nor_doubles() -> None:
    values = [b"%04d" % number for number in range(900)]
    disk = PowerLossDisk()
    async with desk(disk) as at:
        await at.publish(*values)
        await at.settle("reject", await at.poll(1_000))
    for _ in range(3):
        async with desk(disk, join=False):
            pass
    async with desk(disk, join=False) as at:
        await settled(at.broker)
        assert sorted(each.value for each in await at.stored(DEAD)) == values


@on_a_loop
async def test_a_group_is_not_deleted_while_its_messages_are_on_their_way() -> None:
    async with desk() as at:
        mover_of(at.groups)._stopping.set()
        await at.publish(b"v")
        await at.settle("reject", await at.poll())
        await at.groups.membership.leave(GROUP, at.members[GROUP])
        with pytest.raises(GroupConflict, match="on their way"):
            await at.groups.delete(GROUP)


# Looking at them


@on_a_loop
async def test_dead_letters_are_browsed_page_by_page_in_the_order_of_their_places() -> None:
    async with desk(partitions=2) as at:
        for number in range(6):
            await at.publish(b"%d" % number, partition=number % 2)
        await at.reject_all()
        letters = at.groups.dead_letters
        first = await letters.browse(TOPIC, EVERYTHING, 4)
        assert [(each.partition, each.message.offset) for each in first] == [(0, 0), (0, 1), (0, 2), (1, 0)]
        rest = await letters.browse(DEAD, EVERYTHING, 4, after=(1, 1))
        assert [each.message.value for each in rest] == [b"3", b"5"]


@on_a_loop
async def test_what_someone_published_into_a_dead_letter_topic_is_no_dead_letter() -> None:
    async with desk() as at:
        await at.publish(b"v")
        await at.reject_all()
        await at.publish(b"stranger", topic=DEAD)
        assert len(await at.groups.dead_letters.browse(TOPIC, EVERYTHING, 10)) == 1
        assert (await redrive(at)).redriven == 1


@on_a_loop
async def test_a_topic_without_dead_letters_says_so() -> None:
    async with desk() as at:
        with pytest.raises(TopicNotFound, match="when the first one comes"):
            await at.groups.dead_letters.browse(TOPIC, EVERYTHING, 10)


# Sending them back


@on_a_loop
async def test_a_redriven_message_reaches_only_the_group_that_it_is_for() -> None:
    async with desk() as at:
        await at.join("other")
        await at.publish(b"v")
        await at.settle("ack", await at.poll(group="other"))
        await at.reject_all()
        assert (await redrive(at)).redriven == 1
        [got] = await at.poll()
        assert (got.value, got.count) == (b"v", 1)
        assert await at.poll(group="other") == []
        assert [each.lag for each in at.groups.offsets.lag("other")] == [0]


@on_a_loop
async def test_a_dead_letter_goes_back_once() -> None:
    async with desk() as at:
        await at.publish(b"a", b"b")
        await at.reject_all()
        assert (await redrive(at, limit=1)).next is not None
        again = await redrive(at)
        assert (again.redriven, again.already) == (1, 1)
        assert (await redrive(at)).redriven == 0
        assert [each.value for each in await at.poll()] == [b"a", b"b"]


@on_a_loop
async def test_a_redrive_is_answered_when_what_it_decided_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copying may take longer than a redrive waits for it; what was decided is done by the next start at the latest."""

    async def is_not_waited_for(transfers: DeadLetterMover, queue: object) -> None:
        return None

    async with desk() as at:
        await at.publish(b"v")
        await at.reject_all()
        monkeypatch.setattr(DeadLetterMover, "finished", is_not_waited_for)
        commits = at.broker._commits
        reached, may_sync, carry_out = threading.Event(), threading.Event(), commits._carry_out

        def held(planned: Any) -> Any:
            reached.set()
            assert may_sync.wait(60)
            return carry_out(planned)

        monkeypatch.setattr(commits, "_carry_out", held)
        wanted = at.groups.dead_letters.redrive(TOPIC, EVERYTHING, 100, None, dry_run=False)
        redriving = asyncio.create_task(wanted)
        try:
            assert await asyncio.to_thread(reached.wait, 60)
            for _ in range(50):
                await asyncio.sleep(0)
            assert not redriving.done()
            assert any(queue.moving for queue in all_queues(at.broker))
        finally:
            may_sync.set()
        assert (await redriving).redriven == 1


@on_a_loop
async def test_a_dry_run_tells_what_would_be_and_changes_nothing() -> None:
    async with desk() as at:
        await at.publish(b"a", b"b")
        await at.reject_all()
        ends = [each.log.end_offset for topic in at.broker.running_topics() for each in topic.partitions]
        journals = [each.journal.log.end_offset for each in at.groups.shards.all]
        report = await redrive(at, dry_run=True)
        assert (report.matched, report.redriven, report.by_topic) == (2, 0, {TOPIC: 2})
        assert ends == [each.log.end_offset for topic in at.broker.running_topics() for each in topic.partitions]
        assert journals == [each.journal.log.end_offset for each in at.groups.shards.all]
        assert await at.poll() == []


@on_a_loop
async def test_dead_letters_are_chosen_by_error_group_time_and_place() -> None:
    async with desk() as at:
        await at.join("other")
        await at.publish(b"a", b"b", b"c")
        got = await at.poll()
        await at.settle("reject", got[:1], "timeout of the bank")
        await at.settle("reject", got[1:2], "no such customer")
        await at.settle("reject", got[2:], "timeout of the shop")
        await settled(at.broker)
        await at.reject_all("timeout", group="other")
        letters = await at.groups.dead_letters.browse(TOPIC, EVERYTHING, 10)
        died = [letter.message.timestamp_ns for letter in letters]
        places = [(letter.partition, letter.message.offset) for letter in letters]

        async def chosen(wanted: Filter) -> list[int]:
            found = await at.groups.dead_letters.browse(TOPIC, wanted, 10)
            return [letter.message.offset for letter in found]

        assert await chosen(Filter(error="timeout of")) == [0, 2]
        assert await chosen(Filter(group="other")) == [3, 4, 5]
        assert await chosen(Filter(group=GROUP, error="timeout")) == [0, 2]
        assert await chosen(Filter(since_ns=died[1], until_ns=died[3])) == [
            each for each, at_ns in enumerate(died) if died[1] <= at_ns < died[3]
        ]
        assert await chosen(Filter(messages=frozenset([places[1], places[4]]))) == [1, 4]
        assert (await redrive(at, Filter(messages=frozenset([places[2]])))).redriven == 1
        assert [each.value for each in await at.poll()] == [b"c"]


def test_a_rate_bounds_how_many_go_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_module, "_CALL_S", 0.1)

    @on_a_loop
    async def work() -> None:
        async with desk() as at:
            await at.publish(*(b"%d" % number for number in range(20)))
            await at.reject_all()
            report = await redrive(at, rate=100.0)
            assert (report.redriven, report.next is not None) == (10, True)

    work()


@on_a_loop
async def test_redriving_at_a_rate_takes_its_time() -> None:
    async with desk() as at:
        await at.publish(*(b"%d" % number for number in range(30)))
        await at.reject_all()
        began = asyncio.get_running_loop().time()
        assert (await redrive(at, rate=100.0)).redriven == 30
        assert asyncio.get_running_loop().time() - began >= 0.2


@pytest.mark.parametrize(("limit", "rate"), [(0, None), (10_001, None), (1, 0.0), (1, -1.0), (1, 2_000_000.0)])
@on_a_loop
async def test_limits_and_rates_that_make_no_sense_are_refused(limit: int, rate: float | None) -> None:
    async with desk() as at:
        await at.publish(b"v")
        await at.reject_all()
        with pytest.raises(InvalidRequest):
            await redrive(at, limit=limit, rate=rate)


@on_a_loop
async def test_a_dead_letter_that_cannot_go_back_does_not_hold_up_the_others() -> None:
    async with desk(dead_letter_topic="morgue") as at:
        await at.broker.create_topic("gone", {"dead_letter_topic": "morgue"})
        await at.join("brief", "gone")
        await at.publish(b"lost", topic="gone")
        await at.reject_all(group="brief")
        await at.publish(b"kept")
        await at.reject_all()
        await at.broker.delete_topic("gone")
        report = await redrive(at, topic="morgue")
        assert (report.redriven, report.unreachable) == (1, 1)
        assert [each.value for each in await at.poll()] == [b"kept"]


@on_a_loop
async def test_rule_3_a_topic_that_was_made_again_does_not_get_its_namesakes_dead_letters() -> None:
    async with desk(dead_letter_topic="morgue") as at:
        await at.publish(b"old")
        await at.reject_all()
        await at.broker.delete_topic(TOPIC)
        await at.broker.create_topic(TOPIC, {"partitions": 1, "dead_letter_topic": "morgue"})
        report = await redrive(at)
        assert (report.redriven, report.unreachable) == (0, 1)
        assert await at.poll() == []


@on_a_loop
async def test_a_dead_letter_of_a_group_that_is_gone_is_not_sent_back_to_nobody() -> None:
    async with desk() as at:
        await at.publish(b"v")
        await at.reject_all()
        await at.groups.membership.leave(GROUP, at.members[GROUP])
        await at.groups.delete(GROUP)
        report = await redrive(at)
        assert (report.redriven, report.unreachable) == (0, 1)
        await at.join()
        await at.settle("ack", await at.poll())
        assert (await redrive(at)).redriven == 1


@on_a_loop
async def test_what_was_redriven_is_known_after_a_restart() -> None:
    async with desk() as at:
        await at.publish(b"a", b"b")
        await at.reject_all()
        await redrive(at, limit=1)
    async with desk(at.disk, join=False) as at:
        report = await redrive(at)
        assert (report.redriven, report.already) == (1, 1)


@on_a_loop
async def test_the_brokers_own_group_is_nobodys() -> None:
    async with desk() as at:
        await at.publish(b"v")
        await at.reject_all()
        await redrive(at)
        assert at.groups.shards.names() == [GROUP]
        for work in (at.groups.delete, at.groups.offsets.committed):
            with pytest.raises(InvalidGroupName):
                await work("__redrive")
        with pytest.raises(InvalidGroupName):
            await at.groups.offsets.reset("__redrive", {})


@on_a_loop
async def test_rule_17_what_expired_becomes_a_dead_letter_if_the_topic_says_so() -> None:
    async with desk(expired_messages="dead_letter") as at:
        long_ago_ns = at.broker.clock.now_ns() - 10**9
        await at.publish(b"v", ttl_ms=1, timestamp_ns=long_ago_ns)
        assert await at.poll() == []
        await settled(at.broker)
        [letter] = await at.stored(DEAD)
        assert dict(letter.headers)[system.DELIVERIES] == b"0"
