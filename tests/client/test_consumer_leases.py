from __future__ import annotations

import asyncio

import pytest
from doubles.async_tests import until
from doubles.timed_broker import TimedBroker
from fetched import fetched

from goqueue import AsyncClient, Outgoing
from goqueue.model.errors import StaleReceipt

TOPIC, GROUP = "orders", "billing"


async def fill(client: AsyncClient, count: int, **settings: int) -> None:
    await client.create_topic(TOPIC, partitions=1, **settings)
    async with client.producer() as producer:
        await producer.send_many(TOPIC, [b"%d" % number for number in range(count)])


async def until_extended(client: AsyncClient, messages: int) -> None:
    before = (await client.reliability_stats()).extensions
    while (await client.reliability_stats()).extensions < before + messages:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_a_slow_handler_keeps_its_message(timed_broker: TimedBroker) -> None:
    async with timed_broker.async_client() as client:
        await fill(client, 20)
        async with client.consumer(GROUP, TOPIC, visibility_timeout_ms=1_000) as slow:
            await fetched(slow, 20)
            [first] = await slow.poll(1)
            # Those that wait behind it are kept as well: for longer than the timeout, all in all.
            for _ in range(4):
                await until_extended(client, 20)
                await timed_broker.let_pass(900)
            await until_extended(client, 20)
            assert (await client.reliability_stats()).visibility_timeouts == 0
            await first.ack()
            rest = await slow.poll(20)
            assert [each.deliveries for each in rest] == [1] * 19
            await slow.ack(rest)
            assert len(slow._keeper) == 0
        assert (await client.describe_group(GROUP)).lag == 0


async def test_the_topics_own_timeout_is_what_counts_if_the_group_has_none(timed_broker: TimedBroker) -> None:
    async with timed_broker.async_client() as client:
        await fill(client, 1, visibility_timeout_ms=1_000)
        async with client.consumer(GROUP, TOPIC) as consumer:
            [message] = await consumer.poll()
            assert message._lease.visibility_s == 1.0
            await until_extended(client, 3)
            assert not message.lost


async def test_a_message_that_is_not_extended_comes_again_and_the_first_receipt_is_void(
    timed_broker: TimedBroker,
) -> None:
    async with timed_broker.async_client() as client:
        await fill(client, 1)
        async with client.consumer(GROUP, TOPIC, visibility_timeout_ms=30_000, max_lease_ms=0) as consumer:
            [first] = await consumer.poll()
            await timed_broker.let_pass(31_000)
            [again] = await consumer.poll()
            assert (again.offset, again.deliveries) == (0, 2)
            with pytest.raises(StaleReceipt):
                await first.ack()
            assert first.lost
            assert not again.lost
            await again.ack()


async def test_a_message_that_is_lost_knows_it_and_those_behind_it_are_dropped(timed_broker: TimedBroker) -> None:
    async with timed_broker.async_client() as client:
        await fill(client, 3)
        async with client.consumer(GROUP, TOPIC, visibility_timeout_ms=200) as consumer:
            await fetched(consumer, 3)
            [first] = await consumer.poll(1)
            await client.reset_offsets(GROUP, TOPIC, "earliest")
            await until(lambda: first.lost)
            with pytest.raises(StaleReceipt):
                await first.ack()
            # Two of the first delivery still waited here; now all three come once.
            again = await consumer.poll(3)
            assert [each.offset for each in again] == [0, 1, 2]
            await consumer.ack(again)
        assert (await client.describe_group(GROUP)).lag == 0


async def test_one_request_extends_everything(timed_broker: TimedBroker) -> None:
    async with timed_broker.async_client() as client:
        await client.create_topic(TOPIC, partitions=4)
        async with client.producer() as producer:
            await producer.send_many(TOPIC, [Outgoing(b"v", partition=number % 4) for number in range(40)])
        async with client.consumer(GROUP, TOPIC, visibility_timeout_ms=300) as consumer:
            asked: list[int] = []
            settle = consumer._keeper._settle

            async def counting(request: object) -> object:
                asked.append(len(request.leases))  # type: ignore[attr-defined]
                return await settle(request)  # type: ignore[arg-type]

            consumer._keeper._settle = counting  # type: ignore[assignment]
            await fetched(consumer, 40)
            await until(lambda: len(asked) >= 3)
            assert asked[-1] == len(consumer._keeper) > 1


async def test_a_message_is_not_kept_for_ever(timed_broker: TimedBroker) -> None:
    async with timed_broker.async_client() as client:
        await fill(client, 1)
        async with client.consumer(GROUP, TOPIC, visibility_timeout_ms=150, max_lease_ms=200) as consumer:
            [stuck] = await consumer.poll()
            await until(lambda: not len(consumer._keeper))
            await timed_broker.let_pass(1_000)
            [again] = await consumer.poll()
            assert (again.offset, again.deliveries) == (0, 2)
            with pytest.raises(StaleReceipt):
                await stuck.ack()


async def test_extending_by_hand(timed_broker: TimedBroker) -> None:
    async with timed_broker.async_client() as client:
        await fill(client, 1)
        async with client.consumer(GROUP, TOPIC, visibility_timeout_ms=30_000) as consumer:
            [message] = await consumer.poll()
            await message.extend(60)
            # From here on it is not extended any more, and it stays hidden all the same.
            await consumer._keeper.stop()
            await timed_broker.let_pass(50_000)
            assert (await client.reliability_stats()).visibility_timeouts == 0
            await message.ack()
        assert (await client.describe_group(GROUP)).lag == 0


async def test_an_ack_that_comes_after_another_consumer_has_rejected_the_message_is_an_error(
    timed_broker: TimedBroker,
) -> None:
    async with timed_broker.async_client() as client:
        await fill(client, 1)
        options = {"kind": "shared", "visibility_timeout_ms": 30_000}
        async with client.consumer(GROUP, TOPIC, max_lease_ms=0, **options) as slow:
            [late] = await slow.poll()
            slow.stop_taking()
            async with client.consumer(GROUP, TOPIC) as other:
                await timed_broker.let_pass(31_000)
                [again] = await other.poll()
                await again.reject("no")
                while not (await client.reliability_stats()).dead_letters:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                assert (await client.redrive(TOPIC, group=GROUP)).redriven == 1
                with pytest.raises(StaleReceipt, match="settled already"):
                    await late.ack()
                [second_life] = await other.poll()
                assert second_life.offset == 1
                await second_life.ack()
