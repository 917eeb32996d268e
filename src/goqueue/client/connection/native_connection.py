"""Connection to one broker over the native protocol."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from goqueue.client.connection.config import ClientConfig
from goqueue.client.connection.connection import to_exception
from goqueue.client.connection.native_link import NativeLink
from goqueue.model import errors
from goqueue.model.addresses import SCHEME
from goqueue.model.errors import GoQueueError
from goqueue.wire.native.message import Message, MessageFlag, Piece
from goqueue.wire.native.operations import CALLS, Operation
from goqueue.wire.native.publish import EntryKind, dump_publish, load_published
from goqueue.wire.native.read import dump_credit, load_read
from goqueue.wire.proto import goqueue_pb2 as pb

_NUMBERS = {name: number for number, name in CALLS.items()}
_CREDIT_BYTES = 4 << 20
"""Of batches that may be under way to one reader."""


class _Method(NamedTuple):
    """A call with one answer."""

    name: str
    number: int
    answer: Any


class _Service:
    """Its calls by name, as gRPC's stubs have them."""

    def __init__(self, name: str) -> None:
        for method in pb.DESCRIPTOR.services_by_name[name].methods:
            number = _NUMBERS.get(f"{name}.{method.name}")
            if number is not None:
                setattr(self, method.name, _Method(method.name, number, getattr(pb, method.output_type.name)))


class NativeConnection:
    """Connects on first use, and again after the connection broke. Every error that it raises is a ``GoQueueError``."""

    topics: Any = _Service("Topics")
    metadata: Any = _Service("Metadata")
    groups: Any = _Service("Groups")
    delays: Any = _Service("Delays")
    schemas: Any = _Service("Schemas")
    transactions: Any = _Service("Transactions")

    def __init__(self, address: str, config: ClientConfig) -> None:
        self.address = address
        self._config = config
        self._link: NativeLink | None = None
        self._opening: asyncio.Task[NativeLink] | None = None
        self._closed = False

    async def link(self) -> NativeLink:
        """The open connection. All who need it while it is being opened wait for the same one."""
        self._check_open()
        link = self._link
        if link is not None and link.ended is None and link.pid == os.getpid():
            return link
        if self._opening is None:
            config = self._config
            opening = NativeLink.open(
                self.address.removeprefix(SCHEME),
                f"{os.getpid()}",
                config.max_message_bytes,
                config.keep_alive_ms / 1_000,
            )
            self._opening = asyncio.create_task(opening)
            self._opening.add_done_callback(self._opened)
        try:
            return await asyncio.shield(self._opening)
        except asyncio.CancelledError:
            self._check_open()
            raise

    def _opened(self, opening: asyncio.Task[NativeLink]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._link = opening.result()

    async def call(self, method: _Method, request: Any, *, timeout_ms: int | None = None) -> Any:
        """A call with one answer, bounded by the request timeout."""
        limit_ms = self._config.request_timeout_ms
        answer = await self._ask(
            method.number, b"", [request.SerializeToString()], min(limit_ms, timeout_ms or limit_ms)
        )
        try:
            return method.answer.FromString(bytes(answer.payload))
        except DecodeError as error:
            raise errors.ClientError(f"an answer of {self.address} cannot be read: {error}") from None

    async def _ask(self, operation: int, head: Piece, payload: Sequence[Piece], timeout_ms: int) -> Message:
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return await (await self.link()).ask(operation, head, payload)
        except TimeoutError:
            if self._link is not None:
                self._link.note_timeout(timeout_ms / 1_000)
            raise errors.DeliveryTimeout(f"{self.address} did not answer within {timeout_ms} ms") from None

    async def publish(
        self,
        topic: str,
        partition: int,
        acks: pb.Acks.ValueType,
        batch: Sequence[Piece],
        transaction_id: str = "",
        begin: pb.Begin | None = None,
    ) -> pb.Stored:
        """Store a batch; return its position."""
        transaction = None
        if transaction_id:
            transaction = pb.TransactionOfBatches(transaction_id=transaction_id, begin=begin).SerializeToString()
        size = sum(map(len, batch))
        head = dump_publish(acks, [(topic.encode(), partition, size)], transaction)
        answer = await self._ask(Operation.PUBLISH, head, batch, self._config.request_timeout_ms)
        (entry,) = load_published(answer.head)
        match entry.kind:
            case EntryKind.STORED:
                return pb.Stored(first_offset=entry.first_offset, count=entry.messages)
            case EntryKind.STORED_WITH_MORE:
                return pb.Stored.FromString(entry.content)
            case _:
                raise to_exception(pb.Error.FromString(entry.content))

    async def fetch(self, request: pb.FetchRequest) -> AsyncGenerator[tuple[pb.FetchResponse, memoryview], None]:
        """Responses, each with its batch."""
        link = await self.link()
        request.credit_bytes = _CREDIT_BYTES
        stream = _Answers(link, Operation.READ, request.SerializeToString())
        try:
            async for message in stream:
                head = load_read(message.head)
                yield pb.FetchResponse(**head._asdict()), message.payload
                if len(message.payload):
                    stream.send(Operation.CREDIT, head=dump_credit(len(message.payload)))
        finally:
            stream.cancel()

    def subscribe(self) -> Any:
        """A new subscription stream for one group member; the caller has to end it."""
        self._check_open()
        return _SubscribeCall(self)

    def note_cut_short(self) -> None:
        """Nothing has to be waited for."""

    def _check_open(self) -> None:
        if self._closed:
            raise errors.ClientClosed("the client is closed")

    async def close(self, *, at_exit: bool = False) -> None:
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._link is not None and self._link.pid == os.getpid():
            await self._link.close(at_exit=at_exit)


class _Answers:
    """The answers to a request that has many, in their order, until the last one."""

    def __init__(self, link: NativeLink, operation: int, payload: bytes) -> None:
        self._link = link
        self._found: deque[Message | GoQueueError | None] = deque()
        self._news = asyncio.Event()
        self._has_ended = False
        self.correlation = link.begin(operation, self._put, payload=[payload])

    def _put(self, answer: Message | GoQueueError) -> None:
        self._found.append(answer)
        if isinstance(answer, GoQueueError) or not answer.flags & MessageFlag.MORE:
            self._has_ended = True
            self._found.append(None)
        self._news.set()

    def send(self, operation: int, head: bytes = b"", payload: Sequence[Piece] = (), flags: int = 0) -> None:
        if not self._has_ended:
            self._link.send(operation, self.correlation, head, payload, flags)

    def cancel(self) -> None:
        self._link.cancel(self.correlation)

    async def __aiter__(self) -> AsyncIterator[Message]:
        while True:
            while not self._found:
                self._news.clear()
                await self._news.wait()
            answer = self._found.popleft()
            if answer is None:
                return
            if isinstance(answer, GoQueueError):
                raise answer
            yield answer


class _SubscribeCall:
    """A member's stream, with the methods that a gRPC call has."""

    def __init__(self, connection: NativeConnection) -> None:
        self._connection = connection
        self._stream: asyncio.Future[_Answers] = asyncio.get_running_loop().create_future()

    async def write(self, request: pb.SubscribeRequest) -> None:
        payload = request.SerializeToString()
        if not self._stream.done():
            try:
                link = await self._connection.link()
                self._stream.set_result(_Answers(link, Operation.SUBSCRIBE, payload))
            except GoQueueError as error:
                self._stream.set_exception(error)
                raise asyncio.InvalidStateError from None
            return
        self._stream.result().send(Operation.SUBSCRIBE, payload=[payload])

    async def done_writing(self) -> None:
        if self._stream.done() and self._stream.exception() is None:
            self._stream.result().send(Operation.SUBSCRIBE, flags=MessageFlag.LAST)

    def cancel(self) -> None:
        if not self._stream.done():
            self._stream.set_exception(errors.BrokerUnavailable("the subscription was closed"))
            self._stream.exception()
        elif self._stream.exception() is None:
            self._stream.result().cancel()

    async def __aiter__(self) -> AsyncIterator[pb.SubscribeResponse]:
        async for message in await asyncio.shield(self._stream):
            if len(message.payload):
                yield pb.SubscribeResponse.FromString(bytes(message.payload))
