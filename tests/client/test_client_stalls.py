"""A broker that is stopped in the middle: memory stays bounded, and messages go through or fail on time."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from doubles.async_tests import until

from goqueue import AsyncClient
from goqueue.model.errors import BrokerUnavailable, BufferFull, DeliveryTimeout
from goqueue.testing import BrokerProcess, running_broker

MIB = 1 << 20


@contextmanager
def stopped(broker: BrokerProcess) -> Iterator[None]:
    """The process exists and does nothing, as on a machine that is stuck."""
    os.kill(broker.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.process.pid, signal.SIGCONT)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def warm(client: AsyncClient, topic: str) -> None:
    async with client.producer() as producer:
        await producer.send_many(topic, [b"warm"])


async def test_a_producer_told_not_to_wait_raises_when_its_buffer_is_full(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client:
        await warm(client, topic)
        async with client.producer(block=False, buffer_bytes=100_000, linger_ms=0) as producer:
            with stopped(broker):
                accepted = []
                with pytest.raises(BufferFull):
                    while True:
                        accepted.append(await producer.send(topic, b"x" * 1_000))
                assert 90 <= len(accepted) <= 100
                assert producer.buffered_bytes <= 100_000
            await asyncio.gather(*accepted)
            assert producer.buffered_bytes == 0
            await (await producer.send(topic, b"again"))


async def test_a_producer_that_waits_goes_on_when_the_broker_does(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client:
        await warm(client, topic)
        async with client.producer(buffer_bytes=100_000) as producer:
            with stopped(broker):
                sending = asyncio.create_task(producer.send_many(topic, [b"x" * 1_000] * 1_000))
                await until(lambda: producer.buffered_bytes > 0)
                assert not sending.done()
            assert [place.offset for place in await sending] == list(range(1, 1_001))


async def test_memory_stays_bounded_while_the_broker_is_stopped(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client:
        await warm(client, topic)
        async with client.producer(buffer_bytes=4 * MIB, delivery_timeout_ms=700) as producer:
            most_buffered = 0
            with stopped(broker):
                before = resident_bytes()
                # Far more than the buffer: as messages time out, others take their place.
                for _ in range(16 * MIB // 10_000):
                    with suppress(DeliveryTimeout):
                        await producer.send(topic, b"x" * 10_000)
                    most_buffered = max(most_buffered, producer.buffered_bytes)
                growth = resident_bytes() - before
                print(f"{growth / MIB:.1f} MiB more")  # noqa: T201
                await producer.close()
            assert most_buffered <= 4 * MIB
            assert growth < 24 * MIB, f"{growth / MIB:.0f} MiB more for a buffer of 4 MiB"


async def test_a_message_fails_when_its_time_is_up_although_the_broker_only_stalls(
    broker: BrokerProcess, topic: str
) -> None:
    async with broker.async_client() as client:
        await warm(client, topic)
        async with client.producer(delivery_timeout_ms=200) as producer:
            with stopped(broker):
                began = asyncio.get_running_loop().time()
                sent = [await producer.send(topic, b"v") for _ in range(3)]
                for each in sent:
                    with pytest.raises(DeliveryTimeout, match="200 ms"):
                        await each
                assert asyncio.get_running_loop().time() - began < 20
            # On a busy machine also a broker that goes on may take longer than that.
            while True:
                with suppress(DeliveryTimeout):
                    await (await producer.send(topic, b"after"))
                    break


async def test_a_request_that_is_not_answered_in_time_is_sent_again(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client(request_timeout_ms=200) as client, client.producer() as producer:
        await producer.send_many(topic, [b"warm"])
        with stopped(broker):
            sent = await producer.send(topic, b"v")
            leader: Any = await client._directory.leader(topic, 0)
            # Another stream, or another connection, may get through where the first one does not.
            if broker.protocol == "grpc":
                first = leader._open_stream
                await until(lambda: first.broken)
            else:
                link = leader._link
                await until(lambda: link.ended is not None)
        await sent
    # Whether or not the first attempt arrived after all.
    async with broker.async_client() as patient:
        assert [record.value async for record in patient.read(topic)] == [b"warm", b"v"]


async def test_a_call_to_a_stalled_broker_ends_with_the_request_timeout(broker: BrokerProcess) -> None:
    async with broker.async_client(request_timeout_ms=2_000) as client:
        await client.list_topics()
        with stopped(broker), pytest.raises(DeliveryTimeout):
            await client.list_topics()


async def test_closing_a_producer_of_a_stalled_broker_ends_with_the_delivery_timeout(
    broker: BrokerProcess, topic: str
) -> None:
    async with broker.async_client() as client:
        await warm(client, topic)
        producer = client.producer(delivery_timeout_ms=200)
        with stopped(broker):
            sent = await producer.send(topic, b"v")
            await producer.close()
            with pytest.raises(DeliveryTimeout):
                await sent
            assert producer.buffered_bytes == 0


async def test_a_broker_that_nobody_can_reach_is_an_error_within_the_connect_timeout() -> None:
    async with AsyncClient("127.0.0.1:1", connect_timeout_ms=200) as client:
        began = asyncio.get_running_loop().time()
        with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1"):
            await client.list_topics()
        async with client.producer() as producer:
            with pytest.raises(BrokerUnavailable):
                await producer.send("t", b"v")
        assert asyncio.get_running_loop().time() - began < 10


async def test_sending_goes_on_into_the_buffer_while_the_broker_is_away(tmp_path: Path) -> None:
    with running_broker(tmp_path) as first:
        async with first.async_client() as client, client.producer(linger_ms=0) as producer:
            await client.create_topic("t", partitions=1)
            await producer.send_many("t", [b"before"])
            first.kill()
            sent = [await producer.send("t", b"%d" % number) for number in range(100)]
            # Let attempts fail, so that what is known of the topic is in doubt, and send more.
            await until(lambda: client._directory._leaders["t"].stale_at == 0)
            sent += [await producer.send("t", b"%d" % number) for number in range(100, 200)]
            with running_broker(tmp_path, grpc_port=first.grpc_port):
                assert [(await each).offset for each in sent] == list(range(1, 201))
