from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import zstandard
from doubles.async_tests import until
from doubles.frames import packed

from goqueue import AsyncClient, Outgoing
from goqueue.client.consumer.reader import Start
from goqueue.model.errors import (
    ClientClosed,
    InvalidRequest,
    OffsetOutOfRange,
    PartitionNotFound,
    TopicNotFound,
)
from goqueue.testing import BrokerProcess
from goqueue.wire.frame import Flag, encode_frame
from goqueue.wire.proto import goqueue_pb2 as pb

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


async def fill(client: AsyncClient, topic: str, count: int) -> None:
    async with client.producer() as producer:
        await producer.send_many(
            topic, [Outgoing(b"%d" % number, timestamp=MOMENT + timedelta(seconds=number)) for number in range(count)]
        )


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", 0),
        ("latest", 10),
        (0, 0),
        (7, 7),
        (10, 10),
        (MOMENT, 0),
        (MOMENT + timedelta(seconds=4), 4),
        (MOMENT + timedelta(seconds=3, microseconds=1), 4),
        (MOMENT + timedelta(days=1), 10),
    ],
)
async def test_reading_begins_where_it_was_asked_to(
    broker: BrokerProcess, topic: str, start: Start, first: int
) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 10)
        assert [record.offset async for record in client.read(topic, 0, start)] == list(range(first, 10))
        assert await client.find_offset(topic, 0, start) == first


async def test_a_whole_topic_is_read_in_order_within_each_partition(broker: BrokerProcess, wide_topic: str) -> None:
    async with broker.async_client(prefetch_batches=1) as client:
        async with client.producer() as producer:
            await producer.send_many(
                wide_topic, [Outgoing(b"%d" % number, partition=number % 4) for number in range(400)]
            )
        seen: dict[int, list[Any]] = {}
        async for record in client.read(wide_topic):
            seen.setdefault(record.partition, []).append(record.value)
    assert seen == {each: [b"%d" % number for number in range(each, 400, 4)] for each in range(4)}


async def test_one_partition_is_read_alone(broker: BrokerProcess, wide_topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        await producer.send_many(wide_topic, [Outgoing(b"%d" % number, partition=number) for number in range(4)])
        assert [record.value async for record in client.read(wide_topic, 2)] == [b"2"]


async def test_a_follower_gets_messages_as_they_come(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer(linger_ms=0) as producer:
        await producer.send_many(topic, [b"old"])
        async with aclosing(client.read(topic, follow=True)) as records:
            assert (await anext(records)).value == b"old"
            for number in range(20):
                await producer.send(topic, b"%d" % number)
                assert (await anext(records)).value == b"%d" % number


async def test_a_follower_from_the_latest_gets_what_comes_after(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer(linger_ms=0) as producer:
        await producer.send_many(topic, [b"old"])
        async with aclosing(client.read(topic, 0, "latest", follow=True)) as records:
            first = asyncio.ensure_future(anext(records))
            # Whether the reader stands at the end already is not to be seen from here: send until it does.
            number = 0
            while not first.done():
                number += 1
                await producer.send_many(topic, [b"%d" % number])
            assert (await first).value != b"old"


async def test_batches_can_be_read_without_decoding(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 10)
        batches = [batch async for batch in client.read_batches(topic)]
        assert sum(len(batch.run) for batch in batches) == 10
        assert batches[-1].next_offset == 10
        assert [record.offset for batch in batches for record in batch.records()] == list(range(10))


async def test_decoding_is_lazy(broker: BrokerProcess, topic: str) -> None:
    decoded: list[bytes] = []

    def note(value: bytes) -> bytes:
        decoded.append(value)
        return value

    async with broker.async_client() as client:
        for _ in range(3):
            await fill(client, topic, 10)
        async with aclosing(client.read(topic, deserializer=note)) as records:
            assert decoded == []
            await anext(records)
        async for _ in client.read_batches(topic):
            pass
    assert len(decoded) <= 30


async def test_values_that_were_packed_are_unpacked(broker: BrokerProcess, topic: str) -> None:
    value = zstandard.compress(b"long " * 1_000)
    frame = encode_frame(b"", value, b"", 1, flags=int(Flag.COMPRESSED))
    async with broker.async_client() as client:
        leader = await client._directory.leader(topic, 0)
        await leader.publish(topic, 0, pb.ACKS_ALL, [packed([frame])])
        assert [record.value async for record in client.read(topic)] == [b"long " * 1_000]


async def test_what_cannot_be_read_says_why(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client:
        for wrong, error in (
            (client.read("nope"), TopicNotFound),
            (client.read("nope", 0), TopicNotFound),
            (client.read(topic, 1), PartitionNotFound),
            (client.read(topic, -1), PartitionNotFound),
            (client.read(topic, 0, 5), OffsetOutOfRange),
            (client.read(topic, 0, -1), InvalidRequest),
            (client.read(topic, 0, datetime(2026, 1, 1)), InvalidRequest),
        ):
            with pytest.raises(error):
                await anext(wrong)
        with pytest.raises(PartitionNotFound):
            await client.find_offset(topic, 9, "latest")


async def test_a_deserializers_own_error_reaches_the_reader(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 1)
        with pytest.raises(ZeroDivisionError):
            await anext(client.read(topic, deserializer=lambda value: 1 // 0))


async def test_a_follower_of_a_topic_that_is_deleted_is_told_so(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, aclosing(client.read(topic, follow=True)) as records:
        reading = asyncio.ensure_future(anext(records))
        await client.list_topics()
        await client.delete_topic(topic)
        with pytest.raises(TopicNotFound):
            await reading


async def test_closing_the_client_ends_its_readers(broker: BrokerProcess, topic: str) -> None:
    client = broker.async_client()
    async with client.producer() as producer:
        await producer.send_many(topic, [b"old"])
    async with aclosing(client.read(topic, follow=True)) as records:
        await anext(records)
        reading = asyncio.ensure_future(anext(records))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ClientClosed):
            await reading


async def test_a_reader_that_is_left_early_leaves_nothing_running(broker: BrokerProcess, wide_topic: str) -> None:
    async with broker.async_client() as client:
        await fill(client, wide_topic, 100)
        async for _ in client.read(wide_topic, follow=True):
            break
        mine = "Reader._fetch"
        await until(lambda: not [task for task in asyncio.all_tasks() if mine in repr(task.get_coro())])


async def test_topics_are_managed_and_described(broker: BrokerProcess) -> None:
    async with broker.async_client() as client:
        made = await client.create_topic("managed", partitions=2, retention_ms=None, max_message_bytes="2KiB")
        assert (made.name, len(made.partitions)) == ("managed", 2)
        assert (made.settings["retention_ms"], made.settings["max_message_bytes"]) == ("unlimited", "2KiB")
        assert sorted(made.overrides) == ["max_message_bytes", "retention_ms"]
        assert abs(made.created_at - datetime.now(UTC)) < timedelta(minutes=1)
        changed = await client.change_topic("managed", fsync="never")
        assert changed.settings["fsync"] == "never"
        await fill(client, "managed", 5)
        described = await client.describe_topic("managed")
        assert sum(each.latest_offset for each in described.partitions) == 5
        assert sum(each.size_bytes for each in described.partitions) > 5 * 34
        assert "managed" in await client.list_topics()
        await client.delete_topic("managed")
        assert "managed" not in await client.list_topics()
