"""A consumer under a broker that goes away: killed, stopped, stalled, or out of reach for too long."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from doubles.async_tests import until
from doubles.connections import wrap
from fetched import fetched

from goqueue import AsyncClient
from goqueue.model.errors import BrokerUnavailable, DeliveryTimeout, MemberFenced
from goqueue.testing import BrokerProcess, running_broker
from goqueue.wire.proto import goqueue_pb2 as pb

SETTINGS = {"storage.min_free_bytes": 0}


async def fill(client: AsyncClient, topic: str, count: int) -> None:
    async with client.producer() as producer:
        await producer.send_many(topic, [b"%d" % number for number in range(count)])


@contextmanager
def restarted(broker: BrokerProcess) -> Iterator[BrokerProcess]:
    """The same broker, killed and started again."""
    broker.kill()
    with running_broker(broker.data, grpc_port=broker.grpc_port, settings=SETTINGS) as again:
        yield again


async def test_a_queue_goes_on_after_the_broker_was_killed(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data", settings=SETTINGS) as broker:
        async with broker.async_client() as client:
            await client.create_topic("t", partitions=2)
            await fill(client, "t", 100)
            async with client.consumer("g", "t", max_in_flight=20, visibility_timeout_ms="10m") as consumer:
                member = consumer.member_id
                before = []
                while len(before) < 10:
                    before += await consumer.poll(10 - len(before))
                await consumer.ack(before[:5])
                with restarted(broker):
                    # Said while nobody is there, of messages that were delivered by the process that is gone.
                    await consumer.ack(before[5:])
                    handled = [(each.partition, each.offset) for each in before]
                    while len(handled) < 100:
                        batch = await consumer.poll()
                        handled += [(each.partition, each.offset) for each in batch]
                        await consumer.ack(batch)
                    assert len(set(handled)) == 100
                    assert consumer.member_id == member
                    assert (await client.describe_group("g")).lag == 0
                    await consumer.close()


async def test_a_stream_goes_on_after_the_broker_was_killed_without_a_gap_or_a_repetition(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data", settings=SETTINGS) as broker:
        async with broker.async_client() as client:
            await client.create_topic("t", partitions=1)
            await fill(client, "t", 5_000)
            consumer = client.consumer("g", "t", mode="stream", prefetch_batches=1)
            seen = [each.offset for each in await consumer.poll(100)]
            with restarted(broker):
                await until(lambda: consumer._membership.is_connected)
                while len(seen) < 5_000:
                    seen += [each.offset for each in await consumer.poll(1_000)]
                assert seen == list(range(5_000))
                await consumer.commit()
                assert list((await client.group_offsets("g")).values()) == [5_000]
                await consumer.close()


async def test_a_stream_whose_connection_breaks_goes_on_without_a_gap_or_a_repetition(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client(retry_backoff_ms=1) as client:
        await fill(client, topic, 50_000)
        async with client.consumer(group, topic, mode="stream", prefetch_batches=16) as consumer:
            seen: list[int] = []
            while len(seen) < 50_000:
                batch = await consumer.poll(500, timeout=10)
                assert batch, f"nothing more after {len(seen)} records"
                seen += [each.offset for each in batch]
                subscription = consumer._membership._subscription
                if len(seen) % 10_000 == 0 and subscription is not None:
                    subscription.abandon()
            assert seen == list(range(50_000))


async def test_what_is_lost_with_a_connection_comes_again_at_once_and_does_not_count_and_nothing_else_comes_again(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client(retry_backoff_ms=1) as client:
        await fill(client, topic, 10_000)
        options = {"visibility_timeout_ms": "10m", "max_in_flight": 1_000}
        async with client.consumer(group, topic, **options) as consumer:
            seen: list[int] = []
            slow: list[Any] = []
            acked: list[asyncio.Future[None]] = []
            breaks = 0
            while len(seen) < 10_000:
                batch = await consumer.poll(50)
                assert {each.deliveries for each in batch} == {1}
                seen += [each.offset for each in batch]
                # One of each batch is still being handled when the connection breaks.
                slow.append(batch[0])
                acked.append(consumer.ack(batch[1:]))
                if len(slow) == 20:
                    acked.append(consumer.ack(slow))
                    slow = []
                subscription = consumer._membership._subscription
                if len(seen) // 500 > breaks and subscription is not None:
                    breaks += 1
                    subscription.abandon()
            await asyncio.gather(consumer.ack(slow), *acked)
            assert breaks > 5
            assert sorted(seen) == list(range(10_000))
            assert (await client.describe_group(group)).lag == 0


async def test_a_member_whose_older_stream_is_taken_up_late_goes_on(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client(retry_backoff_ms=1) as client:
        await fill(client, topic, 2)
        async with client.consumer(group, topic) as consumer:
            first, second = await consumer.poll()
            waiting = asyncio.create_task(anext(consumer))
            membership = consumer._membership
            for message in (first, second):
                subscription = membership._subscription
                assert subscription is not None
                # As a broker does that was stalled: it takes up a join that was given up long ago.
                late = subscription.connection.subscribe()
                join = membership._terms.request(consumer.member_id, consumer.held())
                await late.write(pb.SubscribeRequest(join=join))
                # Said while the stream is being ended.
                acked = message.ack()
                await asyncio.shield(subscription.ended)
                await acked
                late.cancel()
            await fill(client, topic, 1)
            assert (await waiting).offset == 2
            assert [each.member_id for each in (await client.describe_group(group)).members] == [consumer.member_id]


async def test_a_broker_that_stops_in_good_order_is_waited_for(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data", settings=SETTINGS) as broker:
        async with broker.async_client() as client:
            await client.create_topic("t", partitions=1)
            await fill(client, "t", 1)
            async with client.consumer("g", "t") as consumer:
                [message] = await consumer.poll()
                waiting = asyncio.create_task(consumer.poll())
                assert broker.stop() == 0
                with running_broker(broker.data, grpc_port=broker.grpc_port, settings=SETTINGS):
                    await message.ack()
                    await fill(client, "t", 1)
                    [second] = await waiting
                    assert second.offset == 1
                    await consumer.close()


async def test_what_is_said_to_a_stalled_broker_arrives_when_it_goes_on(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client(request_timeout_ms=200) as client:
        await fill(client, topic, 2)
        async with client.consumer(group, topic) as consumer:
            first, second = await consumer.poll()
            subscription = consumer._membership._subscription
            assert subscription is not None
            os.kill(broker.process.pid, signal.SIGSTOP)
            try:
                acked, nacked = first.ack(), second.nack(delay=60)
                await until(subscription.ended.done)
            finally:
                os.kill(broker.process.pid, signal.SIGCONT)
            await asyncio.gather(acked, nacked)
            async with broker.async_client() as patient:
                found = await patient.describe_group(group)
            assert (found.partitions[0].in_flight, found.partitions[0].waiting, found.lag) == (0, 1, 1)


async def test_settling_fails_when_its_time_is_up(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data", settings=SETTINGS) as broker:
        async with broker.async_client() as client:
            await client.create_topic("t", partitions=1)
            await fill(client, "t", 1)
            consumer = client.consumer("g", "t", settle_timeout_ms=50, close_timeout_ms=50)
            [message] = await consumer.poll()
            broker.kill()
            with pytest.raises(DeliveryTimeout, match="settle_timeout_ms"):
                await message.ack()
            # Neither does closing wait for ever.
            await consumer.close()


async def test_joining_a_broker_that_is_not_there_fails_when_the_connect_timeout_is_over() -> None:
    async with AsyncClient("127.0.0.1:1", connect_timeout_ms=100) as client:
        with pytest.raises(BrokerUnavailable):
            await client.consumer("g", "t").start()


async def test_a_member_that_was_silent_for_too_long_joins_anew(
    broker: BrokerProcess, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 3)
        async with client.consumer(group, topic, session_timeout_ms=1_000) as consumer:
            member = consumer.member_id
            await fetched(consumer, 3)
            assert len(await consumer.poll(1)) == 1

            def unreachable(_: Any) -> Any:
                raise BrokerUnavailable("the network is down")

            with monkeypatch.context() as cut:
                wrap(cut, "subscribe", lambda _: unreachable)
                subscription = consumer._membership._subscription
                assert subscription is not None
                subscription.abandon()
                async with asyncio.timeout(30):
                    while (await client.describe_group(group)).members:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
            await until(lambda: consumer.member_id != member)
            # What it had was given back; the two that waited here are not handed out from the old delivery.
            again = []
            while len(again) < 3:
                again += await consumer.poll()
            assert {each.offset: each.deliveries for each in again} == {0: 2, 1: 2, 2: 2}
            await consumer.ack(again)


async def test_a_member_that_is_replaced_by_another_process_is_told(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 1)
        async with client.consumer(group, topic, instance_id="one") as old:
            [message] = await old.poll()
            waiting = asyncio.create_task(anext(old))
            async with client.consumer(group, topic, instance_id="one") as new:
                with pytest.raises(MemberFenced):
                    await waiting
                with pytest.raises(MemberFenced):
                    await old.poll()
                with pytest.raises(MemberFenced):
                    await message.ack()
                assert [each.offset for each in await new.poll()] == [0]
