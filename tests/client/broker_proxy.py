"""A network between client and broker that can lose answers and connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from goqueue import AsyncClient
from goqueue.testing import BrokerProcess


class BrokerProxy:
    """Passes everything on. While it is deaf, the broker's answers stop here; a cut loses them for good."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._answers_pass = asyncio.Event()
        self._answers_pass.set()
        self._open: set[asyncio.StreamWriter] = set()
        self.address = ""

    def client(self, **options: Any) -> AsyncClient:
        client = AsyncClient(self.address, **{"retry_backoff_ms": 5} | options)
        connection = client._directory.connection
        # Also when the broker tells where it is itself.
        client._directory.connection = lambda _: connection(self.address)  # type: ignore[method-assign]
        return client

    def go_deaf(self) -> None:
        self._answers_pass.clear()

    def cut(self) -> None:
        """All connections break, and new ones are heard."""
        for writer in self._open:
            writer.transport.abort()
        self._open = set()
        self._answers_pass.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to_broker, from_broker = await asyncio.open_connection("127.0.0.1", self._broker.grpc_port)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, from_broker}
        self._open |= both
        asked = asyncio.create_task(self._pass_on(reader, from_broker, None))
        answered = asyncio.create_task(self._pass_on(to_broker, writer, self._answers_pass))
        await asyncio.wait([asked, answered], return_when=asyncio.FIRST_COMPLETED)
        for task in (asked, answered):
            task.cancel()
        await asyncio.gather(asked, answered, return_exceptions=True)
        for each in both:
            each.transport.abort()
        self._open -= both

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event | None
    ) -> None:
        while some := await reader.read(1 << 16):
            if gate is not None and not gate.is_set():
                await gate.wait()
                if writer.transport.is_closing():
                    return
            writer.write(some)
            await writer.drain()


@asynccontextmanager
async def proxied(broker: BrokerProcess) -> AsyncIterator[BrokerProxy]:
    proxy = BrokerProxy(broker)
    server = await asyncio.start_server(proxy._accept, "127.0.0.1", 0)
    proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        await server.wait_closed()
