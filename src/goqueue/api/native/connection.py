"""One client's connection: its greeting, its requests in their order, and its limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

from goqueue.api.calls.conversion import to_error
from goqueue.api.listening import host_with_port
from goqueue.api.native.calling import Calling
from goqueue.api.native.host import Host
from goqueue.api.native.publishing import Publishing
from goqueue.api.native.reading import Reading
from goqueue.api.native.requests import decoded
from goqueue.api.native.subscribing import Subscribing
from goqueue.broker.operations import Caller, CallerProtocol
from goqueue.model.errors import GoQueueError, InvalidRequest, RequestTimeout, UnsupportedFeature, WrongPort
from goqueue.model.logging import get_logger
from goqueue.version import __version__
from goqueue.wire.native.decoder import Decoder
from goqueue.wire.native.message import PREFACE, VERSION, Message, MessageFlag, Piece, pack
from goqueue.wire.native.operations import Operation
from goqueue.wire.native.read import load_credit
from goqueue.wire.proto import goqueue_pb2 as pb

log = get_logger(__name__)

_ANSWER = int(MessageFlag.ANSWER)
_FAILED = int(MessageFlag.ANSWER | MessageFlag.ERROR)
_WORDS = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"


class Connection(asyncio.BufferedProtocol):
    """Requests are taken in the order in which they come, and answered when their answers are ready."""

    def __init__(self, server: Host) -> None:
        self.server = server
        self.operations = server.operations
        self.config = server.config
        self.caller = Caller(protocol=CallerProtocol.NATIVE)
        self._decoder = Decoder(server.config.max_message_bytes)
        self._transport: asyncio.Transport | None = None
        self._is_greeted = False
        self._waiting = 0
        """Requests that are not answered yet."""
        self._is_writable = asyncio.Event()
        self._is_writable.set()
        self._unwritable_since_s = 0.0
        self._one_batch = asyncio.Lock()
        self._publishing = Publishing(self)
        self._calling = Calling(self)
        self._streams: dict[int, Reading | Subscribing] = {}
        self.heard_s = asyncio.get_running_loop().time()
        """When the client last sent anything, by the loop's clock."""

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            host, port = peer[:2]
            self.caller = Caller(address=host_with_port(host, port), protocol=CallerProtocol.NATIVE)
        self.server.connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._decoder.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self.is_closing:
            return
        self.heard_s = asyncio.get_running_loop().time()
        try:
            for message in self._decoder.received(nbytes):
                self._take(message)
        except WrongPort as error:
            text = f"{error}\n".encode()
            self._write([_WORDS % (len(text), text)])
            self.close()
        except GoQueueError as error:
            self.refuse(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_writable.set()
        self._calling.cancel()
        self._publishing.cancel()
        for stream in list(self._streams.values()):
            stream.cancel()
        self.server.disconnected(self)

    def pause_writing(self) -> None:
        self._is_writable.clear()
        self._unwritable_since_s = asyncio.get_running_loop().time()
        self._pace()

    def resume_writing(self) -> None:
        self._is_writable.set()
        self._pace()
        self.server.made_room()

    # Requests

    def _take(self, message: Message) -> None:
        if not self._is_greeted:
            self._greet(message)
            return
        correlation = message.correlation
        match message.operation:
            case Operation.PUBLISH:
                self._publishing.take(message)
            case Operation.SUBSCRIBE:
                self._take_in_stream(message)
            case Operation.CREDIT:
                stream = self._streams.get(correlation)
                if isinstance(stream, Reading):
                    stream.give(load_credit(message.head))
            case Operation.READ:
                if correlation in self._streams:
                    raise InvalidRequest(f"correlation {correlation} is that of a stream that is open")
                self._streams[correlation] = Reading(self, message)
            case Operation.CANCEL:
                self._cancel(correlation)
            case Operation.PING:
                self.answer(message.operation, correlation)
            case _:
                self._calling.take(message)

    def _greet(self, message: Message) -> None:
        if message.operation != Operation.HELLO:
            raise InvalidRequest(f"the first message is operation {message.operation}; it must be {Operation.HELLO}")
        hello = decoded(pb.Hello, message.payload, "the greeting")
        if not hello.min_version <= VERSION <= hello.max_version:
            raise UnsupportedFeature(
                f"the client speaks versions {hello.min_version} to {hello.max_version} of the protocol; the broker "
                f"speaks {VERSION}"
            )
        self._is_greeted = True
        welcome = pb.Welcome(
            version=VERSION,
            node_id=self.operations.node_id,
            broker_version=__version__,
            max_message_bytes=self.config.max_message_bytes,
            max_requests=self.config.max_requests,
            idle_timeout_ms=self.config.idle_timeout_ms,
        )
        self._write([PREFACE])
        self.answer(Operation.HELLO, message.correlation, payload=[welcome.SerializeToString()])

    def _cancel(self, correlation: int) -> None:
        stream = self._streams.get(correlation)
        if stream is not None:
            stream.cancel()
        else:
            self._calling.cancel(correlation)

    def _take_in_stream(self, message: Message) -> None:
        stream = self._streams.get(message.correlation)
        if isinstance(stream, Subscribing):
            stream.take(message)
        elif stream is not None:
            raise InvalidRequest(f"correlation {message.correlation} is that of a stream that reads")
        elif len(message.payload):
            self._streams[message.correlation] = Subscribing(self, message)
        # Else the stream has ended, and the client could not know.

    def end_stream(self, correlation: int) -> None:
        self._streams.pop(correlation, None)

    # Answers

    def answer(
        self, operation: int, correlation: int, head: Piece = b"", payload: Sequence[Piece] = (), more: int = 0
    ) -> None:
        self._write(pack(operation, _ANSWER | more, correlation, head, payload))

    def fail(self, operation: int, correlation: int, error: GoQueueError) -> None:
        self._write(pack(operation, _FAILED, correlation, b"", [to_error(error).SerializeToString()]))

    def refuse(self, error: GoQueueError) -> None:
        """Close the connection, and say why."""
        if not self._is_greeted:
            self._write([PREFACE])
        self.fail(Operation.HELLO, 0, error)
        self.close()

    def _write(self, pieces: Sequence[Piece]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(pieces)

    async def until_writable(self) -> None:
        """Return when the client has read enough of what was written."""
        await self._is_writable.wait()

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Read a batch and write it, one stream after the other: so a client that reads nothing holds no more than one.

        Waits for the client, and for others if there is much that they have not read.
        """
        async with self._one_batch:
            await self.until_writable()
            await self.server.until_room()
            yield

    # Limits

    def begin(self) -> None:
        """A request was taken that will be answered."""
        self._waiting += 1
        if self._waiting >= self.config.max_requests:
            self._pace()

    def done(self) -> None:
        """One of them was answered."""
        self._waiting -= 1
        if self._waiting == self.config.max_requests - 1:
            self._pace()

    def _pace(self) -> None:
        """Read while there is room for requests, and while the client reads its answers."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._is_writable.is_set() and self._waiting < self.config.max_requests:
            transport.resume_reading()
        else:
            transport.pause_reading()

    @property
    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    @property
    def is_idle(self) -> bool:
        """Whether every request is answered; streams go on elsewhere."""
        return not self._waiting

    @property
    def unread_bytes(self) -> int:
        """What was written and not sent, if it is so much that the client does not keep up."""
        is_behind = self._transport is not None and not self._is_writable.is_set()
        return self._transport.get_write_buffer_size() if is_behind and self._transport is not None else 0

    def reads_nothing(self, now_s: float, patience_s: float) -> bool:
        """Whether the client has left what was written unread for so long."""
        return not self._is_writable.is_set() and now_s - self._unwritable_since_s > patience_s

    def check_heard(self, now_s: float) -> None:
        """Close the connection if its client was silent for too long."""
        limit_ms = self.config.idle_timeout_ms if self._is_greeted else self.config.hello_timeout_ms
        if now_s - self.heard_s <= limit_ms / 1_000:
            return
        if not self._is_writable.is_set():
            # It does not read either.
            self.abort()
        elif not self._waiting:
            self.refuse(RequestTimeout(f"the client sent nothing for {limit_ms} ms"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
