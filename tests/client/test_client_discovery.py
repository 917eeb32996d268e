from __future__ import annotations

import asyncio
import socket
from contextlib import closing

import pytest
from doubles.patience import in_time

from goqueue import AsyncClient
from goqueue.model.errors import BrokerUnavailable, PartitionNotFound, TopicNotFound
from goqueue.testing import BrokerProcess, running_broker

DEAD = "127.0.0.1:1"


async def test_brokers_that_are_dead_are_passed_over(broker: BrokerProcess, topic: str) -> None:
    async with AsyncClient([DEAD, "127.0.0.1:2", broker.address]) as client, client.producer() as producer:
        with in_time(9):
            assert topic in await client.list_topics()
            await producer.send_many(topic, [b"v"])
            assert [record.value async for record in client.read(topic)] == [b"v"]
        # The next question begins with the one that answered.
        assert client._directory._addresses[0] == broker.address


async def test_a_broker_that_takes_connections_and_never_answers_is_passed_over(
    broker: BrokerProcess, topic: str
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        addresses = [f"127.0.0.1:{silent.getsockname()[1]}", broker.address]
        async with AsyncClient(addresses, connect_timeout_ms=300) as client, client.producer() as producer:
            await producer.send_many(topic, [b"v"])


async def test_if_all_are_dead_the_error_names_one() -> None:
    async with AsyncClient([DEAD], connect_timeout_ms=100) as client:
        with pytest.raises(BrokerUnavailable, match=DEAD):
            await client.describe_topic("t")


async def test_messages_go_where_the_broker_says_its_partitions_are() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as elsewhere:
        told = f"127.0.0.1:{elsewhere.getsockname()[1]}"
        with running_broker(settings={"grpc.advertised_address": told}) as broker:
            async with broker.async_client() as client:
                await client.create_topic("t", partitions=1)
                assert (await client._directory.leader("t", 0)).address == told
                async with client.producer(delivery_timeout_ms=2_000) as producer:
                    sent = await producer.send("t", b"v")
                    connected, _ = await asyncio.to_thread(elsewhere.accept)
                    connected.close()
                    sent.cancel()
                assert (await client.describe_topic("t")).partitions[0].latest_offset == 0


async def test_a_broker_that_listens_everywhere_is_reached_as_it_was_found() -> None:
    with running_broker(settings={"grpc.host": "0.0.0.0"}) as broker:
        async with broker.async_client() as client, client.producer() as producer:
            await client.create_topic("t", partitions=1)
            assert (await (await producer.send("t", b"v"))).offset == 0


async def test_a_topic_that_is_made_later_is_found_then(broker: BrokerProcess) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        with pytest.raises(TopicNotFound):
            await producer.send("made-later", b"v")
        await client.create_topic("made-later", partitions=1)
        assert (await (await producer.send("made-later", b"v"))).offset == 0


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (1, 1)])
async def test_a_topic_that_is_made_again_with_other_partitions_is_noticed(
    broker: BrokerProcess, before: int, after: int
) -> None:
    name = f"again-{before}-{after}"
    async with broker.async_client() as admin, broker.async_client(metadata_max_age_ms=50) as client:
        await admin.create_topic(name, partitions=before)
        async with client.producer(linger_ms=0) as producer:
            for number in range(before):
                await (await producer.send(name, b"old", partition=number))
            await admin.delete_topic(name)
            with pytest.raises(TopicNotFound):
                await (await producer.send(name, b"nowhere"))
            await admin.create_topic(name, partitions=after)
            places = [await (await producer.send(name, b"new")) for _ in range(after)]
            assert sorted(place.partition for place in places) == list(range(after))
            with pytest.raises(PartitionNotFound):
                await producer.send(name, b"v", partition=max(before, after))


async def test_a_topic_that_grows_behind_the_producers_back_is_noticed_after_a_while(broker: BrokerProcess) -> None:
    async with broker.async_client() as admin, broker.async_client(metadata_max_age_ms=20) as client:
        await admin.create_topic("grows", partitions=1)
        async with client.producer(linger_ms=0) as producer:
            await (await producer.send("grows", b"old"))
            await admin.delete_topic("grows")
            await admin.create_topic("grows", partitions=3)
            seen: set[int] = set()
            async with asyncio.timeout(30):
                while seen != {0, 1, 2}:
                    seen.add((await (await producer.send("grows", b"new"))).partition)


async def test_a_topic_that_shrinks_behind_the_producers_back_fails_once_and_recovers(broker: BrokerProcess) -> None:
    async with broker.async_client() as admin, broker.async_client() as client:
        await admin.create_topic("shrinks", partitions=4)
        async with client.producer(linger_ms=0) as producer:
            await (await producer.send("shrinks", b"old", partition=3))
            await admin.delete_topic("shrinks")
            await admin.create_topic("shrinks", partitions=1)
            with pytest.raises(PartitionNotFound):
                await (await producer.send("shrinks", b"v", partition=3))
            places = [await (await producer.send("shrinks", b"new")) for _ in range(3)]
            assert [(place.partition, place.offset) for place in places] == [(0, 0), (0, 1), (0, 2)]
