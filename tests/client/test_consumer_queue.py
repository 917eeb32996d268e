from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import pytest
from doubles.async_tests import until
from fetched import fetched

from goqueue import AsyncClient, AsyncConsumer, Outgoing, Priority, Reject, Retry, from_json, to_json
from goqueue.model.errors import (
    ClientClosed,
    GroupConflict,
    InvalidConfiguration,
    InvalidRequest,
    InvalidSettings,
    StaleReceipt,
    TopicNotFound,
)
from goqueue.testing import BrokerProcess


async def fill(client: AsyncClient, topic: str, count: int) -> None:
    async with client.producer() as producer:
        await producer.send_many(topic, [b"%d" % number for number in range(count)])


async def take(consumer: AsyncConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += await consumer.poll(count - len(found))
    return found


async def test_messages_are_iterated_and_acked_one_by_one(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 5)
        async with client.consumer(group, topic) as consumer:
            seen = []
            async for message in consumer:
                seen.append(message.value)
                await message.ack()
                if len(seen) == 5:
                    break
            assert seen == [b"0", b"1", b"2", b"3", b"4"]
            assert (await client.describe_group(group)).lag == 0
        async with client.consumer(group, topic) as consumer:
            assert await consumer.poll(timeout=0.05) == []


async def test_a_message_tells_everything_about_itself(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client, client.producer(serializer=to_json) as producer:
        sent = Outgoing({"n": 1}, "k", {"h": "1"}, priority="high", timestamp=1_700_000_000_000_000_123)
        await producer.send_many(topic, [sent, Outgoing(None, "k")])
        async with client.consumer(group, [topic], deserializer=from_json) as consumer:
            first, tombstone = await take(consumer, 2)
            assert (first.topic, first.partition, first.offset) == (topic, 0, 0)
            assert (first.key, first.value, first.headers) == (b"k", {"n": 1}, (("h", b"1"),))
            assert (first.priority, first.deliveries, first.lost, first.settled) == (Priority.HIGH, 1, False, False)
            assert first.timestamp_ns == 1_700_000_000_000_000_123
            assert first.timestamp.timestamp() == pytest.approx(1_700_000_000)
            assert tombstone.value is None
            assert f"{topic}/0@0" in repr(first)


async def test_a_value_that_cannot_be_read_fails_its_handler_and_not_the_consumer(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        await producer.send_many(topic, ["{", "1"])
        async with client.consumer(group, topic, deserializer=from_json) as consumer:
            bad, good = await take(consumer, 2)
            with pytest.raises(ValueError, match="truncated"):
                bad.value  # noqa: B018
            assert good.value == 1


async def test_a_nacked_message_comes_again_and_knows_it(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 1)
        async with client.consumer(group, topic) as consumer:
            [message] = await consumer.poll()
            await message.nack(delay=timedelta(0))
            [again] = await consumer.poll()
            assert (again.value, again.deliveries) == (b"0", 2)
            await again.nack(delay=60)
            assert (await client.describe_group(group)).partitions[0].waiting == 1


async def test_a_rejected_message_becomes_a_dead_letter_with_its_reason(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 1)
        async with client.consumer(group, topic) as consumer:
            [message] = await consumer.poll()
            await message.reject("no such customer")
            letters: list[Any] = []

            async def look() -> None:
                while not letters:
                    letters.extend([letter async for letter in client.dead_letters(topic)])

            await asyncio.wait_for(look(), 30)
        [letter] = letters
        assert (letter.error, letter.group, letter.value) == ("no such customer", group, b"0")
        assert (letter.origin_topic, letter.origin_partition, letter.origin_offset) == (topic, 0, 0)


async def test_many_messages_are_acked_in_one_request(broker: BrokerProcess, wide_topic: str, group: str) -> None:
    async with broker.async_client() as client:
        async with client.producer() as producer:
            await producer.send_many(wide_topic, [Outgoing(b"v", partition=number % 4) for number in range(200)])
        async with client.consumer(group, wide_topic) as consumer:
            messages = await take(consumer, 200)
            asked = count_settles(consumer)
            await consumer.ack(messages)
            assert asked == [200]
            assert (await client.describe_group(group)).lag == 0
            assert consumer.ack([]).done()


def count_settles(consumer: AsyncConsumer) -> list[int]:
    """How many messages each request settles, from now on."""
    asked: list[int] = []
    settle = consumer._settler._settle

    async def counting(request: Any) -> Any:
        runs = [list(lease.runs) for lease in request.leases]
        asked.append(sum(end - first for each in runs for first, end in zip(each[::2], each[1::2], strict=True)))
        return await settle(request)

    consumer._settler._settle = counting
    return asked


async def test_what_is_said_in_one_turn_leaves_as_one_request_for_each_verb(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 100)
        async with client.consumer(group, topic) as consumer:
            messages = await take(consumer, 100)
            asked = count_settles(consumer)
            done = [message.ack() for message in messages[:90]]
            done += [message.nack(delay=60) for message in messages[90:95]]
            done += [message.reject("no") for message in messages[95:]]
            await asyncio.gather(*done)
            assert asked == [90, 5, 5]


async def test_acks_that_nobody_awaits_are_kept_when_the_consumer_closes(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 50)
        async with client.consumer(group, topic) as consumer:
            for message in await take(consumer, 50):
                message.ack()
        assert (await client.describe_group(group)).lag == 0


async def test_a_block_acks_when_it_ends_and_nacks_when_it_fails(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 5)
        async with client.consumer(group, topic, retry_backoff_ms=0, max_retries=1) as consumer:
            fine, failing, settled, rejected, later = await take(consumer, 5)
            async with fine:
                pass
            with pytest.raises(ZeroDivisionError):
                async with failing:
                    raise ZeroDivisionError("by what?")
            async with settled:
                settled.ack()
            with pytest.raises(Reject):
                async with rejected:
                    raise Reject("bad")
            with pytest.raises(Retry):
                async with later:
                    raise Retry(after=60)
            [again] = await consumer.poll()
            assert (again.offset, again.deliveries) == (1, 2)
            await again.nack(reason="twice")
            letters: dict[int, str] = {}

            async def look() -> None:
                while len(letters) < 2:
                    letters.update({each.origin_offset: each.error async for each in client.dead_letters(topic)})

            await asyncio.wait_for(look(), 30)
            assert letters == {1: "twice", 3: "bad"}
            found = await client.describe_group(group)
            assert (found.partitions[0].waiting, found.partitions[0].in_flight) == (1, 0)


async def test_a_block_that_is_called_off_says_nothing(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 1)
        async with client.consumer(group, topic) as consumer:
            [message] = await consumer.poll()
            with pytest.raises(asyncio.CancelledError):
                async with message:
                    raise asyncio.CancelledError
            assert not message.settled
            await message.ack()


async def test_settling_twice_is_an_error(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 2)
        async with client.consumer(group, topic) as consumer:
            first, second = await take(consumer, 2)
            await first.ack()
            for again in (first.ack(), first.nack(), first.extend(1), consumer.ack([first, second])):
                with pytest.raises(StaleReceipt, match="settled already"):
                    await again
            # The other one of the two is done nevertheless.
            found = await client.describe_group(group)
            assert (found.lag, found.partitions[0].in_flight) == (0, 0)


async def test_leaving_gives_back_what_is_in_hand_at_once(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 10)
        async with client.consumer(group, topic) as consumer:
            message, *_ = await take(consumer, 10)
        with pytest.raises(ClientClosed):
            await message.ack()
        with pytest.raises(ClientClosed):
            await consumer.poll()
        assert [each async for each in consumer] == []
        with pytest.raises(ClientClosed):
            await consumer.start()
        async with client.consumer(group, topic) as consumer:
            assert len(await take(consumer, 10)) == 10


async def test_no_more_than_max_in_flight_are_in_hand(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 100)
        async with client.consumer(group, topic, max_in_flight=10) as consumer:
            first = await take(consumer, 10)
            assert await consumer.poll(timeout=0) == []
            assert (await client.describe_group(group)).members[0].in_flight == 10
            await consumer.ack(first[:4])
            assert len(await take(consumer, 4)) == 4


async def test_a_consumer_that_waits_gets_a_message_when_it_comes(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client, client.producer(linger_ms=0) as producer:
        consumer = client.consumer(group, topic)
        waiting = asyncio.create_task(anext(consumer))
        await until(lambda: consumer.member_id)
        await producer.send(topic, b"at last")
        assert (await waiting).value == b"at last"
        await consumer.close()


async def test_polling_without_waiting_gives_what_is_there(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 10)
        async with client.consumer(group, topic) as consumer:
            await fetched(consumer, 10)
            assert len(await consumer.poll(1)) == 1
            assert len(await consumer.poll(100, timeout=0)) == 9
            assert await consumer.poll(timeout=timedelta(0)) == []


async def test_batches_go_on_until_the_consumer_is_closed(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 250)
        async with client.consumer(group, topic) as consumer:
            sizes = []
            async with aclosing(consumer.batches(100)) as batches:
                async for batch in batches:
                    sizes.append(len(batch))
                    consumer.ack(batch)
                    if sum(sizes) == 250:
                        await consumer.close()
            assert max(sizes) == 100
        assert (await client.describe_group(group)).lag == 0


async def test_two_consumers_share_the_messages(broker: BrokerProcess, wide_topic: str, group: str) -> None:
    async with broker.async_client() as client:
        shared = {"kind": "shared", "max_in_flight": 10}
        async with (
            client.consumer(group, wide_topic, **shared) as one,
            client.consumer(group, wide_topic, **shared) as other,
        ):
            await fill(client, wide_topic, 400)
            seen: dict[str, list[int]] = {"one": [], "other": []}

            async def work(consumer: AsyncConsumer, who: str) -> None:
                async for batch in consumer.batches(5):
                    seen[who] += [int(each.value) for each in batch]
                    await consumer.ack(batch)

            tasks = [asyncio.create_task(work(one, "one")), asyncio.create_task(work(other, "other"))]
            await until(lambda: sum(map(len, seen.values())) == 400)
            await asyncio.gather(one.close(), other.close())
            await asyncio.gather(*tasks)
        assert sorted(seen["one"] + seen["other"]) == list(range(400))
        assert all(seen.values())


async def test_a_message_whose_time_to_live_is_over_is_not_delivered(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        before = await client.reliability_stats()
        old = 1_700_000_000_000_000_000
        await producer.send_many(topic, [Outgoing(b"old", timestamp=old, ttl=timedelta(hours=1))])
        await (await producer.send(topic, b"fresh", ttl=timedelta(hours=1)))
        async with client.consumer(group, topic) as consumer:
            assert [each.value for each in await consumer.poll()] == [b"fresh"]
        assert (await client.reliability_stats()).expired == before.expired + 1


async def test_key_order_is_kept(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        await producer.send_many(topic, [Outgoing(b"%d" % number, key=b"%d" % (number % 2)) for number in range(6)])
        async with client.consumer(group, topic, ordering="key", kind="shared") as consumer:
            seen = []
            while len(seen) < 6:
                batch = await consumer.poll()
                assert len({each.key for each in batch}) == len(batch)
                seen += [each.value for each in batch]
                await consumer.ack(batch)
            assert seen == [b"0", b"1", b"2", b"3", b"4", b"5"]


async def test_mistakes_are_told_where_they_are_made(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client:
        with pytest.raises(InvalidConfiguration, match="nonsense"):
            client.consumer(group, topic, nonsense=1)
        with pytest.raises(InvalidConfiguration, match="max_in_flight"):
            client.consumer(group, topic, max_in_flight=0)
        with pytest.raises(TopicNotFound):
            await client.consumer(group, "nowhere").start()
        with pytest.raises(InvalidSettings, match="max_retries"):
            await client.consumer(group, topic, max_retries=-1).start()
        with pytest.raises(TopicNotFound):
            await anext(client.consumer(group, "nowhere"))
        late = client.consumer(group, f"late-{topic}")
        for _ in range(2):
            with pytest.raises(TopicNotFound):
                await late.poll()
        await client.create_topic(f"late-{topic}")
        assert await late.poll(timeout=0.01) == []
        assert late.member_id
        async with client.consumer(group, topic) as consumer:
            with pytest.raises(InvalidRequest, match="is a queue"):
                await consumer.commit()
            with pytest.raises(InvalidRequest, match="max_messages"):
                await consumer.poll(0)
            with pytest.raises(GroupConflict, match="mode"):
                await client.consumer(group, topic, mode="stream").start()


async def test_what_lies_between_two_messages_of_a_lease_and_is_another_leases_is_left_alone(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        await producer.send_many(topic, [b"a", b"b", b"c"])
        async with client.consumer(group, topic) as consumer:
            first = [await asyncio.wait_for(anext(consumer), 60) for _ in range(3)]
            await consumer.nack([first[0], first[2]], delay=0)
            again = [await asyncio.wait_for(anext(consumer), 60) for _ in range(2)]
            assert [(each.value, each.deliveries) for each in again] == [(b"a", 2), (b"c", 2)]
            await consumer.ack(again)
            assert not first[1].lost
            assert not any(each.lost for each in again)
            assert (await client.describe_group(group)).lag == 1
            await first[1].ack()
            assert (await client.describe_group(group)).lag == 0
