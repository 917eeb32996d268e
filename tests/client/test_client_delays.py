from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from goqueue import AsyncClient, Outgoing, Priority, Published
from goqueue.model.errors import DelayedNotFound, InvalidMessage, InvalidRequest, PartitionNotFound, TopicNotFound
from goqueue.testing import BrokerProcess, running_broker

SOON = 0.2
"""Seconds: long enough to be seen not to be there yet."""
HOUR = timedelta(hours=1)


async def all_delayed(client: AsyncClient, topic: str) -> list[Any]:
    return [each async for each in client.delayed(topic)]


async def test_a_delayed_message_is_seen_later_and_its_result_tells_where_it_waits(
    broker: BrokerProcess, topic: str
) -> None:
    async with broker.async_client() as client, client.producer(linger_ms=0) as producer:
        began_ns = time.time_ns()
        sent = await producer.send(topic, b"later", key="ada", headers={"h": b"1"}, delay=SOON, priority="high")
        stored = await sent
        assert (stored.partition, stored.offset, stored.priority) == (0, 0, Priority.HIGH)
        assert stored.deliver_at_ns is not None
        assert stored.deliver_at_ns >= began_ns + int(SOON * 1e9)
        [waiting] = await all_delayed(client, topic)
        assert (waiting.topic, waiting.partition, waiting.offset) == (topic, 0, 0)
        assert (waiting.key, waiting.value, waiting.headers) == (b"ada", b"later", (("h", b"1"),))
        assert (waiting.deliver_at_ns, waiting.priority) == (stored.deliver_at_ns, Priority.HIGH)
        assert began_ns <= waiting.timestamp_ns <= time.time_ns()
        async with aclosing(client.read(topic, follow=True)) as records:
            record = await asyncio.wait_for(anext(records), 60)
        assert record.timestamp_ns >= stored.deliver_at_ns
        assert (record.value, record.key, record.offset, record.priority) == (b"later", b"ada", 1, Priority.HIGH)
        assert ("goqueue-delayed-offset", b"0") in record.headers
        assert [each.value async for each in client.read(topic)] == [b"later"]
        assert await all_delayed(client, topic) == []


async def test_many_are_sent_at_once_some_of_them_delayed(broker: BrokerProcess, topic: str) -> None:
    at = datetime.now(UTC) + HOUR
    async with broker.async_client() as client, client.producer() as producer:
        results = await producer.send_many(
            topic,
            [
                b"a",
                Outgoing(b"b", deliver_at=at),
                Outgoing(b"c", deliver_at=datetime.now(UTC) - HOUR),
                Outgoing(b"d", delay=-1),
                Outgoing(b"e", delay=HOUR, priority=0),
            ],
        )
        plain = int(Priority.NORMAL)
        assert results[:4] == [
            Published(0, 0, plain),
            Published(0, 1, plain, round(at.timestamp() * 1e6) * 1_000),
            Published(0, 2, plain),
            Published(0, 3, plain),
        ]
        assert [record.value async for record in client.read(topic)] == [b"a", b"c", b"d"]
        assert [each.value for each in await all_delayed(client, topic)] == [b"b", b"e"]


async def test_one_that_cannot_be_delayed_so_far_fails_alone(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer(linger_ms=20) as producer:
        good = await producer.send(topic, b"good", delay=HOUR)
        bad = await producer.send(topic, b"bad", deliver_at=datetime(2250, 1, 1, tzinfo=UTC))
        with pytest.raises(InvalidMessage, match="2200"):
            await bad
        assert (await good).deliver_at_ns is not None
        assert [each.value for each in await all_delayed(client, topic)] == [b"good"]


async def test_what_waits_is_looked_at_moved_and_cancelled(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        one, other = await producer.send_many(topic, [Outgoing(b"one", delay=HOUR), Outgoing(b"other", delay=HOUR)])
        before = await client.delay_stats()
        assert before.pending >= 2
        moment = datetime(2100, 1, 1, tzinfo=UTC)
        moved = await client.reschedule_delayed(topic, 0, one.offset, deliver_at=moment)
        assert (moved.deliver_at, moved.value) == (moment, b"one")
        assert await client.get_delayed(topic, 0, one.offset) == moved
        assert [each.value for each in await all_delayed(client, topic)] == [b"other", b"one"]
        await client.cancel_delayed(topic, 0, other.offset)
        for work in (
            client.cancel_delayed(topic, 0, other.offset),
            client.get_delayed(topic, 0, other.offset),
            client.reschedule_delayed(topic, 0, other.offset, delay=1),
        ):
            with pytest.raises(DelayedNotFound):
                await work
        now = await client.reschedule_delayed(topic, 0, one.offset, delay=0)
        assert now.deliver_at_ns <= time.time_ns()
        async with aclosing(client.read(topic, follow=True)) as records:
            assert (await asyncio.wait_for(anext(records), 60)).value == b"one"
        after = await client.delay_stats()
        assert after.cancelled >= before.cancelled + 1
        assert after.rescheduled >= before.rescheduled + 2
        assert after.delivered >= before.delivered + 1
        assert after.average_delay is not None


async def test_what_is_asked_in_the_wrong_way_says_why(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client:
        for work, error in (
            (client.get_delayed("nope", 0, 0), TopicNotFound),
            (client.get_delayed(topic, 7, 0), PartitionNotFound),
            (client.get_delayed(topic, -1, 0), InvalidRequest),
            (client.cancel_delayed(topic, 0, "x"), InvalidRequest),  # type: ignore[arg-type]
            (client.cancel_delayed(topic, 0, 1 << 70), InvalidRequest),
            (client.reschedule_delayed(topic, 0, 0), InvalidRequest),
            (client.reschedule_delayed(topic, 0, 0, delay=1, deliver_at=1), InvalidRequest),
            (client.reschedule_delayed(topic, 0, 0, delay="1s"), InvalidRequest),  # type: ignore[arg-type]
            (client.reschedule_delayed(topic, 0, 0, delay=1), DelayedNotFound),
            (client.lane_stats("nope"), TopicNotFound),
        ):
            with pytest.raises(error):
                await work
        with pytest.raises(TopicNotFound):
            await anext(client.delayed("nope"))


async def test_a_long_list_comes_in_pages_by_time_with_large_messages_too(
    broker: BrokerProcess, wide_topic: str
) -> None:
    count = 230
    async with broker.async_client() as client, client.producer() as producer:
        messages = [
            Outgoing(b"%d" % number, partition=number % 4, delay=HOUR + timedelta(seconds=(number * 7) % count))
            for number in range(count)
        ]
        large = [Outgoing(b"x" * (3 << 20), partition=place, delay=timedelta(minutes=1)) for place in range(3)]
        stored = await producer.send_many(wide_topic, messages + large)
        found = await all_delayed(client, wide_topic)
        assert len(found) == len(stored)
        assert {(each.partition, each.offset) for each in found} == {(each.partition, each.offset) for each in stored}
        assert [each.deliver_at_ns for each in found] == sorted(each.deliver_at_ns or 0 for each in stored)
        assert [len(each.value) for each in found[:3]] == [3 << 20] * 3
        assert not any(each.damaged for each in found)


async def test_consumers_of_queues_and_streams_get_what_was_delayed_once(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client, client.producer(linger_ms=0) as producer:
        async with (
            client.consumer(f"{group}-queue", topic) as queue,
            client.consumer(f"{group}-stream", topic, mode="stream") as stream,
        ):
            await (await producer.send(topic, b"later", delay=SOON, priority="critical"))
            await (await producer.send(topic, b"now"))
            for consumer in (queue, stream):
                got = [await asyncio.wait_for(anext(consumer), 60) for _ in range(2)]
                assert [(each.value, each.priority) for each in got] == [
                    (b"now", Priority.NORMAL),
                    (b"later", Priority.CRITICAL),
                ]
                assert [each.offset for each in got] == [1, 2]
                if consumer is queue:
                    await queue.ack(got)
            assert await queue.poll(timeout=0.05) == []
            await stream.commit()
        for suffix in ("queue", "stream"):
            assert (await client.describe_group(f"{group}-{suffix}")).lag == 0


async def test_a_stream_that_was_committed_before_delayed_messages_goes_on_behind_them(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client, client.producer(linger_ms=0) as producer:
        await producer.send_many(topic, [b"a"])
        async with client.consumer(group, topic, mode="stream") as consumer:
            assert (await anext(consumer)).value == b"a"
        hidden = [Outgoing(b"later", delay=HOUR) for _ in range(300)]
        await producer.send_many(topic, [*hidden, b"b", *hidden])
        async with client.consumer(group, topic, mode="stream") as consumer:
            assert (await asyncio.wait_for(anext(consumer), 60)).value == b"b"
            reading = asyncio.ensure_future(anext(consumer))
            await producer.send_many(topic, [*hidden, b"c"])
            assert (await asyncio.wait_for(reading, 60)).value == b"c"
        assert (await client.describe_group(group)).lag == 0


def test_without_an_event_loop_all_of_it_is_the_same(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client, client.producer() as producer:
        first = producer.send(topic, b"one", delay=HOUR).result()
        second = producer.send(topic, b"two", deliver_at=datetime.now(UTC) + HOUR).result()
        third = producer.send(topic, b"three", delay=3_600.5).result()
        assert [each.value for each in client.delayed(topic)] == [b"one", b"two", b"three"]
        assert client.get_delayed(topic, 0, third.offset).value == b"three"
        moved = client.reschedule_delayed(topic, 0, first.offset, delay=2 * HOUR)
        assert moved.deliver_at > datetime.now(UTC) + HOUR
        assert client.delay_stats().next_due is not None
        client.cancel_delayed(topic, 0, second.offset)
        with pytest.raises(DelayedNotFound):
            client.cancel_delayed(topic, 0, second.offset)
        assert [each.value for each in client.delayed(topic)] == [b"three", b"one"]
        [lanes] = client.lane_stats(topic)
        assert [lane.stored for lane in lanes.lanes] == [0, 0, 0, 0, 0]
        assert list(client.read(topic)) == []


def test_a_broker_that_is_killed_while_messages_come_due_delivers_each_once(tmp_path: Path) -> None:
    count = 300
    with running_broker(tmp_path, settings={"storage.min_free_bytes": 0}) as broker:
        with broker.client() as client, client.producer() as producer:
            client.create_topic("killed", partitions=2)
            producer.send_many("killed", [Outgoing(b"%d" % number, delay=0.002 * number) for number in range(count)])
            cancelled = producer.send("killed", b"cancelled", delay=1.5).result()
            moved = producer.send("killed", b"moved", delay=HOUR).result()
            client.cancel_delayed("killed", cancelled.partition, cancelled.offset)
            client.reschedule_delayed("killed", moved.partition, moved.offset, delay=0.5)
            while client.delay_stats().delivered < count // 3:
                pass
        broker.kill()
    with running_broker(tmp_path, settings={"storage.min_free_bytes": 0}) as broker, broker.client() as client:
        while client.delay_stats().pending:
            pass
        with client.consumer("workers", "killed") as consumer:
            got: list[Any] = []
            while len(got) < count + 1:
                got += consumer.poll(100, timeout=20)
            consumer.ack(got).result()
        seen = sorted(record.value for record in client.read("killed"))
        assert seen == sorted([*(b"%d" % number for number in range(count)), b"moved"])
        assert sorted(message.value for message in got) == seen
        assert client.describe_group("workers").lag == 0
