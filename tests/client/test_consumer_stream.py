from __future__ import annotations

import asyncio
from typing import Any

import pytest
from doubles.async_tests import until

from goqueue import AsyncClient, AsyncConsumer, Outgoing, Record, TopicPartition, from_json
from goqueue.model.errors import InvalidRequest, NotAssigned
from goqueue.testing import BrokerProcess


async def fill(client: AsyncClient, topic: str, count: int, partitions: int = 1) -> None:
    async with client.producer() as producer:
        await producer.send_many(
            topic, [Outgoing(b"%d" % number, partition=number % partitions) for number in range(count)]
        )


def stream(client: AsyncClient, group: str, topic: str, **options: Any) -> AsyncConsumer:
    return client.consumer(group, topic, mode="stream", **options)


async def committed(client: AsyncClient, group: str) -> dict[int, int]:
    return {place.partition: offset for place, offset in (await client.group_offsets(group)).items()}


async def test_records_come_in_order_within_each_partition(broker: BrokerProcess, wide_topic: str, group: str) -> None:
    async with broker.async_client() as client:
        await fill(client, wide_topic, 4_000, 4)
        seen: dict[int, list[int]] = {}
        async with stream(client, group, wide_topic, prefetch_batches=1) as consumer:
            async for record in consumer:
                assert isinstance(record, Record)
                seen.setdefault(record.partition, []).append(int(record.value))
                if sum(map(len, seen.values())) == 4_000:
                    break
        assert seen == {each: list(range(each, 4_000, 4)) for each in range(4)}


async def test_closing_commits_what_is_finished_and_leaving_in_good_order_all_that_was_handed_out(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 10)
        async with stream(client, group, topic) as consumer:
            assert [(await anext(consumer)).offset for _ in range(4)] == [0, 1, 2, 3]
            # The last one is still in hand.
            await consumer.close()
        assert await committed(client, group) == {0: 3}
        async with stream(client, group, topic) as consumer:
            assert [each.offset for each in await consumer.poll(2)] == [3, 4]
            assert [each.offset for each in await consumer.poll(2)] == [5, 6]
        assert await committed(client, group) == {0: 7}
        async with stream(client, group, topic) as consumer:
            assert [each.offset for each in await consumer.poll(3)] == [7, 8, 9]
            # Asking for more is what tells that these are finished.
            assert await consumer.poll(timeout=0.02) == []
        assert await committed(client, group) == {0: 10}


async def test_finished_records_are_committed_while_it_goes_on(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 10)
        async with stream(client, group, topic, auto_commit_ms=10) as consumer:
            for _ in range(6):
                await anext(consumer)
            async with asyncio.timeout(30):
                while await committed(client, group) != {0: 5}:  # noqa: ASYNC110
                    await asyncio.sleep(0)


async def test_committing_by_hand(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 10)
        async with stream(client, group, topic, auto_commit=False) as consumer:
            records = [await anext(consumer) for _ in range(5)]
            await consumer.commit(records[2])
            assert await committed(client, group) == {0: 3}
            await consumer.commit()
            assert await committed(client, group) == {0: 5}
            await consumer.poll(2)
            await consumer.commit()
            assert await committed(client, group) == {0: 7}
            await consumer.poll(2)
        assert await committed(client, group) == {0: 7}


async def test_a_deserializer_that_fails_does_not_end_the_stream(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        await producer.send_many(topic, ["1", "{", "3", "{", "5"])
        async with stream(client, group, topic, deserializer=from_json) as consumer:
            assert (await anext(consumer)).value == 1
            with pytest.raises(ValueError, match="truncated"):
                await anext(consumer)
            assert [each.value for each in await consumer.poll()] == [3]
            with pytest.raises(ValueError, match="truncated"):
                await consumer.poll()
            assert [each.value for each in await consumer.poll()] == [5]


async def test_a_group_may_begin_at_the_end(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        await fill(client, topic, 3)
        async with stream(client, group, topic, start="latest") as consumer:
            await (await producer.send(topic, b"new"))
            assert (await anext(consumer)).value == b"new"


async def test_callbacks_hear_of_partitions_that_come_and_go(
    broker: BrokerProcess, wide_topic: str, group: str
) -> None:
    async with broker.async_client() as client:
        events: list[tuple[str, list[int]]] = []

        async def assigned(places: list[TopicPartition]) -> None:
            events.append(("one+", [each.partition for each in places]))

        def revoked(places: list[TopicPartition]) -> None:
            events.append(("one-", [each.partition for each in places]))

        options: dict[str, Any] = {"kind": "sticky"}
        async with stream(client, group, wide_topic, on_assigned=assigned, on_revoked=revoked, **options) as one:
            assert events == [("one+", [0, 1, 2, 3])]
            async with stream(client, group, wide_topic, **options) as other:
                await until(lambda: len(one.assignment) == len(other.assignment) == 2)
                await until(lambda: len(events) == 2)
                gone = events[1]
                assert gone[0] == "one-"
                assert gone[1] == [each.partition for each in other.assignment]
            await until(lambda: len(events) == 3)
            assert events[2] == ("one+", gone[1])
        assert events[3] == ("one-", [0, 1, 2, 3])


async def test_a_partition_that_moves_is_finished_and_committed_before_the_next_owner_goes_on(
    broker: BrokerProcess, wide_topic: str, group: str
) -> None:
    async with broker.async_client() as client:
        await fill(client, wide_topic, 2_000, 4)
        # Nobody waits for the deadline, or this test would.
        options: dict[str, Any] = {"kind": "sticky", "handover_timeout_ms": "10m"}
        revoked: list[TopicPartition] = []
        seen: list[tuple[int, int]] = []
        async with stream(client, group, wide_topic, on_revoked=revoked.extend, **options) as one:
            seen += [(each.partition, each.offset) for each in await one.poll(10)]
            async with stream(client, group, wide_topic, **options) as other:
                async with asyncio.timeout(30):
                    # The first may be done with all of it before the others' share has moved.
                    while len(seen) < 2_000 or len(other.assignment) < 2:
                        for consumer in (one, other):
                            batch = await consumer.poll(50, timeout=0.01)
                            seen += [(each.partition, each.offset) for each in batch]
                assert len(other.assignment) == 2
                assert revoked == other.assignment
                assert len(seen) == len(set(seen)) == 2_000
                # Asking for more is what tells that these are finished.
                assert [await each.poll(timeout=0.01) for each in (one, other)] == [[], []]
        assert await committed(client, group) == dict.fromkeys(range(4), 500)


async def test_what_a_member_lost_it_cannot_commit(broker: BrokerProcess, wide_topic: str, group: str) -> None:
    async with broker.async_client() as client:
        await fill(client, wide_topic, 40, 4)
        async with stream(client, group, wide_topic, auto_commit=False) as one:
            records = {record.partition: record for record in [await anext(one) for _ in range(40)]}
            async with stream(client, group, wide_topic) as other:
                await until(lambda: len(one.assignment) == 2)
                with pytest.raises(NotAssigned):
                    await one.commit(records[other.assignment[0].partition])


async def test_a_callback_that_fails_fails_the_consumer(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 1)

        def assigned(_: object) -> None:
            raise ZeroDivisionError("in the callback")

        async with stream(client, group, topic, on_assigned=assigned) as consumer:
            with pytest.raises(ZeroDivisionError, match="in the callback"):
                await anext(consumer)


async def test_a_worker_needs_a_queue(broker: BrokerProcess, topic: str, group: str) -> None:
    async def handle(_: object) -> None:
        raise AssertionError

    async with broker.async_client() as client:
        with pytest.raises(InvalidRequest, match="queue"):
            await client.worker(handle, group=group, topics=topic, mode="stream")
