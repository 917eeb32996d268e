"""A client's connection of the native protocol: requests go out, and answers come to those who wait for them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import cast

from google.protobuf.message import DecodeError

from goqueue.client.connection.connection import NotConnected, to_exception
from goqueue.model import errors
from goqueue.model.addresses import host_and_port
from goqueue.model.errors import GoQueueError
from goqueue.version import __version__
from goqueue.wire.native.decoder import Decoder
from goqueue.wire.native.message import (
    MAX_CORRELATION,
    PREFACE,
    VERSION,
    Message,
    MessageFlag,
    Piece,
    pack,
)
from goqueue.wire.native.operations import Operation
from goqueue.wire.proto import goqueue_pb2 as pb

OnAnswer = Callable[[Message | GoQueueError], None]
"""Called with each answer to a request, or with the error that ends it; nothing comes after an error."""

_MAX_SILENCE = 3
"""Pings in a row that may stay without an answer, and without anything else from the broker."""


class NativeLink(asyncio.BufferedProtocol):
    """Ends once and for all: a broken connection is replaced by another link."""

    def __init__(self, address: str, max_message_bytes: int) -> None:
        self.address = address
        self.pid = os.getpid()
        """A forked child shares the socket with its parent, and must not use it."""
        self.ended: GoQueueError | None = None
        self._decoder = Decoder(max_message_bytes)
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, OnAnswer] = {}
        self._next = 0
        self._is_writable = asyncio.Event()
        self._is_writable.set()
        self._heard_s = 0.0
        """When anything came last, by the loop's clock."""
        self._keeping: asyncio.Task[None] | None = None
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @staticmethod
    async def open(address: str, client_id: str, max_message_bytes: int, keep_alive_s: float) -> NativeLink:
        """Connect and greet. Every failure is a ``GoQueueError``."""
        link = NativeLink(address, max_message_bytes)
        host, port = host_and_port(address)
        try:
            await asyncio.get_running_loop().create_connection(lambda: link, host, port)
        except OSError as error:
            raise NotConnected(f"{address} cannot be reached: {error.strerror or error}") from None
        try:
            await link._greet(client_id)
        except BaseException:
            link.abort()
            raise
        link._keeping = asyncio.create_task(link._keep_alive(keep_alive_s))
        return link

    async def _greet(self, client_id: str) -> None:
        hello = pb.Hello(
            min_version=VERSION,
            max_version=VERSION,
            client_id=client_id,
            client_version=f"goqueue-python/{__version__}",
        )
        self._write([PREFACE])
        answer = await self.ask(Operation.HELLO, b"", [hello.SerializeToString()])
        try:
            pb.Welcome.FromString(bytes(answer.payload))
        except DecodeError as error:
            raise errors.BrokerUnavailable(f"{self.address} greets in a way that cannot be read: {error}") from None

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._decoder.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self.ended is not None:
            return
        self._heard_s = asyncio.get_running_loop().time()
        try:
            messages = self._decoder.received(nbytes)
        except errors.WrongPort as error:
            self._end(errors.WrongPort(f"{self.address}: {error}"))
            return
        except GoQueueError as error:
            self._end(errors.BrokerUnavailable(f"{self.address} sent what cannot be read: {error}"))
            return
        for message in messages:
            self._take(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(errors.BrokerUnavailable(f"the connection to {self.address} was lost" + (f": {exc}" if exc else "")))
        self._is_writable.set()
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        self._is_writable.clear()

    def resume_writing(self) -> None:
        self._is_writable.set()

    # Requests

    def begin(self, operation: int, on_answer: OnAnswer, head: Piece = b"", payload: Sequence[Piece] = ()) -> int:
        """Send a request; return its correlation. ``on_answer`` is called until the last answer, or ``forget``."""
        if self.ended is not None:
            raise self.ended
        correlation = self._next = self._next % MAX_CORRELATION + 1
        while correlation in self._pending:
            correlation = self._next = self._next % MAX_CORRELATION + 1
        self._pending[correlation] = on_answer
        self._write(pack(operation, 0, correlation, head, payload))
        return correlation

    def send(
        self, operation: int, correlation: int, head: Piece = b"", payload: Sequence[Piece] = (), flags: int = 0
    ) -> None:
        """Send another message of a request that is under way."""
        if self.ended is None:
            self._write(pack(operation, flags, correlation, head, payload))

    async def ask(self, operation: int, head: Piece = b"", payload: Sequence[Piece] = ()) -> Message:
        """A request with one answer. If the caller is cancelled, the broker is told so."""
        answered: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def settle(answer: Message | GoQueueError) -> None:
            if answered.done():
                return
            if isinstance(answer, GoQueueError):
                answered.set_exception(answer)
            else:
                answered.set_result(answer)

        await self.until_writable()
        correlation = self.begin(operation, settle, head, payload)
        try:
            return await answered
        except asyncio.CancelledError:
            self.cancel(correlation)
            raise

    def cancel(self, correlation: int) -> None:
        """Nobody waits for the answers to a request any more."""
        if self.forget(correlation):
            self.send(Operation.CANCEL, correlation)

    def forget(self, correlation: int) -> bool:
        """Whether the request was under way."""
        return self._pending.pop(correlation, None) is not None

    async def until_writable(self) -> None:
        await self._is_writable.wait()

    def _write(self, pieces: Sequence[Piece]) -> None:
        if self._transport is not None:
            self._transport.writelines(pieces)

    def _take(self, message: Message) -> None:
        if message.flags & MessageFlag.ERROR:
            error = self._error_in(message)
            if not message.correlation:
                self._end(error)
                return
            answer: Message | GoQueueError = error
        else:
            answer = message
        if message.flags & MessageFlag.MORE:
            on_answer = self._pending.get(message.correlation)
        else:
            on_answer = self._pending.pop(message.correlation, None)
        if on_answer is not None:
            on_answer(answer)

    def _error_in(self, message: Message) -> GoQueueError:
        try:
            return to_exception(pb.Error.FromString(bytes(message.payload)))
        except DecodeError as error:
            return errors.BrokerUnavailable(f"{self.address} sent an error that cannot be read: {error}")

    # The end

    async def _keep_alive(self, every_s: float) -> None:
        """A connection that is broken without a word is found out, and an idle one stays open.

        A loop that ends cancels its tasks: by that the connection ends as well, if the client is never closed.
        """
        loop = asyncio.get_running_loop()
        try:
            while self.ended is None:
                if loop.time() - self._heard_s > _MAX_SILENCE * every_s:
                    silence_s = _MAX_SILENCE * every_s
                    self._end(errors.BrokerUnavailable(f"{self.address} has sent nothing for {silence_s:g} s"))
                    return
                self.begin(Operation.PING, lambda _: None)
                await asyncio.sleep(every_s)
        except asyncio.CancelledError:
            self.abort()
            raise

    def note_timeout(self, waited_s: float) -> None:
        """A request was not answered in time. If nothing else came meanwhile, another connection may do better."""
        if asyncio.get_running_loop().time() - self._heard_s >= waited_s:
            self.abort()

    def _end(self, reason: GoQueueError) -> None:
        if self.ended is not None:
            return
        self.ended = reason
        if self._keeping is not None:
            self._keeping.cancel()
        pending, self._pending = self._pending, {}
        for on_answer in pending.values():
            on_answer(reason)
        if self._transport is not None:
            self._transport.abort()

    def abort(self) -> None:
        self._end(errors.BrokerUnavailable(f"the connection to {self.address} was closed"))

    async def close(self, *, at_exit: bool) -> None:
        """Send what was written, and return when the connection is closed. ``at_exit``: nothing is woken by that."""
        self.ended = self.ended or errors.ClientClosed("the client is closed")
        if self._keeping is not None:
            self._keeping.cancel()
        pending, self._pending = self._pending, {}
        for on_answer in () if at_exit else pending.values():
            on_answer(self.ended)
        if self._transport is not None:
            self._transport.close()
            await self._closed
