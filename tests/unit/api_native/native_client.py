"""A raw client of the native protocol: what is sent and received is seen by the test."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from goqueue.api.native.server import NativeServer
from goqueue.broker.broker import Broker
from goqueue.wire.native.decoder import Decoder
from goqueue.wire.native.message import PREFACE, Message, MessageFlag, Piece, pack
from goqueue.wire.native.operations import CALLS, Operation
from goqueue.wire.native.publish import Entry, dump_publish, load_published
from goqueue.wire.proto import goqueue_pb2 as pb

_NUMBERS = {name: number for number, name in CALLS.items()}
LIMIT = 32 << 20


class NativeClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = Decoder(LIMIT)
        self._received: deque[Message] = deque()

    def send(self, operation: int, correlation: int, head: Piece = b"", payload: Piece = b"", flags: int = 0) -> None:
        self.writer.write(b"".join(pack(operation, flags, correlation, head, [payload])))

    async def receive(self) -> Message:
        """The next message; ``EOFError`` when the connection has ended."""
        while not self._received:
            data = await self.reader.read(1 << 16)
            if not data:
                raise EOFError
            self._received.extend(self._decoder.feed(data))
        return self._received.popleft()

    async def greet(self, **hello: Any) -> Message:
        request = pb.Hello(**{"min_version": 1, "max_version": 1, "client_id": "test"} | hello)
        self.writer.write(PREFACE)
        self.send(Operation.HELLO, 1, payload=request.SerializeToString())
        return await self.receive()

    def publish(
        self,
        correlation: int,
        *batches: tuple[str, int, bytes],
        acks: int = 0,
        transaction: pb.TransactionOfBatches | None = None,
    ) -> None:
        targets = [(topic.encode(), partition, len(batch)) for topic, partition, batch in batches]
        named = None if transaction is None else transaction.SerializeToString()
        self.send(
            Operation.PUBLISH,
            correlation,
            dump_publish(acks, targets, named),
            b"".join(batch for _, _, batch in batches),
        )

    async def published(self, correlation: int) -> Sequence[Entry]:
        message = await self.receive()
        assert (message.operation, message.flags) == (Operation.PUBLISH, MessageFlag.ANSWER)
        assert message.correlation == correlation
        return load_published(message.head)

    def call(self, name: str, correlation: int, request: Any) -> None:
        self.send(_NUMBERS[name], correlation, payload=request.SerializeToString())

    def read(self, correlation: int, credit_bytes: int = 1 << 20, **request: Any) -> None:
        wanted = pb.FetchRequest(**{"topic": "t", "credit_bytes": credit_bytes} | request)
        self.send(Operation.READ, correlation, payload=wanted.SerializeToString())

    async def rest(self) -> AsyncIterator[Message]:
        """What comes until the connection ends."""
        try:
            while True:
                yield await self.receive()
        except EOFError:
            return


def error_in(message: Message) -> pb.Error:
    assert message.flags & MessageFlag.ERROR, message
    return pb.Error.FromString(bytes(message.payload))


class Served:
    """A broker and its server; ``connect`` greets unless told not to."""

    def __init__(self, broker: Broker, server: NativeServer) -> None:
        self.broker = broker
        self.server = server
        self._clients: list[NativeClient] = []

    async def connect(self, *, greet: bool = True) -> NativeClient:
        client = NativeClient(*await asyncio.open_connection("127.0.0.1", self.server.port))
        self._clients.append(client)
        if greet:
            assert (await client.greet()).flags == MessageFlag.ANSWER
        return client

    async def close(self) -> None:
        for client in self._clients:
            client.writer.close()


Serve = Callable[..., AbstractAsyncContextManager[Served]]
