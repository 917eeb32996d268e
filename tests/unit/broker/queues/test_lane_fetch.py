"""What a group gets when its messages lie in several lanes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from behaviour.clock import ManualClock
from doubles.group_bench import Got, GroupBench
from doubles.loop import on_a_loop

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.read import Bounds
from goqueue.broker.queues.lane_report import lane_stats
from goqueue.delivery.queue import Queue
from goqueue.model.config import Config, LimitsConfig, StorageConfig
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage

CRITICAL, HIGH, NORMAL, LOW, BACKGROUND = range(5)
WEIGHTS = (50, 25, 15, 7, 3)
HOUR_MS = 3_600_000


@asynccontextmanager
async def bench(path: Path, clock: ManualClock | None = None, **limits: int) -> AsyncIterator[GroupBench]:
    config = Config(storage=StorageConfig(path=str(path)), limits=LimitsConfig(**limits))
    async with GroupBench(config, clock) as made:
        yield made


async def publish(it: GroupBench, lanes: Iterable[int], size: int = 10, **fields: Any) -> None:
    """One message for each, in this order."""
    messages = [NewMessage(b"x" * size, priority=lane, **fields) for lane in lanes]
    for first in range(0, len(messages), 500):
        outcomes = await it.broker.publish("t", messages[first : first + 500])
        assert all(isinstance(each, Published) for each in outcomes), outcomes


def mixed(seed: int = 1, **counts: int) -> list[int]:
    names = ("critical", "high", "normal", "low", "background")
    lanes = [names.index(name) for name, count in counts.items() for _ in range(count)]
    Random(seed).shuffle(lanes)
    return lanes


def lanes_of(got: Iterable[Got]) -> list[int]:
    return [each.lane for each in got]


def queue_of(it: GroupBench, partition: int = 0) -> Queue:
    shards = it.broker.groups.shards
    found = shards.find("g").queue(it.broker.topic("t"), partition)
    assert found is not None
    return found


def is_done_with_everything(it: GroupBench) -> bool:
    return all(each.committed == each.latest and each.lag == 0 for each in it.broker.groups.offsets.lag("g"))


async def drain(it: GroupBench, member: str, most: int = 100) -> list[Got]:
    """Everything that there is, acked; one more poll has come by at the end."""
    found: list[Got] = []
    while got := await it.poll(member, most):
        await it.ack(*got)
        found += got
    return found


# Who comes first


@on_a_loop
@pytest.mark.parametrize("partitions", [1, 4])
async def test_a_critical_message_overtakes_the_whole_backlog(tmp_path: Path, partitions: int) -> None:
    async with bench(tmp_path) as it:
        await it.topic(partitions=partitions, segment_bytes=64 << 10)
        member = await it.join()
        for _ in range(3):
            for partition in range(partitions):
                await publish(it, [NORMAL, BACKGROUND] * 100, size=400, partition=partition)
        assert all(len(each.log.segments) > 2 for each in it.broker.topic("t").partitions)
        for partition in range(partitions):
            await publish(it, [CRITICAL], partition=partition)
        assert lanes_of(await it.poll(member, partitions)) == [CRITICAL] * partitions


@on_a_loop
async def test_a_poll_answers_with_the_more_urgent_lanes_first(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(partitions=2)
        member = await it.join()
        await publish(it, mixed(critical=10, high=10, normal=10, low=5, background=3))
        got = await it.poll(member, 38)
        assert lanes_of(got) == sorted(lanes_of(got)) and len(got) == 38
        for partition in range(2):
            for lane in range(5):
                offsets = [each.offset for each in got if each.partition == partition and each.lane == lane]
                assert offsets == sorted(offsets)


@on_a_loop
@pytest.mark.parametrize("which", [CRITICAL, NORMAL])
async def test_lanes_that_are_looked_at_more_closely_keep_nothing_from_the_others(tmp_path: Path, which: int) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        for lane in [NORMAL, CRITICAL, CRITICAL, NORMAL] * 3:
            await publish(it, [lane], headers=(("h", b"1"),) if lane == which else ())
        assert lanes_of(await it.poll(member, 12)) == [CRITICAL] * 6 + [NORMAL] * 6


@on_a_loop
@pytest.mark.parametrize("kind", ["shared", "range"])
@pytest.mark.parametrize("most", [1, 7, 100])
async def test_lanes_share_what_polls_get_by_their_weights(tmp_path: Path, kind: str, most: int) -> None:
    async with bench(tmp_path) as it:
        await it.topic(partitions=3, fsync="never")
        member = await it.join(kind=kind)
        await publish(it, mixed(critical=400, high=250, normal=250, low=250, background=250))
        found: Counter[int] = Counter()
        while found.total() < 600:
            got = await it.poll(member, most)
            await it.ack(*got)
            found.update(lanes_of(got))
        shares = [100 * found[lane] / found.total() for lane in range(5)]
        assert shares == pytest.approx(WEIGHTS, abs=2)


@on_a_loop
async def test_the_weights_of_a_topic_are_what_its_lanes_get(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(critical_weight=1, background_weight=3)
        member = await it.join()
        await publish(it, mixed(critical=200, background=200))
        found: Counter[int] = Counter()
        for _ in range(10):
            found.update(lanes_of(await it.poll(member, 20)))
        assert [found[CRITICAL], found[BACKGROUND]] == pytest.approx([50, 150], abs=4)


@on_a_loop
async def test_a_lane_that_was_empty_has_saved_nothing_up(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        await publish(it, [NORMAL] * 600)
        for _ in range(4):
            await it.ack(*await it.poll(member, 100))
        await publish(it, [CRITICAL] * 300)
        found = Counter(lanes_of(await it.poll(member, 130)))
        assert found[CRITICAL] == pytest.approx(100, abs=2) and found[NORMAL] == pytest.approx(30, abs=2)


@on_a_loop
async def test_lanes_that_have_nothing_leave_their_part_to_others(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        await publish(it, mixed(critical=2, background=98))
        assert Counter(lanes_of(await it.poll(member, 100))) == {CRITICAL: 2, BACKGROUND: 98}


@on_a_loop
async def test_a_lane_that_was_not_served_for_long_comes_first_once(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(critical_weight=1_000, background_weight=1, lane_starvation_ms=5_000)
        member = await it.join()
        await publish(it, mixed(critical=50, background=5))
        found = []
        for _ in range(6):
            got = await it.poll(member, 1)
            await it.ack(*got)
            found += lanes_of(got)
            it.clock.advance_ms(2_000)
        # It waits since the first poll saw it, and is served in the fourth, 6 s later.
        assert found == [CRITICAL] * 3 + [BACKGROUND] + [CRITICAL] * 2


@on_a_loop
async def test_a_stream_reads_in_the_order_of_offsets_whatever_the_lanes(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join(mode="stream")
        lanes = mixed(critical=5, normal=5, background=5)
        await publish(it, lanes)
        assert lanes_of(await it.poll(member, 100)) == lanes


# Trying again


@on_a_loop
async def test_what_is_delivered_again_stays_in_its_lane(tmp_path: Path) -> None:
    clock = ManualClock()
    async with bench(tmp_path, clock) as it:
        await it.topic()
        member = await it.join(kind="shared")
        await publish(it, mixed(critical=3, normal=30, background=30))
        first = await it.poll(member, 3)
        assert lanes_of(first) == [CRITICAL] * 3
        await it.nack(first[1], delay_ms=0)
        assert [(each.lane, each.offset, each.count) for each in await it.poll(member, 1)] == [
            (CRITICAL, first[1].offset, 2)
        ]
        await it.nack(first[2], delay_ms=1_000)
        assert CRITICAL not in lanes_of(await it.poll(member, 10))
    async with bench(tmp_path, clock) as it:
        it.pass_time(1_000)
        (again,) = await it.poll(member, 1)
        assert (again.lane, again.offset, again.count) == (CRITICAL, first[2].offset, 2)
        it.pass_time(30_000)
        found = await drain(it, await it.join())
        assert Counter(lanes_of(found)) == {CRITICAL: 3, NORMAL: 30, BACKGROUND: 30}
        assert is_done_with_everything(it) and not queue_of(it).lanes


@on_a_loop
async def test_rejected_messages_of_every_lane_become_dead_letters_and_hold_nobody_up(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        await publish(it, mixed(critical=3, normal=3, background=3))
        got = await it.poll(member)
        rejected = [each for each in got if each.offset % 2]
        assert await it.settle("reject", *rejected) == [None] * len(rejected)
        await it.moved()
        await it.ack(*(each for each in got if each not in rejected))
        assert is_done_with_everything(it)
        read = await it.broker.read("t.dlq", 0, Bounds(1 << 20))
        assert len(read.messages) == len(rejected)


# Bounds


@on_a_loop
async def test_a_poll_keeps_within_its_bytes_and_takes_at_least_one(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(partitions=2)
        member = await it.join()
        await publish(it, mixed(critical=8, normal=8, background=8), size=900)
        await publish(it, [HIGH], size=5_000)
        found: list[Got] = []
        while got := await it.poll(member, 100, max_bytes=3_000):
            sizes = [len(each.value) for each in got]
            assert sum(sizes) - max(sizes) < 3_000
            await it.ack(*got)
            found += got
        assert Counter(lanes_of(found)) == {CRITICAL: 8, NORMAL: 8, BACKGROUND: 8, HIGH: 1}
        assert is_done_with_everything(it)


@on_a_loop
async def test_one_small_answer_after_the_other_passes_no_lane_over(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(fsync="never")
        member = await it.join()
        await publish(it, mixed(critical=150, high=150, normal=150, low=150, background=150), size=1_000)
        found: Counter[int] = Counter()
        for _ in range(60):
            got = await it.poll(member, 100, max_bytes=4_500)
            await it.ack(*got)
            found.update(lanes_of(got))
        assert [100 * found[lane] / found.total() for lane in range(5)] == pytest.approx(WEIGHTS, abs=4)


@on_a_loop
async def test_what_a_member_may_have_in_flight_bounds_all_lanes_together(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join(max_in_flight=5)
        await publish(it, mixed(critical=4, normal=4, background=4))
        got = await it.poll(member)
        assert len(got) == 5 and lanes_of(got)[:4] == [CRITICAL] * 4
        assert await it.poll(member) == []
        await it.ack(got[0], got[1])
        assert len(await it.poll(member)) == 2


# Key order


@on_a_loop
async def test_a_lane_whose_keys_are_taken_keeps_nothing_from_the_others(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join(kind="shared", ordering="key")
        await publish(it, [CRITICAL] * 20, key=b"a")
        (held,) = await it.poll(member)
        await publish(it, [NORMAL, BACKGROUND], key=b"a")
        await publish(it, [NORMAL, BACKGROUND], key=b"b")
        got = await it.poll(member)
        assert lanes_of(got) == [NORMAL, NORMAL, BACKGROUND, BACKGROUND], "another lane is another order"
        await it.ack(*got)
        assert await it.poll(member) == []
        await it.ack(held)
        offsets = [held.offset]
        while got := await it.poll(member):
            assert len(got) == 1 and got[0].lane == CRITICAL
            await it.ack(*got)
            offsets.append(got[0].offset)
        assert offsets == list(range(20)) and is_done_with_everything(it)


@on_a_loop
async def test_a_lane_that_goes_by_does_not_free_the_keys_of_another(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join(kind="shared", ordering="key")
        await publish(it, [HIGH])
        await publish(it, [CRITICAL, CRITICAL], key=b"a")
        await publish(it, [HIGH])
        got = await it.poll(member)
        assert sorted(each.offset for each in got) == [0, 1, 3]
        await publish(it, [CRITICAL], key=b"a")
        assert await it.poll(member) == [], "the key is taken"
        await it.ack(*got)
        assert [each.offset for each in await drain(it, member)] == [2, 4] and is_done_with_everything(it)


@on_a_loop
async def test_the_order_of_keys_in_every_lane_outlasts_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    async with bench(tmp_path, clock) as it:
        await it.topic()
        member = await it.join(kind="shared", ordering="key")
        for lane in (CRITICAL, NORMAL, CRITICAL, NORMAL, BACKGROUND, CRITICAL):
            await publish(it, [lane], key=b"a")
        held = await it.poll(member)
        assert sorted(each.offset for each in held) == [0, 1, 4]
    async with bench(tmp_path, clock) as it:
        assert await it.poll(member) == [] and queue_of(it).parked == 3
        await it.ack(*held)
        got = await it.poll(member)
        assert sorted(each.offset for each in got) == [2, 3]
        await it.ack(*got)
        assert [each.offset for each in await drain(it, member)] == [5] and is_done_with_everything(it)


# What nobody gets


@on_a_loop
@pytest.mark.parametrize("expired", ["skip", "dead_letter"])
async def test_messages_that_expired_in_their_lanes_are_passed_over(tmp_path: Path, expired: str) -> None:
    async with bench(tmp_path) as it:
        await it.topic(expired_messages=expired)
        member = await it.join()
        await publish(it, mixed(critical=4, background=4), ttl_ms=1_000)
        await publish(it, mixed(critical=2, normal=2))
        it.clock.advance_ms(2_000)
        got = await drain(it, member)
        assert lanes_of(got) == [CRITICAL, CRITICAL, NORMAL, NORMAL]
        await it.moved()
        await it.poll(member)
        assert is_done_with_everything(it)
        dead = 0
        if "t.dlq" in it.broker.topic_names():
            dead = len((await it.broker.read("t.dlq", 0, Bounds(1 << 20))).messages)
        assert dead == (8 if expired == "dead_letter" else 0)


@on_a_loop
@pytest.mark.parametrize("where", ["first", "between", "last", "alone"])
async def test_delayed_messages_are_passed_over_until_they_come(tmp_path: Path, where: str) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        if where in ("between", "last"):
            await publish(it, [NORMAL, BACKGROUND])
        await publish(it, [CRITICAL, NORMAL], delay_ms=5_000)
        if where in ("first", "between"):
            await publish(it, [NORMAL, BACKGROUND])
        assert it.lag() == {"first": 2, "between": 4, "last": 2, "alone": 0}[where]
        got = await drain(it, member)
        assert Counter(lanes_of(got)) == {
            "between": {NORMAL: 2, BACKGROUND: 2},
            "alone": {},
        }.get(where, {NORMAL: 1, BACKGROUND: 1})
        assert is_done_with_everything(it) and not queue_of(it).lanes
        await publish(it, [BACKGROUND] * 3)
        it.clock.advance_ms(5_000)
        await it.fired()
        assert lanes_of(await drain(it, member, most=2)) == [CRITICAL, NORMAL] + [BACKGROUND] * 3
        assert is_done_with_everything(it)


@on_a_loop
async def test_a_poll_that_waits_goes_on_waiting_when_only_delayed_messages_came(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        poll = it.polling(await it.join())
        await it.waiting(1)
        await publish(it, [CRITICAL], delay_ms=1_000)
        async with asyncio.timeout(60):
            while queue_of(it).committed < 1:  # noqa: ASYNC110
                await asyncio.sleep(0)
        await it.waiting(1)
        assert not poll.done()
        it.clock.advance_ms(1_000)
        await it.fired()
        async with asyncio.timeout(60):
            assert lanes_of(await poll) == [CRITICAL]


@on_a_loop
@pytest.mark.parametrize("cleanup", ["delete", "compact"])
async def test_a_lane_whose_messages_left_the_log_does_not_hold_the_others_up(tmp_path: Path, cleanup: str) -> None:
    async with bench(tmp_path) as it:
        await it.topic(cleanup=cleanup, segment_bytes=64 << 10, retention_ms=HOUR_MS)
        member = await it.join(kind="shared")
        await publish(it, [NORMAL], key=b"n")
        await publish(it, [BACKGROUND], key=b"k", size=60_000)
        it.clock.advance_ms(HOUR_MS // 2 + 1)
        await publish(it, [CRITICAL] * 3, key=b"c", size=30_000)
        assert lanes_of(await it.poll(member, 3)) == [CRITICAL] * 3
        await it.broker.groups.offsets.reset("g", {"t": {0: 0}})
        got = await it.poll(member, 3)
        assert lanes_of(got) == [CRITICAL] * 3 and queue_of(it).cursor(BACKGROUND) == 1
        await it.ack(*got)
        await publish(it, [NORMAL], key=b"k", size=60_000)
        await publish(it, [NORMAL], key=b"n", size=60_000)
        it.clock.advance_ms(HOUR_MS // 2 + 1)
        await it.broker._upkeep.expire()
        await it.broker._upkeep.compact()
        member = await it.join()
        found = await drain(it, member)
        assert BACKGROUND not in lanes_of(found), "it is still there: the test shows nothing"
        assert is_done_with_everything(it) and not queue_of(it).lanes


# Several at once


@on_a_loop
async def test_members_who_poll_at_once_get_every_message_once(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(partitions=3, fsync="never")
        members = [await it.join(kind="shared") for _ in range(4)]
        lanes = mixed(critical=60, high=60, normal=120, low=60, background=60)
        await publish(it, lanes[:300])
        found: list[Got] = []

        async def consume(member: str) -> None:
            while True:
                got = await it.poll(member, 7, wait_ms=10_000)
                await it.ack(*got)
                found.extend(got)

        consumers = [asyncio.create_task(consume(member)) for member in members]
        await publish(it, lanes[300:])
        async with asyncio.timeout(60):
            while len(found) < len(lanes):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)
        assert len({(each.partition, each.offset) for each in found}) == len(found) == len(lanes)
        assert {each.count for each in found} == {1} and Counter(lanes_of(found)) == Counter(lanes)
        assert it.lag() == 0


@on_a_loop
@pytest.mark.parametrize("has_ttl", [False, True], ids=["read ahead", "looked at"])
@pytest.mark.parametrize("stuck_at", [1, 2, 3, 4])
async def test_a_poll_given_up_in_the_middle_gives_back_what_it_had_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stuck_at: int, has_ttl: bool
) -> None:
    async with bench(tmp_path) as it:
        await it.topic(partitions=2)
        member = await it.join(kind="shared")
        fields: dict[str, Any] = {"ttl_ms": HOUR_MS} if has_ttl else {}
        for partition in range(2):
            await publish(it, mixed(critical=3, normal=3, background=3), partition=partition, **fields)
        before = await it.poll(member, 4)
        reads = 0
        stuck = asyncio.Event()
        read_lane = Partition.read_lane

        async def stick(self: Partition, *args: int) -> Any:
            nonlocal reads
            reads += 1
            found = await read_lane(self, *args)
            if reads == stuck_at:
                stuck.set()
                await asyncio.Event().wait()
            return found

        for place in list(it.broker.groups.polling._lane_fetch._ahead._kept):
            it.broker.groups.polling._lane_fetch._ahead.drop(place)
        with monkeypatch.context() as patched:
            patched.setattr(Partition, "read_lane", stick)
            poll = it.polling(member)
            async with asyncio.timeout(60):
                await stuck.wait()
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)
        assert it.broker.groups.shards.find("g").in_flight(member) == 4
        await it.ack(*before)
        rest = await it.poll(member)
        assert len(rest) == 14 and {each.count for each in rest} == {1}
        await it.ack(*rest)
        await it.poll(member)
        assert is_done_with_everything(it)


@on_a_loop
async def test_messages_from_an_earlier_poll_stay_in_hand_when_a_later_one_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        await it.publish(*(b"%d" % number for number in range(20)))
        before = [each for _ in range(10) for each in await it.poll(member, 1)]
        stuck = asyncio.Event()

        async def stick(self: Partition, *args: int) -> Any:
            stuck.set()
            await asyncio.Event().wait()

        with monkeypatch.context() as patched:
            patched.setattr(Partition, "read", stick)
            poll = it.polling(member)
            await stuck.wait()
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)
        assert queue_of(it).leases.in_hand(member) == 10
        await it.ack(*before)
        assert {each.count for each in await it.poll(member)} == {1}


# Numbers


@on_a_loop
async def test_the_numbers_of_each_lane_are_told(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        await publish(it, [CRITICAL] * 3 + [NORMAL] * 2)
        it.clock.advance_ms(500)
        got = await it.poll(member, 4)
        await it.ack(got[0])
        (stats,) = await lane_stats(it.broker.groups.shards, "t")
        assert [(each.lane, each.stored, each.published) for each in stats.lanes] == [
            (CRITICAL, 3, 3),
            (HIGH, 0, 0),
            (NORMAL, 2, 2),
            (LOW, 0, 0),
            (BACKGROUND, 0, 0),
        ]
        (group,) = stats.groups
        told = {each.lane: (each.ready, each.in_flight, each.delivered, each.average_wait_ns) for each in group.lanes}
        assert told[CRITICAL] == (0, 2, 3, 500_000_000)
        assert told[NORMAL] == (1, 1, 1, 500_000_000)
        assert told[LOW] == (0, 0, 0, None)
        assert group.lanes[CRITICAL].last_served_ns == it.clock.now_ns() and group.lanes[LOW].last_served_ns is None


@on_a_loop
async def test_a_lane_that_waits_for_a_key_stops_alone(tmp_path: Path) -> None:
    """Rule 15: at the bound of what may wait, that lane's scan stops."""
    async with bench(tmp_path, max_parked=3) as it:
        await it.topic()
        member = await it.join(kind="shared", ordering="key")
        await publish(it, [CRITICAL] * 8, key=b"hot")
        await publish(it, [NORMAL] * 2, key=b"other")
        await publish(it, [LOW])
        first = await it.poll(member)
        assert sorted(lanes_of(first)) == [CRITICAL, NORMAL, LOW]
        assert await it.poll(member) == []
        await publish(it, [LOW])
        poll = it.polling(member)
        async with asyncio.timeout(60):
            assert lanes_of(await poll) == [LOW]
        # Nobody who waits is kept busy by what has to wait.
        poll = it.polling(member)
        await it.waiting(1)
        await asyncio.sleep(0)
        assert len(it.broker.groups.shards.find("g").runtime.waiters) == 1
        await it.ack(next(each for each in first if each.lane == CRITICAL))
        async with asyncio.timeout(60):
            assert lanes_of(await poll) == [CRITICAL]


@on_a_loop
@pytest.mark.parametrize("most", [40, 41, 60, 100])
async def test_a_retry_in_one_lane_and_more_than_a_round_in_several_partitions_come_in_one_poll(
    tmp_path: Path, most: int
) -> None:
    async with bench(tmp_path) as it:
        await it.topic(partitions=2)
        member = await it.join(kind="shared")
        await publish(it, [CRITICAL], partition=0)
        for partition in range(2):
            await publish(it, [LOW] * 10 + [BACKGROUND] * 10, partition=partition)
        await it.nack(*await it.poll(member, 1))
        got = await it.poll(member, most)
        assert len(got) == min(most, 41) and got[0].lane == CRITICAL and got[0].count == 2


@on_a_loop
async def test_critical_comes_first_however_large_the_others_are(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(partitions=3)
        member = await it.join(kind="shared")
        for partition in range(2):
            await publish(it, [BACKGROUND] * 10, size=300_000, partition=partition, headers=(("h", b"v"),))
        await publish(it, [CRITICAL], partition=2)
        for _ in range(3):
            got = await it.poll(member, 100, max_bytes=1 << 20)
            assert got[0].lane == (CRITICAL if _ == 0 else BACKGROUND)
            assert sum(each.lane == BACKGROUND for each in got) <= 4
