"""A client whose address leads elsewhere, or nowhere, says so soon and in words."""

from __future__ import annotations

import asyncio
import time

import pytest

from goqueue import AsyncClient
from goqueue.model.errors import BrokerUnavailable, WrongPort
from goqueue.testing import BrokerProcess
from goqueue.testing.ports import free_port

PATIENCE_S = 60
"""No test waits for it: what would be waited for is set to more."""


async def test_the_port_for_http_is_refused_at_once_and_the_right_one_is_named(broker: BrokerProcess) -> None:
    wrong = f"127.0.0.1:{broker.http_port}"
    async with AsyncClient(wrong, connect_timeout_ms=600_000) as client, asyncio.timeout(PATIENCE_S):
        with pytest.raises(WrongPort, match=rf"{wrong} speaks HTTP, .*; use 127\.0\.0\.1:{broker.grpc_port}$"):
            await client.list_topics()
        async with client.producer() as producer:
            with pytest.raises(WrongPort, match=r"use 127\.0\.0\.1:"):
                await producer.send("t", "v")
        with pytest.raises(WrongPort, match=r"use 127\.0\.0\.1:"):
            await client.consumer("g", "t").start()
    noted = [line for line in broker.log if "Invalid HTTP request" in line]
    assert len(noted) <= 3


async def test_another_server_for_http_is_told_apart_from_a_broker() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{]")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, asyncio.timeout(PATIENCE_S):
        host, port = server.sockets[0].getsockname()
        async with AsyncClient(f"{host}:{port}", connect_timeout_ms=600_000) as client:
            with pytest.raises(WrongPort, match=r"use 127.0.0.1 with the broker's port for gRPC \(9090 unless"):
                await client.list_topics()


@pytest.mark.parametrize("many", [False, True])
async def test_sending_without_a_broker_ends_with_the_delivery_timeout(many: bool) -> None:
    async with (
        AsyncClient(f"127.0.0.1:{free_port()}", connect_timeout_ms=600_000) as client,
        client.producer(delivery_timeout_ms=300) as producer,
        asyncio.timeout(PATIENCE_S),
    ):
        began = time.monotonic()
        with pytest.raises(
            BrokerUnavailable, match=r"nothing was sent: no broker told within 300 ms .*'t' has"
        ) as raised:
            await (producer.send_many("t", ["v"]) if many else producer.send("t", "v"))
        assert time.monotonic() - began >= 0.3
    # What gRPC says of it is shortened to what is of use.
    assert "(127.0.0.1:" in str(raised.value) and "cannot be reached: Connection refused)" in str(raised.value)
    assert "ipv4" not in str(raised.value)
