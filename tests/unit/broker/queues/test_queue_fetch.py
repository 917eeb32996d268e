"""What a poll takes from a queue, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from behaviour.clock import ManualClock
from doubles.group_bench import GroupBench
from doubles.loop import on_a_loop

from goqueue.broker.partitions.read import Bounds
from goqueue.broker.queues.polling import PollBounds
from goqueue.broker.shards.backlog import NORMAL
from goqueue.delivery.queue import Queue
from goqueue.delivery.settlement_requests import LeaseClaim, SettlementRequest, Verb
from goqueue.model.config import Config, LimitsConfig, StorageConfig
from goqueue.model.errors import InvalidReceipt, InvalidRequest, OffsetOutOfRange, StaleReceipt
from goqueue.model.publishing import NewMessage


@asynccontextmanager
async def bench(path: Path, clock: ManualClock | None = None, **limits: int) -> AsyncIterator[GroupBench]:
    config = Config(storage=StorageConfig(path=str(path)), limits=LimitsConfig(**limits))
    async with GroupBench(config, clock) as made:
        yield made


def queue_of(it: GroupBench, group: str = "g", partition: int = 0) -> Queue:
    shards = it.broker.groups.shards
    found = shards.find(group).queue(it.broker.topic("t"), partition)
    assert found is not None
    return found


async def dead_letters(it: GroupBench) -> list[bytes]:
    await it.moved()
    if "t.dlq" not in it.broker.topic_names():
        return []
    read = await it.broker.read("t.dlq", 0, Bounds(1 << 20))
    return [message.value for message in read.messages]


# Bounds


@on_a_loop
async def test_a_retry_that_does_not_fit_into_a_poll_is_not_lost(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        await it.publish(*(b"%d" % number * 500 for number in range(10)))
        await it.nack(*await it.poll(member))
        found = []
        for _ in range(10):
            got = await it.poll(member, max_bytes=1_200)
            assert 1 <= len(got) <= 3
            found += got
            if len(found) == 10:
                break
        assert sorted(each.offset for each in found) == list(range(10))
        assert {each.count for each in found} == {2}


@on_a_loop
async def test_a_message_larger_than_the_bounds_comes_alone(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        await it.publish(b"x" * 5_000, b"y")
        first = await it.poll(member, max_bytes=100)
        assert [len(each.value) for each in first] == [5_000]
        await it.nack(*first)
        assert [len(each.value) for each in await it.poll(member, max_bytes=100)] == [5_000]


@on_a_loop
async def test_messages_nacked_here_and_there_come_again_each_once(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join(max_in_flight=5_000)
        await it.publish(*(b"%d" % number for number in range(3_000)))
        got = await it.poll(member, 3_000)
        chosen = [each for each in got if each.offset % 7 in (1, 2, 5)]
        await it.nack(*chosen)
        again = await it.poll(member, 3_000)
        assert [each.offset for each in again] == [each.offset for each in chosen]
        assert [each.value for each in again] == [each.value for each in chosen]
        assert it.broker.groups.shards.find("g").in_flight(member) == 3_000


# Rule 1 and 14: one decision at a time, counts that last


@on_a_loop
async def test_two_polls_never_get_the_same_message(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(partitions=2)
        members = [await it.join(kind="shared") for _ in range(5)]
        await it.publish(*(b"%d" % number for number in range(200)))
        found = []
        while got := await asyncio.gather(*(it.poll(member, 7) for member in members for _ in range(2))):
            if not any(got):
                break
            found += [(each.partition, each.offset) for some in got for each in some]
        assert len(found) == len(set(found)) == 200


@on_a_loop
async def test_deliveries_are_journaled_before_the_reply_so_counts_survive_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    async with bench(tmp_path, clock) as it:
        await it.topic(max_retries=9)
        member = await it.join()
        await it.publish(b"x")
        for count in (1, 2):
            (got,) = await it.poll(member)
            assert got.count == count
            await it.nack(got)
    async with bench(tmp_path, clock) as it:
        (got,) = await it.poll(member)
        assert got.count == 3


@on_a_loop
async def test_a_receipt_of_an_earlier_incarnation_holds_if_nothing_was_delivered_since(tmp_path: Path) -> None:
    clock = ManualClock()
    async with bench(tmp_path, clock) as it:
        await it.topic()
        member = await it.join()
        await it.publish(b"a", b"b")
        kept, again = await it.poll(member)
    async with bench(tmp_path, clock) as it:
        await it.ack(kept)
        await it.nack(again)
        await it.poll(member)
        (outcome,) = await it.settle("ack", again)
        assert isinstance(outcome, StaleReceipt)
        assert it.lag() == 1


# Rule 3: a topic's identity


@on_a_loop
async def test_a_topic_made_again_inherits_no_group_state_and_no_receipt(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        await it.publish(b"old")
        (old,) = await it.poll(member)
        await it.broker.delete_topic("t")
        assert it.broker.groups.shards.find("g").in_flight(member) == 0
        await it.topic()
        await it.publish(b"new")
        (new,) = await it.poll(member)
        assert (new.value, new.count) == (b"new", 1)
        (outcome,) = await it.settle("ack", old)
        assert isinstance(outcome, InvalidReceipt)
        assert it.lag() == 1


# Rule 12: modes


@on_a_loop
async def test_in_a_queue_a_commit_acks_what_was_delivered_below_and_nothing_else(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        await it.publish(*(b"%d" % number for number in range(6)))
        await it.poll(member, 3)
        await it.broker.groups.offsets.commit("g", member, {"t": {0: 5}})
        assert it.lag() == 3
        assert [each.offset for each in await it.poll(member)] == [3, 4, 5]


@on_a_loop
async def test_a_reset_goes_back_and_voids_receipts(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        await it.publish(*(b"%d" % number for number in range(4)))
        got = await it.poll(member)
        await it.ack(*got[:3])
        await it.broker.groups.offsets.reset("g", {"t": {0: 1}})
        (outcome,) = await it.settle("ack", got[3])
        assert isinstance(outcome, StaleReceipt)
        assert [each.offset for each in await it.poll(member)] == [1, 2, 3]


@on_a_loop
async def test_a_stream_comes_in_order_and_commits_by_offset(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join(mode="stream")
        await it.publish(*(b"%d" % number for number in range(6)))
        assert [each.offset for each in await it.poll(member, 2)] == [0, 1]
        assert [each.offset for each in await it.poll(member, 2)] == [2, 3]
        await it.broker.groups.offsets.commit("g", member, {"t": {0: 3}})
        assert it.lag() == 3
        await it.broker.groups.membership.leave("g", member)
        assert [each.offset for each in await it.poll(await it.join())] == [3, 4, 5]


@on_a_loop
async def test_a_reset_while_a_stream_is_being_read_is_not_overridden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join(mode="stream")
        await it.publish(*(b"%d" % number for number in range(4)))
        assert len(await it.poll(member)) == 4
        await it.publish(b"4")
        partition = it.broker.topic("t").partitions[0]
        read = partition.read

        async def slowly(*args: Any) -> Any:
            found = await read(*args)
            monkeypatch.setattr(partition, "read", read)
            await it.broker.groups.offsets.reset("g", {"t": {0: 1}})
            return found

        monkeypatch.setattr(partition, "read", slowly)
        got = await it.poll(member) or await it.poll(member)
        assert [each.offset for each in got] == [1, 2, 3, 4]


@on_a_loop
async def test_auto_commit_commits_what_a_member_came_back_from(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join(mode="stream", auto=True)
        await it.publish(*(b"%d" % number for number in range(6)))
        await it.poll(member, 2)
        it.pass_time(6_000)
        assert it.lag() == 6
        await it.poll(member, 2)
        assert it.lag() == 4
        await it.broker.groups.membership.leave("g", member)
        assert it.lag() == 2


def tell_a_wild_offset(root: Path, number: int) -> None:
    (path,) = root.glob("logs/t~*/0/*.log")
    data = bytearray(path.read_bytes())
    size = data.index(b"GQ", 4)
    data[number * size + 8 : number * size + 16] = (1 << 50).to_bytes(8)
    path.write_bytes(bytes(data))


# Rule 13: what is not for anyone never stalls the prefix


@on_a_loop
async def test_what_fell_below_the_log_start_leaves_as_expired(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join(max_in_flight=5)
        await it.publish(*(b"%d" % number for number in range(10)))
        got = await it.poll(member)
        await it.ack(*got[1:4])
        it.broker.topic("t").partitions[0].log.start_offset = 6
        assert it.lag() == 4
        found = await it.poll(member) + await it.poll(member)
        assert [each.offset for each in found] == [6, 7, 8, 9]
        assert it.lag() == 4 and queue_of(it).committed == 6


@on_a_loop
async def test_a_damaged_message_is_passed_over_and_takes_no_other_with_it(tmp_path: Path) -> None:
    """Even if the damage makes it tell a wild offset."""
    async with bench(tmp_path) as it:
        await it.topic()
        await it.publish(*(b"%d" % number for number in range(5)))
        await it.publish(b"last")
    tell_a_wild_offset(tmp_path, 2)
    async with bench(tmp_path) as it:
        member = await it.join()
        got = await it.poll(member)
        assert [each.offset for each in got] == [0, 1, 3, 4, 5]
        await it.nack(*got)
        got = await it.poll(member)
        assert [each.offset for each in got] == [0, 1, 3, 4, 5]
        await it.ack(*got)
        assert it.lag() == 0 and queue_of(it).committed == 6
        assert it.broker.damage() == ["t/0: offset 2 fails its checksum"]
        await it.publish(b"next")
        assert [each.value for each in await it.poll(member)] == [b"next"]


# Rule 15: order by key


@on_a_loop
async def test_a_key_is_blocked_while_in_flight_in_backoff_and_being_dead_lettered(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(max_retries=1, retry_backoff_ms=1_000)
        first, second = await it.join(kind="shared", ordering="key"), await it.join(kind="shared", ordering="key")
        await it.publish(b"a1", b"a2", key=b"a")
        await it.publish(b"b1", key=b"b")
        got = await it.poll(first)
        assert [each.value for each in got] == [b"a1", b"b1"]
        assert await it.poll(second) == []
        await it.nack(got[0], delay_ms=None)
        assert await it.poll(second) == []
        it.pass_time(1_000)
        (again,) = await it.poll(second)
        assert (again.value, again.count) == (b"a1", 2)
        waits = it.polling(first)
        await it.waiting(1)
        await it.nack(again)
        async with asyncio.timeout(60):
            assert [each.value for each in await waits] == [b"a2"]
        assert await dead_letters(it) == [b"a1"]


@on_a_loop
async def test_what_waited_for_its_key_comes_after_a_restart_without_anything_new(tmp_path: Path) -> None:
    clock = ManualClock()
    async with bench(tmp_path, clock) as it:
        await it.topic()
        member = await it.join(kind="shared", ordering="key")
        await it.publish(b"a1", b"a2", b"a3", key=b"a")
        (got,) = await it.poll(member)
        assert it.broker.groups.shards.find("g").must_learn_keys(queue_of(it)) is False
        await it.ack(got)
    async with bench(tmp_path, clock) as it:
        (got,) = await it.poll(member)
        assert got.value == b"a2"
        await it.ack(got)
    async with bench(tmp_path, clock) as it:
        poll = it.polling(member)
        async with asyncio.timeout(60):
            (got,) = await poll
        assert got.value == b"a3"
        await it.ack(got)
        assert it.lag() == 0


@on_a_loop
async def test_an_ack_after_a_restart_frees_the_key_for_those_who_wait(tmp_path: Path) -> None:
    clock = ManualClock()
    async with bench(tmp_path, clock) as it:
        await it.topic()
        member = await it.join(kind="shared", ordering="key")
        await it.publish(b"a1", b"a2", key=b"a")
        (got,) = await it.poll(member)
    async with bench(tmp_path, clock) as it:
        poll = it.polling(member)
        await it.waiting(1)
        await it.ack(got)
        async with asyncio.timeout(60):
            assert [each.value for each in await poll] == [b"a2"]


@on_a_loop
async def test_parked_messages_are_bounded_and_the_scan_goes_on_when_they_are_done(tmp_path: Path) -> None:
    async with bench(tmp_path, max_parked=3) as it:
        await it.topic()
        member = await it.join(kind="shared", ordering="key")
        await it.publish(*(b"a%d" % number for number in range(8)), key=b"a")
        await it.publish(b"b", key=b"b")
        found = []
        got = await it.poll(member)
        assert queue_of(it).parked == 3 and queue_of(it).front == 4
        while got:
            found += [each.value for each in got]
            await it.ack(*got)
            got = await it.poll(member)
        assert [value for value in found if value != b"b"] == [b"a%d" % number for number in range(8)]
        assert b"b" in found and it.lag() == 0


# Rule 16: dead letters


@on_a_loop
async def test_a_poison_message_never_blocks_its_partition(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(max_retries=2)
        member = await it.join()
        await it.publish(b"poison", *(b"%d" % number for number in range(20)))
        done = []
        for _ in range(40):
            got = await it.poll(member, 3)
            for each in got:
                await (it.nack(each) if each.value == b"poison" else it.ack(each))
            done += [each.value for each in got if each.value != b"poison"]
            if not got:
                break
        assert sorted(done) == sorted(b"%d" % number for number in range(20))
        assert await dead_letters(it) == [b"poison"]
        assert it.lag() == 0


@on_a_loop
async def test_a_message_that_ends_its_consumers_becomes_a_dead_letter(tmp_path: Path) -> None:
    """It never comes back by a nack or a timeout, only because nothing is heard of whoever had it."""
    async with bench(tmp_path) as it:
        await it.topic(max_retries=2, visibility_timeout_ms=3_600_000)
        await it.publish(b"poison")
        for count in range(1, 4):
            member = await it.join(session_timeout_ms=1_000)
            (got,) = await it.poll(member)
            assert got.count == count
            it.pass_time(1_000)
            assert member not in it.broker.groups.shards.find("g").group.state.members
        assert await dead_letters(it) == [b"poison"]
        assert it.lag() == 0


@on_a_loop
async def test_dead_letters_have_no_dead_letters(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(max_retries=0)
        member = await it.join()
        await it.publish(b"x")
        await it.nack(*await it.poll(member))
        assert await dead_letters(it) == [b"x"]
        late = await it.join("late", topics=["t.dlq"])
        assert await it.settle("reject", *await it.poll(late, group="late")) == [None]
        await it.moved()
        assert it.lag("late") == 0 and "t.dlq.dlq" not in it.broker.topic_names()
        assert await dead_letters(it) == [b"x"]


# Rule 17: time to live


@on_a_loop
async def test_what_expires_undelivered_is_skipped_and_counted(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        await it.broker.publish("t", [NewMessage(b"short", ttl_ms=100), NewMessage(b"long")])
        it.pass_time(100)
        assert [each.value for each in await it.poll(member)] == [b"long"]
        assert it.broker.groups.settling.tally.expired == 1
        assert it.lag() == 1


@on_a_loop
async def test_what_expires_undelivered_is_dead_lettered_if_the_topic_says_so(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(message_ttl_ms=100, expired_messages="dead_letter")
        member = await it.join()
        await it.publish(b"late")
        it.pass_time(100)
        assert await it.poll(member) == []
        assert await dead_letters(it) == [b"late"] and it.lag() == 0


@on_a_loop
@pytest.mark.parametrize("expired", ["skip", "dead_letter"])
async def test_what_expires_while_it_waits_for_its_key_is_not_delivered(tmp_path: Path, expired: str) -> None:
    async with bench(tmp_path) as it:
        await it.topic(message_ttl_ms=1_000, expired_messages=expired)
        member = await it.join(kind="shared", ordering="key")
        await it.publish(b"a1", b"a2", key=b"a")
        (got,) = await it.poll(member)
        it.pass_time(1_000)
        await it.ack(got)
        assert await it.poll(member) == []
        assert await dead_letters(it) == ([b"a2"] if expired == "dead_letter" else [])
        assert it.lag() == 0
        await it.publish(b"a3", key=b"a")
        assert [each.value for each in await it.poll(member)] == [b"a3"]


# Others


@on_a_loop
async def test_a_slow_or_dead_member_never_blocks_the_others(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(visibility_timeout_ms=1_000, max_retries=5)
        slow, quick = await it.join(kind="shared", max_in_flight=10), await it.join(kind="shared", max_in_flight=10)
        await it.publish(*(b"%d" % number for number in range(50)))
        held = await it.poll(slow)
        done = []
        while got := await it.poll(quick):
            await it.ack(*got)
            done += got
        assert len(held) == 10 and len(done) == 40
        it.pass_time(1_000)
        got = await it.poll(quick)
        assert sorted(each.offset for each in got) == sorted(each.offset for each in held)


@on_a_loop
async def test_a_partition_that_cannot_be_read_does_not_keep_the_others_from_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as it:
        await it.topic(partitions=2)
        member = await it.join()
        for number in range(20):
            await it.publish(b"x", key=b"%d" % number)

        async def fail(*_: object) -> Any:
            raise OffsetOutOfRange("it is not there")

        monkeypatch.setattr(it.broker.topic("t").partitions[0], "read", fail)
        for _ in range(3):
            assert {each.partition for each in await it.poll(member, 2)} == {1}


@on_a_loop
async def test_a_topic_deleted_while_it_is_polled_takes_nothing_from_the_others(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic("t")
        await it.topic("u")
        member = await it.join(topics=["t", "u"])
        await it.publish(b"x", topic="u")
        it.broker.topic("t").partitions[0].closed = True
        await it.publish(b"y", topic="u")
        assert [each.value for each in await it.poll(member)] == [b"x", b"y"]
        it.broker.topic("t").partitions[0].closed = False


@on_a_loop
async def test_a_reset_never_delivers_what_is_among_the_dead_letters_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was on its way there when the group was reset, and arrives before the group comes by again."""
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        await it.publish(b"0", b"1", b"2")
        got = await it.poll(member)
        assert await it.settle("reject", got[1]) == [None]
        await it.broker.groups.offsets.reset("g", {"t": {0: 0}})
        assert await dead_letters(it) == [b"1"]
        again = [each.value for each in await it.poll(member)]
        assert again in ([b"0", b"2"], [b"0", b"1", b"2"])
        queue = queue_of(it)
        assert not any(queue.is_done(offset, NORMAL) for offset in queue.held())


@on_a_loop
@pytest.mark.parametrize(
    "runs", [[], [0], [3, 1], [0, 1 << 62], [-5, 2_000], [0, 1, 1, 2], [5, 6, 0, 1]], ids=lambda runs: str(runs)[:20]
)
async def test_a_claim_that_names_no_offsets_of_a_lease_is_refused_and_costs_nothing(
    tmp_path: Path, runs: list[int]
) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        await it.publish(b"x")
        (delivery,) = await it.broker.groups.polling.poll("g", member, PollBounds(1, 1_000))
        claim = LeaseClaim("g", "t", 0, delivery.lease, delivery.count, delivery.token, runs)
        ((refused, why),) = await it.broker.groups.settling.settle_leases([claim], SettlementRequest(Verb.ACK))
        assert refused == runs and isinstance(why, InvalidRequest)
        assert it.lag() == 1


@on_a_loop
async def test_a_claim_tells_which_of_its_messages_could_not_be_settled(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        member = await it.join()
        await it.publish(*(b"%d" % number for number in range(5)))
        (delivery,) = await it.broker.groups.polling.poll("g", member, PollBounds(5, 1_000))
        settling = it.broker.groups.settling

        def claim(*runs: int) -> LeaseClaim:
            return LeaseClaim("g", "t", 0, delivery.lease, delivery.count, delivery.token, list(runs))

        assert await settling.settle_leases([claim(1, 2)], SettlementRequest(Verb.NACK, 0)) == [([], None)]
        await it.poll(member)
        assert await settling.settle_leases([claim(4, 5)], SettlementRequest(Verb.ACK)) == [([], None)]
        ((refused, why),) = await settling.settle_leases([claim(0, 5)], SettlementRequest(Verb.ACK))
        assert refused == [1, 2] and isinstance(why, StaleReceipt)
        assert it.lag() == 1
        forged = LeaseClaim("g", "t", 0, delivery.lease, delivery.count, bytes(len(delivery.token)), [0, 1])
        ((_, why),) = await settling.settle_leases([forged], SettlementRequest(Verb.ACK))
        assert isinstance(why, InvalidReceipt)


@on_a_loop
async def test_an_extension_without_a_time_is_for_the_visibility_timeout(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic(visibility_timeout_ms=1_000)
        member = await it.join()
        await it.publish(b"x")
        (got,) = await it.poll(member)
        it.pass_time(900)
        assert await it.settle("extend", got) == [None]
        it.pass_time(900)
        assert await it.poll(member) == []
        it.pass_time(100)
        assert [each.count for each in await it.poll(member)] == [2]
