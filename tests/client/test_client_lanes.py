from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from goqueue import Client, Outgoing, Priority
from goqueue.testing import BrokerProcess

PUBLISHERS = 8
OF_EACH_LANE = 200


async def test_a_consumer_gets_the_most_urgent_first_and_every_message_tells_its_lane(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        await producer.send_many(
            topic, [Outgoing(b"%d" % lane, priority=lane) for lane in reversed(Priority) for _ in range(2)]
        )
        async with client.consumer(group, topic) as consumer:
            got = [await asyncio.wait_for(anext(consumer), 60) for _ in range(10)]
            assert [message.priority for message in got] == [lane for lane in Priority for _ in range(2)]
            [lanes] = await client.lane_stats(topic)
            [of_group] = lanes.groups
            assert (lanes.topic, lanes.partition, of_group.group) == (topic, 0, group)
            assert [(lane.priority, lane.stored, lane.published) for lane in lanes.lanes] == [
                (lane, 2, 2) for lane in range(5)
            ]
            assert [(lane.ready, lane.in_flight, lane.delivered) for lane in of_group.lanes] == [(0, 2, 2)] * 5
            assert all(lane.last_served is not None and lane.average_wait is not None for lane in of_group.lanes)
            await consumer.ack(got)
        in_order = [record.priority async for record in client.read(topic)]
        assert in_order == [lane for lane in reversed(Priority) for _ in range(2)]
        async with client.consumer(f"{group}-stream", topic, mode="stream") as stream:
            assert [record.priority for record in await stream.poll(100)] == in_order


async def test_a_critical_message_passes_what_the_broker_has_not_sent_yet(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client, client.producer(linger_ms=0) as producer:
        await producer.send_many(topic, [Outgoing(b"slow", priority="background") for _ in range(500)])
        async with client.consumer(group, topic, max_in_flight=5) as consumer:
            await (await anext(consumer)).ack()
            await (await producer.send(topic, b"now", priority="critical"))
            # It comes when there is room, and what is in the consumer already may be handed out before.
            seen = 0
            while True:
                message = await asyncio.wait_for(anext(consumer), 60)
                await message.ack()
                if message.value == b"now":
                    break
                seen += 1
            assert seen <= 2 * 5


def test_eight_clients_at_once_lose_nothing_of_any_lane(broker: BrokerProcess, wide_topic: str, group: str) -> None:
    """Publishing and consuming at the same time, each from clients of their own."""

    def publish(publisher: int) -> None:
        with Client(broker.address) as client, client.producer(batch_messages=17, linger_ms=1) as producer:
            sent = [
                producer.send(wide_topic, f"{publisher} {lane} {number}", priority=lane, partition=number % 4)
                for number in range(OF_EACH_LANE)
                for lane in Priority
            ]
            for each in sent:
                each.result(30)

    total = PUBLISHERS * OF_EACH_LANE * len(Priority)
    got: list[Any] = []

    def consume() -> None:
        with (
            broker.client() as client,
            client.consumer(group, wide_topic, kind="shared", max_in_flight=300) as consumer,
        ):
            while len(got) < total:
                batch = consumer.poll(100, timeout=1)
                if batch:
                    consumer.ack(batch).result(30)
                    got.extend(batch)

    with ThreadPoolExecutor(PUBLISHERS + 2) as pool:
        working = [pool.submit(publish, number) for number in range(PUBLISHERS)]
        working += [pool.submit(consume) for _ in range(2)]
        for each in working:
            each.result(60)
    assert Counter(message.priority for message in got) == dict.fromkeys(range(5), PUBLISHERS * OF_EACH_LANE)
    assert len({message.value for message in got}) == total
    with broker.client() as client:
        read = [record.value for record in client.read(wide_topic)]
        assert Counter(read) == Counter(message.value for message in got)
        assert client.describe_group(group).lag == 0
        stored = Counter[int]()
        for partition in client.lane_stats(wide_topic):
            for lane in partition.lanes:
                stored[lane.priority] += lane.stored
        assert stored == dict.fromkeys(range(5), PUBLISHERS * OF_EACH_LANE)
