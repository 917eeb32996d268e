"""What a consumer does with what it has when it stops: nobody has seen it, so nobody's tries are used up."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from doubles.async_tests import until
from fetched import wants

from goqueue import AsyncClient, AsyncConsumer, AsyncReceivedMessage, Outgoing, TopicPartition
from goqueue.testing import BrokerProcess
from goqueue.wire.proto import goqueue_pb2 as pb


async def fill(client: AsyncClient, topic: str, count: int, partitions: int = 1) -> None:
    async with client.producer() as producer:
        await producer.send_many(
            topic, [Outgoing(b"%d" % number, partition=number % partitions) for number in range(count)]
        )


async def take(consumer: AsyncConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += await consumer.poll(count - len(found))
    return found


async def until_so(look: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await look():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def in_flight(client: AsyncClient, group: str) -> int:
    return sum(each.in_flight for each in (await client.describe_group(group)).partitions)


def count_arrivals(consumer: AsyncConsumer) -> list[int]:
    """How many deliveries each answer holds, from now on."""
    arrived: list[int] = []
    take_messages = consumer.take_messages

    def counting(response: pb.PollResponse) -> None:
        take_messages(response)
        arrived.append(len(response.deliveries))

    consumer.take_messages = counting
    return arrived


async def test_consumers_that_come_and_go_over_a_backlog_use_up_no_tries_of_what_nobody_has_seen(
    broker: BrokerProcess, wide_topic: str, group: str
) -> None:
    async with broker.async_client() as client:
        await fill(client, wide_topic, 3_000, partitions=4)
        handed_out = set()
        for _ in range(6):
            async with client.consumer(group, wide_topic, max_retries=2, max_in_flight=500) as consumer:
                message = await anext(consumer)
                handed_out.add((message.partition, message.offset))
        assert [letter async for letter in client.dead_letters(wide_topic)] == []
        async with client.consumer(group, wide_topic, max_in_flight=3_000) as consumer:
            unseen = [each for each in await take(consumer, 1_000) if (each.partition, each.offset) not in handed_out]
            assert {each.deliveries for each in unseen} == {1}


async def test_a_worker_that_stops_gives_back_what_it_has_not_begun_while_its_handlers_finish(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    begun: list[int] = []
    may_end = asyncio.Event()

    async def handle(message: AsyncReceivedMessage) -> None:
        begun.append(message.offset)
        await may_end.wait()

    async with broker.async_client() as client:
        await fill(client, topic, 200)
        first = client.consumer(group, topic, kind="shared", max_in_flight=100)
        working = asyncio.create_task(first.run(handle, concurrency=2, signals=False))
        await until(lambda: len(begun) == 2)
        first.stop_taking()
        async with client.consumer(group, topic, max_in_flight=1_000) as second:
            others = await take(second, 198)
            assert {each.deliveries for each in others} == {1}
            assert {each.offset for each in others}.isdisjoint(begun)
            await second.ack(others)
            may_end.set()
            await working
            assert (await client.describe_group(group)).lag == 0


async def test_what_comes_after_taking_has_stopped_is_given_back_as_it_comes(
    broker: BrokerProcess, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        await producer.send_many(topic, [b"0"])
        async with client.consumer(group, topic) as consumer:
            await wants(consumer, 100)
            message = await anext(consumer)
            arrived = count_arrivals(consumer)
            # The broker is asked to pause only after it has answered the poll that was waiting.
            pause = consumer._membership.pause
            monkeypatch.setattr(consumer._membership, "pause", lambda: None)
            consumer.stop_taking()
            await producer.send_many(topic, [b"%d" % number for number in range(10)])
            assert [each async for each in consumer] == []
            await until(lambda: arrived)
            pause()
            await until_so(lambda: _is(in_flight(client, group), 1))
            await message.ack()
        async with client.consumer(group, topic) as again:
            assert {each.deliveries for each in await take(again, 10)} == {1}


async def _is(asked: Awaitable[int], wanted: int) -> bool:
    return await asked == wanted


async def test_a_stopped_consumer_whose_connection_breaks_stays_stopped(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client(retry_backoff_ms=1) as client:
        await fill(client, topic, 100)
        async with client.consumer(group, topic, max_in_flight=10) as consumer:
            message = await anext(consumer)
            consumer.stop_taking()
            subscription = consumer._membership._subscription
            assert subscription is not None
            subscription.abandon()
            await message.ack()
            assert consumer._membership._subscription is not subscription
            await until_so(lambda: _is(in_flight(client, group), 0))
        async with client.consumer(group, topic) as again:
            assert {each.offset for each in await take(again, 99)} == set(range(1, 100))


async def test_closing_waits_for_a_stalled_broker_only_so_long(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 100)
        options: dict[str, Any] = {"close_timeout_ms": 50, "session_timeout_ms": 1_000}
        async with client.consumer(group, topic, **options) as consumer:
            await anext(consumer)
            os.kill(broker.process.pid, signal.SIGSTOP)
            try:
                async with asyncio.timeout(60):
                    await consumer.close()
            finally:
                os.kill(broker.process.pid, signal.SIGCONT)


async def test_a_stream_that_is_stopped_commits_what_was_handed_out_and_nothing_behind_it(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 100)
        async with client.consumer(group, topic, mode="stream") as consumer:
            seen = []
            async for record in consumer:
                seen.append(record.offset)
                if len(seen) == 10:
                    consumer.stop_taking()
            assert seen == list(range(10))
        assert list((await client.group_offsets(group)).values()) == [10]


@pytest.mark.parametrize("kind", ["range", "sticky"])
@pytest.mark.parametrize("mode", ["queue", "stream"])
async def test_a_consumer_that_restarts_under_its_instance_id_moves_nothing(
    broker: BrokerProcess, wide_topic: str, group: str, kind: Any, mode: Any
) -> None:
    told: list[list[TopicPartition]] = []
    async with broker.async_client() as client:
        one = client.consumer(group, wide_topic, kind=kind, mode=mode, instance_id="one")
        await one.start()
        other = client.consumer(group, wide_topic, on_assigned=told.append, on_revoked=told.append)
        await other.start()
        await until(lambda: len(one.assignment) == 2 and told == [other.assignment])
        had = one.assignment
        await fill(client, wide_topic, 100, partitions=4)
        await take(one, 10)
        await one.close()
        assert one.member_id in [each.member_id for each in (await client.describe_group(group)).members]
        async with client.consumer(group, wide_topic, instance_id="one") as again:
            assert (again.member_id != one.member_id, again.assignment) == (True, had)
            # Nothing waits for the visibility timeout.
            assert {(each.topic, each.partition) for each in await take(again, 10)} <= set(had)
        assert told == [other.assignment]
        await other.close()


async def test_a_consumer_with_an_instance_id_gives_back_what_it_has_though_it_stays_a_member(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 10)
        async with client.consumer(group, topic, kind="shared", instance_id="one") as one:
            [acked, unsettled] = await take(one, 2)
            pending = acked.ack()
        assert pending.done()
        assert await in_flight(client, group) == 0
        async with client.consumer(group, topic) as other:
            found = await take(other, 9)
            assert unsettled.offset in {each.offset for each in found}


async def test_a_consumer_with_an_instance_id_that_stays_away_is_taken_out_when_its_session_is_over(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client:
        async with client.consumer(group, topic, instance_id="one", session_timeout_ms=1_000):
            pass

        async def is_empty() -> bool:
            return not (await client.describe_group(group)).members

        assert not await is_empty()
        await until_so(is_empty)
