"""Reading, working and writing as one: acks and offsets of consumers in a producer's transactions."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest
from held_calls import HeldCalls

from goqueue import AsyncClient, AsyncConsumer, Outgoing, Record, TopicPartition
from goqueue.model.errors import InvalidRequest, StaleReceipt, TransactionAborted, TransactionConflict
from goqueue.testing import BrokerProcess


async def values(client: AsyncClient, topic: str) -> list[bytes]:
    return [record.value async for record in client.read(topic)]


async def publish(client: AsyncClient, topic: str, *sent: bytes) -> None:
    async with client.producer() as producer:
        await producer.send_many(topic, sent)


async def polled(consumer: AsyncConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found += await consumer.poll(count - len(found))
    return found


def streaming(client: AsyncClient, group: str, topic: str, **options: Any) -> AsyncConsumer:
    return client.consumer(group, topic, mode="stream", kind="range", auto_commit=False, **options)


async def test_a_message_that_is_acked_in_a_transaction_is_done_when_that_is_committed(
    broker: BrokerProcess, topic: str, wide_topic: str, group: str
) -> None:
    async with broker.async_client() as client, client.producer(transactional_id=group) as producer:
        await publish(client, topic, b"1", b"2", b"3")
        async with client.consumer(group, topic, visibility_timeout_ms=5_000) as consumer:
            messages = await polled(consumer, 3)
            leases = {message._lease for message in messages}
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction() as tx, messages[0] as message:
                    await tx.send(wide_topic, b"never")
                    await tx.ack(message)
                    await tx.ack(messages[1:])
                    # Nobody extends or acks what is the transaction's.
                    assert all(each.settled for each in messages)
                    assert not any(lease.left for lease in leases)
                    assert not len(consumer._keeper)
                    raise ZeroDivisionError
            again = await polled(consumer, 3)
            assert sorted(each.value for each in again) == [b"1", b"2", b"3"]
            assert {each.deliveries for each in again} == {2}
            async with producer.transaction() as tx:
                for message in again:
                    async with message:
                        await tx.send(wide_topic, message.value)
                        await tx.ack(message)
                assert (await client.describe_transaction(tx.id)).groups == [group]
            assert (await client.group_offsets(group))[TopicPartition(topic, 0)] == 3
        assert sorted(await values(client, wide_topic)) == [b"1", b"2", b"3"]


async def test_what_was_settled_before_cannot_be_acked_in_a_transaction(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        await publish(client, topic, b"1", b"2")
        async with client.consumer(group, topic) as consumer:
            first, second = await polled(consumer, 2)
            await first.ack()
            tx = await producer.begin()
            with pytest.raises(StaleReceipt):
                await tx.ack([first, second])
            await tx.ack([second])
            with pytest.raises(StaleReceipt):
                await tx.ack([second])
            await tx.commit()
            assert (await client.group_offsets(group))[TopicPartition(topic, 0)] == 2


async def test_acks_that_the_broker_refuses_leave_the_messages_in_hand(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        await publish(client, topic, b"1")
        async with client.consumer(group, topic) as consumer:
            [message] = await polled(consumer, 1)
            tx = await producer.begin()
            await tx.send_many(topic, [b"never"])
            await client.abort_transaction(tx.id)
            with pytest.raises(TransactionAborted):
                await tx.ack(message)
            assert not message.settled
            await message.ack()
            with pytest.raises(TransactionAborted):
                await tx.commit()


async def test_acks_of_several_groups_are_taken_all_or_none(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        await publish(client, topic, b"1")
        async with client.consumer(group, topic) as one, client.consumer(f"{group}-2", topic) as other:
            [first], [second] = await polled(one, 1), await polled(other, 1)
            second._lease.lose({second.offset})
            tx = await producer.begin()
            with pytest.raises(StaleReceipt):
                await tx.ack([first, second])
            assert not first.settled
            # Nothing has happened yet, so the rest can be committed.
            await tx.ack(first)
            await tx.commit()
            assert (await client.group_offsets(group))[TopicPartition(topic, 0)] == 1


async def test_acks_behind_those_that_the_broker_refuses_are_in_hand_too(
    broker: BrokerProcess, wide_topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One lease in each request.
    monkeypatch.setattr("goqueue.client.consumer.settler.MAX_LEASES", 1)
    async with broker.async_client() as client, client.producer() as producer:
        await producer.send_many(wide_topic, [Outgoing(b"%d" % at, partition=at) for at in range(4)])
        async with client.consumer(group, wide_topic) as consumer:
            messages = await polled(consumer, 4)
            tx = await producer.begin()
            await tx.ack(messages[0])
            await client.abort_transaction(tx.id)
            with pytest.raises(TransactionAborted):
                await tx.ack(messages[1:])
            assert [message.settled for message in messages] == [True, False, False, False]
            for message in messages[1:]:
                await message.ack()


async def test_a_commit_waits_for_acks_that_are_under_way(
    broker: BrokerProcess, topic: str, wide_topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        await publish(client, topic, b"1")
        async with client.consumer(group, topic) as consumer:
            [message] = await polled(consumer, 1)
            tx = await producer.begin()
            await tx.send_many(wide_topic, [b"out"])
            held = HeldCalls(monkeypatch, "AddAcks")
            acking = asyncio.create_task(tx.ack(message))
            await held.reached.wait()
            committing = asyncio.create_task(tx.commit())
            # Time enough for a commit that does not wait.
            for _ in range(5):
                assert await values(client, wide_topic) == []
            held.go.set()
            await asyncio.gather(acking, committing)
            assert (await client.group_offsets(group))[TopicPartition(topic, 0)] == 1


async def test_consumers_of_another_client_have_no_part_in_a_transaction(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with (
        broker.async_client() as client,
        broker.async_client() as other,
        client.producer() as producer,
        other.consumer(group, topic) as queue,
        streaming(other, f"{group}-stream", topic) as stream,
    ):
        await publish(client, topic, b"1")
        [message], _ = await polled(queue, 1), await polled(stream, 1)
        async with producer.transaction() as tx:
            with pytest.raises(InvalidRequest, match="another client"):
                await tx.ack(message)
            with pytest.raises(InvalidRequest, match="another client"):
                await tx.commit_offsets(stream)
        assert not message.settled
        await message.ack()


async def test_offsets_are_committed_with_the_transaction(
    broker: BrokerProcess, topic: str, wide_topic: str, group: str
) -> None:
    place = TopicPartition(topic, 0)
    async with broker.async_client() as client, client.producer(transactional_id=group) as producer:
        await publish(client, topic, *(b"%d" % number for number in range(6)))
        async with streaming(client, group, topic) as consumer:
            records = await polled(consumer, 3)
            async with producer.transaction() as tx:
                await tx.send_many(wide_topic, [record.value for record in records])
                await tx.commit_offsets(consumer)
                assert (await client.group_offsets(group))[place] == 0
            assert (await client.group_offsets(group))[place] == 3
            records = await polled(consumer, 3)
            async with producer.transaction() as tx:
                await tx.commit_offsets(consumer, records[0])
            assert (await client.group_offsets(group))[place] == 4
            # What is committed already is not news.
            await consumer.commit(records[0])
        assert await values(client, wide_topic) == [b"0", b"1", b"2"]


@asynccontextmanager
async def two_topics(client: AsyncClient, group: str, topic: str) -> Any:
    """A consumer that has read some of two partitions, and has more of both at hand."""
    other = f"{topic}-other"
    await client.create_topic(other, partitions=1)
    for name in (topic, other):
        await publish(client, name, *(b"%d" % number for number in range(10)))
    consumer = client.consumer(group, [topic, other], mode="stream", kind="range", auto_commit=False)
    async with consumer:
        yield consumer, other


async def test_after_an_abort_a_consumer_reads_again_what_was_part_of_it_and_nothing_else(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with (
        broker.async_client() as client,
        client.producer() as producer,
        two_topics(client, group, topic) as (consumer, other),
    ):
        seen: dict[str, list[int]] = {topic: [], other: []}
        while not (seen[topic] and seen[other]):
            for record in await consumer.poll(4):
                seen[record.topic].append(record.offset)
        last = max(seen[topic])
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as tx:
                await tx.commit_offsets(consumer, _record(topic, last))
                raise ZeroDivisionError
        again: dict[str, list[int]] = {topic: [], other: []}
        async with asyncio.timeout(30):
            while len(again[topic]) < 10 or len(seen[other]) + len(again[other]) < 10:
                for record in await consumer.poll(4):
                    again[record.topic].append(record.offset)
        assert again[topic] == list(range(10))
        assert seen[other] + again[other] == list(range(10))


def _record(topic: str, offset: int) -> Record:
    return Record(topic, 0, offset, 0, None, b"", (), 2)


async def test_a_loop_of_transactions_that_fail_now_and_then_handles_every_record_once(
    broker: BrokerProcess, topic: str, wide_topic: str, group: str
) -> None:
    async with broker.async_client() as client, client.producer(transactional_id=group) as producer:
        await publish(client, topic, *(b"%d" % number for number in range(40)))
        async with streaming(client, group, topic, prefetch_batches=1) as consumer:
            done = attempts = 0
            while done < 40:
                records = await consumer.poll(7)
                attempts += 1
                try:
                    async with producer.transaction() as tx:
                        await tx.commit_offsets(consumer)
                        await tx.send_many(wide_topic, [record.value for record in records])
                        if attempts % 3 == 0:
                            raise ZeroDivisionError
                        if attempts % 5 == 1:
                            await client.abort_transaction(tx.id)
                except (ZeroDivisionError, TransactionAborted):
                    continue
                done += len(records)
        assert sorted(map(int, await values(client, wide_topic))) == list(range(40))


async def test_a_consumer_can_go_back_to_what_is_committed(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client:
        await publish(client, topic, *(b"%d" % number for number in range(6)))
        async with streaming(client, group, topic) as consumer:
            records = await polled(consumer, 4)
            await consumer.commit(records[1])
            consumer.rewind()
            assert [record.offset for record in await polled(consumer, 4)] == [2, 3, 4, 5]
        async with client.consumer(f"{group}-queue", topic) as queue:
            with pytest.raises(InvalidRequest, match="delivered again"):
                queue.rewind()


async def test_offsets_that_cannot_be_part_of_a_transaction_say_why(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        await publish(client, topic, b"1")
        async with client.consumer(group, topic, mode="stream", kind="range") as consumer:
            await polled(consumer, 1)
            tx = await producer.begin()
            with pytest.raises(InvalidRequest, match="auto_commit=False"):
                await tx.commit_offsets(consumer)
        async with client.consumer(f"{group}-queue", topic, auto_commit=False) as queue:
            [message] = await polled(queue, 1)
            with pytest.raises(InvalidRequest, match="is a queue"):
                await tx.commit_offsets(queue)
            await message.ack()
        async with streaming(client, f"{group}-stream", topic) as stream:
            [record] = await polled(stream, 1)
            with pytest.raises(InvalidRequest, match="Record cannot be acked"):
                await tx.ack(record)
            await tx.commit_offsets(stream)
            with pytest.raises(InvalidRequest, match="cannot be prepared"):
                await tx.prepare()
            await tx.commit()
            with pytest.raises(TransactionConflict):
                await tx.commit_offsets(stream)


def test_without_an_event_loop(broker: BrokerProcess, topic: str, wide_topic: str, group: str) -> None:
    with broker.client() as client, client.producer(transactional_id=group, transaction_timeout=30) as producer:
        with producer.transaction() as tx:
            assert tx.send(topic, b"1").result().offset == 0
            tx.send_many(topic, [b"2"])
            assert [each.transaction_id for each in client.transactions() if each.transactional_id == group] == [tx.id]
            described = client.describe_transaction(tx.id)
            assert (described.deadline - described.started_at).seconds == 30
        with pytest.raises(ZeroDivisionError), producer.transaction() as tx:
            tx.send(topic, b"never")
            raise ZeroDivisionError
        with client.consumer(group, topic) as consumer, producer.transaction() as tx:
            for message in consumer:
                tx.send(wide_topic, message.value)
                tx.ack(message)
                if message.value == b"2":
                    break
        with client.consumer(f"{group}-stream", topic, mode="stream", kind="range", auto_commit=False) as stream:
            assert [next(stream).value, next(stream).value] == [b"1", b"2"]
            stream.rewind()
            assert next(stream).value == b"1"
            with producer.transaction() as tx:
                tx.commit_offsets(stream)
        assert client.group_offsets(group)[TopicPartition(topic, 0)] >= 2
        assert client.group_offsets(f"{group}-stream")[TopicPartition(topic, 0)] == 1
        with client.producer() as task:
            ids = []
            for _ in range(2):
                tx = task.begin()
                tx.send_many(topic, [b"3"])
                ids.append(tx.prepare())
            tx = task.begin()
            tx.send_many(topic, [b"no"])
            assert list(client.read(topic, start=2)) == []
            assert b"3" in [each.value for each in client.read(topic, start=2, isolation="read_uncommitted")]
            tx.abort()
            assert client.committed_under(group) is None
            assert client.commit_many(group, ids).is_new
            found = client.committed_under(group)
            assert found is not None
            assert found.transaction_ids == ids
            (tx := task.begin()).commit()
            (tx := task.begin()).send_many(topic, [b"no"])
            client.abort_transaction(tx.id)
            with pytest.raises(TransactionAborted):
                tx.commit()
            sent = task.send(topic, b"4", dedup_id="a").result(), task.send(topic, b"4", dedup_id="a").result()
            assert [each.is_duplicate for each in sent] == [False, True]
        assert [each.value for each in client.read(topic)] == [b"1", b"2", b"3", b"3", b"4"]
        assert sorted(each.value for each in client.read(wide_topic)) == [b"1", b"2"]
        assert client.transaction_stats().active == 0
