"""What is sent again is not stored again, whatever became of the answer to the first attempt."""

from __future__ import annotations

import asyncio

import pytest
from broker_proxy import proxied

from goqueue import AsyncClient, Outgoing
from goqueue.model.errors import DeliveryTimeout, MessageTooLarge, NotAllStored
from goqueue.testing import BrokerProcess
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.producer_frames import stamp_of


async def values(client: AsyncClient, topic: str, partition: int | None = None) -> list[bytes]:
    return [record.value async for record in client.read(topic, partition)]


async def stamps(client: AsyncClient, topic: str, partition: int = 0) -> list[ProducerStamp]:
    """Of the batches that a partition holds."""
    found = []
    async for batch in client.read_batches(topic, partition):
        starts, ends = batch.run.positions.tolist(), batch.run.ends().tolist()
        frames = (bytes(batch.run.frames[start:end]) for start, end in zip(starts, ends, strict=True))
        found += [stamp for frame in frames if (stamp := stamp_of(frame)) is not None]
    return found


async def stored(client: AsyncClient, topic: str, count: int) -> None:
    """Return when a topic holds so many messages."""
    async with asyncio.timeout(30):
        found = 0
        while found < count:
            found = sum(each.latest_offset for each in (await client.describe_topic(topic)).partitions)


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_batch_whose_answer_was_lost_is_stored_once(
    broker: BrokerProcess, topic: str, idempotent: bool
) -> None:
    async with broker.async_client() as direct, proxied(broker) as proxy, proxy.client() as client:
        async with client.producer(idempotent=idempotent) as producer:
            await producer.send_many(topic, [b"before"])
            proxy.go_deaf()
            sending = asyncio.create_task(producer.send_many(topic, [b"a", b"b", b"c"]))
            await stored(direct, topic, 4)
            proxy.cut()
            # Without numbers the broker cannot tell, and the second attempt is stored as well.
            first = 1 if idempotent else 4
            assert [sent.offset for sent in await sending] == [first, first + 1, first + 2]
            await producer.send_many(topic, [b"after"])
        assert await values(direct, topic) == [b"before", *[b"a", b"b", b"c"] * (1 if idempotent else 2), b"after"]


async def test_every_partition_has_its_own_numbers_under_one_id(broker: BrokerProcess, wide_topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        for _ in range(2):
            await producer.send_many(wide_topic, [Outgoing(b"v", partition=number % 2) for number in range(6)])
        (first, second), others = await stamps(client, wide_topic, 0), await stamps(client, wide_topic, 1)
        assert [first, second] == others == [first, first._replace(first_sequence=3)]
        assert (first.first_sequence, first.message_count) == (0, 3)


async def test_a_message_that_is_refused_leaves_no_gap(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        await client.change_topic(topic, max_message_bytes=1_024)
        await producer.send_many(topic, [b"0"])
        with pytest.raises(NotAllStored) as failure:
            await producer.send_many(topic, [b"1", b"2", b"x" * 2_000, b"3"])
        outcomes = failure.value.outcomes
        assert [getattr(each, "offset", type(each)) for each in outcomes] == [1, 2, MessageTooLarge, 3]
        with pytest.raises(MessageTooLarge):
            await (await producer.send(topic, b"x" * 2_000))
        await producer.send_many(topic, [b"4"])
        assert await values(client, topic) == [b"0", b"1", b"2", b"3", b"4"]
        found = await stamps(client, topic)
        assert len({each.producer_id for each in found}) == 1
        assert sum(each.message_count for each in found) == found[-1].first_sequence + 1 == 5


async def test_numbers_whose_fate_is_not_known_are_never_used_again(broker: BrokerProcess, wide_topic: str) -> None:
    async with broker.async_client() as direct, proxied(broker) as proxy, proxy.client() as client:
        async with client.producer(delivery_timeout_ms=1_500) as producer:
            await producer.send_many(wide_topic, [Outgoing(b"a", partition=0), Outgoing(b"b", partition=1)])
            proxy.go_deaf()
            lost = await producer.send(wide_topic, b"given up", partition=0)
            await stored(direct, wide_topic, 3)
            with pytest.raises(DeliveryTimeout):
                await lost
            proxy.cut()
            # Of the same length: under the same numbers the broker would take it for the one that it has.
            await producer.send_many(wide_topic, [Outgoing(b"next", partition=0), Outgoing(b"c", partition=1)])
        assert await values(direct, wide_topic, 0) == [b"a", b"given up", b"next"]
        ours, second, fresh = await stamps(direct, wide_topic, 0)
        assert (second.producer_id, second.first_sequence) == (ours.producer_id, 1)
        assert (fresh.producer_id != ours.producer_id, fresh.first_sequence) == (True, 0)
        assert [each.producer_id for each in await stamps(direct, wide_topic, 1)] == [ours.producer_id] * 2


async def test_headers_leave_room_for_the_producers_number(broker: BrokerProcess, topic: str) -> None:
    most = (1 << 16) - 1 - 40 - 2 - 5
    async with broker.async_client() as client, client.producer() as producer:
        await (await producer.send(topic, b"v", headers={"h": b"x" * most}))
        with pytest.raises(MessageTooLarge, match="65495 are allowed"):
            await producer.send(topic, b"v", headers={"h": b"x" * (most + 1)})
        with pytest.raises(MessageTooLarge, match="of a delayed message 65395 are allowed"):
            await producer.send(topic, b"v", headers={"h": b"x" * (most - 100)}, delay=60)
        [record] = [record async for record in client.read(topic)]
        assert record.headers == (("h", b"x" * most),)
    async with broker.async_client() as client, client.producer(idempotent=False) as producer:
        await (await producer.send(topic, b"v", headers={"h": b"x" * (most + 40)}))
        assert len(await stamps(client, topic)) == 1


async def test_a_dedup_id_that_comes_again_is_told_where_the_first_one_is(
    broker: BrokerProcess, wide_topic: str
) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        first = await (await producer.send(wide_topic, b"v", partition=1, dedup_id="order-1"))
        again = await (await producer.send(wide_topic, b"other", partition=2, dedup_id="order-1"))
        assert (first.is_duplicate, again.is_duplicate) == (False, True)
        assert (again.partition, again.offset) == (first.partition, first.offset) == (1, 0)
        assert await values(client, wide_topic) == [b"v"]


async def test_messages_with_dedup_ids_keep_their_place_among_the_others(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        sent = await producer.send_many(
            topic,
            [
                b"0",
                Outgoing(b"1", dedup_id="a"),
                Outgoing(b"2", dedup_id="b"),
                b"3",
                Outgoing(b"again", dedup_id="a"),
                Outgoing(b"4", dedup_id="c"),
                Outgoing(b"again", dedup_id="c"),
                b"5",
            ],
        )
        assert [each.offset for each in sent] == [0, 1, 2, 3, 1, 4, 4, 5]
        assert [place for place, each in enumerate(sent) if each.is_duplicate] == [4, 6]
        futures = [await producer.send(topic, b"%d" % number, dedup_id=f"id-{number // 2}") for number in range(6, 10)]
        assert [(await each).is_duplicate for each in futures] == [False, True, False, True]
        records = [record async for record in client.read(topic)]
        assert [record.value for record in records] == [b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"8"]
        assert records[1].headers == (("goqueue-dedup-id", b"a"),)


async def test_a_message_with_a_dedup_id_whose_answer_was_lost_is_stored_once(
    broker: BrokerProcess, topic: str
) -> None:
    async with broker.async_client() as direct, proxied(broker) as proxy, proxy.client() as client:
        async with client.producer() as producer:
            await producer.send_many(topic, [b"before"])
            proxy.go_deaf()
            sent = await producer.send(topic, b"v", dedup_id="only")
            await stored(direct, topic, 2)
            proxy.cut()
            assert (await sent).offset == 1
        assert await values(direct, topic) == [b"before", b"v"]
