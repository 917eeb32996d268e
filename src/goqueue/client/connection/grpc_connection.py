"""Connection to one broker: a gRPC channel, and one publish stream shared by all producers of the client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import grpc
import grpc.aio

from goqueue.client.connection.config import ClientConfig
from goqueue.client.connection.connection import NotConnected, to_exception
from goqueue.client.connection.wrong_port import SPEAKS_HTTP
from goqueue.model import errors
from goqueue.model.errors import GoQueueError
from goqueue.wire.batch_envelope import FETCH_RESPONSE, PUBLISH_REQUEST, Piece
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.proto import goqueue_pb2_grpc as pb_grpc

_LOST_CODES = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
}
_NO_CONNECTION = "failed to connect to all addresses"
"""gRPC's text for a call that never had a connection. Any other lost call may have been carried out."""

_STREAMED_BYTES = 3 << 19
"""Largest batch for the shared stream: every broker accepts as much in several messages, but not in one."""

CALL_ENDED = (grpc.aio.AioRpcError, grpc.aio.InternalError, asyncio.InvalidStateError)
"""What gRPC raises for a write to a call that has ended; which of them depends on timing."""

_END_WITHIN_S = 0.5
_LATE_EVENTS_S = 0.01

_grpc_pid: int | None = None
"""Process id in which gRPC has its threads. A forked child has gRPC's memory without the threads and would hang."""


class GrpcConnection:
    """Opens its channel on first use. Every error that it raises is a ``GoQueueError``."""

    def __init__(self, address: str, config: ClientConfig) -> None:
        self.address = address
        self._config = config
        _refuse_after_fork()
        self._channel = grpc.aio.insecure_channel(
            address,
            options=[
                ("grpc.max_receive_message_length", config.max_message_bytes),
                ("grpc.max_send_message_length", config.max_message_bytes),
                ("grpc.keepalive_time_ms", config.keep_alive_ms),
                ("grpc.initial_reconnect_backoff_ms", config.retry_backoff_ms),
                ("grpc.min_reconnect_backoff_ms", config.retry_backoff_ms),
                ("grpc.max_reconnect_backoff_ms", config.max_backoff_ms),
                # Brokers are reached directly, even if the environment sets an HTTP proxy.
                ("grpc.enable_http_proxy", 0),
            ],
        )
        self._messages = pb_grpc.MessagesStub(self._channel)
        # Publish and fetch carry most of the bytes, so their batches bypass protobuf.
        self._publish_stream: Any = self._channel.stream_stream(
            "/goqueue.v1.Messages/PublishStream",
            request_serializer=lambda request: PUBLISH_REQUEST.dump(*request),
            response_deserializer=pb.PublishResponse.FromString,
        )
        self._fetch = self._channel.unary_stream(
            "/goqueue.v1.Messages/Fetch",
            request_serializer=pb.FetchRequest.SerializeToString,
            response_deserializer=FETCH_RESPONSE.load,
        )
        self.topics = pb_grpc.TopicsStub(self._channel)
        self.metadata = pb_grpc.MetadataStub(self._channel)
        self.groups = pb_grpc.GroupsStub(self._channel)
        self.delays = pb_grpc.DelaysStub(self._channel)
        self.schemas = pb_grpc.SchemasStub(self._channel)
        self.transactions = pb_grpc.TransactionsStub(self._channel)
        self._open_stream: _PublishStream | None = None
        self._closed = False
        self._fetching = 0
        self._cut_short = False

    async def call(self, method: Any, request: Any, *, timeout_ms: int | None = None) -> Any:
        """A unary call, bounded by the request timeout."""
        self._check_open()
        limit_ms = self._config.request_timeout_ms
        call = method(request, timeout=min(limit_ms, timeout_ms or limit_ms) / 1_000)
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise to_error(error, self.address) from None
        except asyncio.CancelledError:
            # Either this task was cancelled, or the channel was closed during the call.
            self._check_open()
            raise

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
        self._check_open()
        request = pb.PublishRequest(
            topic=topic, partition=partition, acks=acks, transaction_id=transaction_id, begin=begin
        )
        if sum(map(len, batch)) > _STREAMED_BYTES:
            # A batch too large for the broker ends the whole call, so it must not share the publish stream.
            request.batch = b"".join(batch)
            response = await self.call(self._messages.Publish, request)
        else:
            response = await self._publish_on_stream(request, batch)
        if response.WhichOneof("result") == "error":
            raise to_exception(response.error)
        stored: pb.Stored = response.stored
        return stored

    async def _publish_on_stream(self, request: pb.PublishRequest, batch: Sequence[Piece]) -> pb.PublishResponse:
        if self._open_stream is None or self._open_stream.broken:
            self._open_stream = _PublishStream(self._publish_stream(), self.address)
        stream = self._open_stream
        try:
            async with asyncio.timeout(self._config.request_timeout_ms / 1_000):
                return await stream.send(request, batch)
        except TimeoutError:
            # The broker may be stalled; a fresh stream may get through where this one does not.
            stream.abandon()
            raise errors.DeliveryTimeout(
                f"{self.address} did not acknowledge within {self._config.request_timeout_ms} ms"
            ) from None

    async def fetch(self, request: pb.FetchRequest) -> AsyncGenerator[tuple[pb.FetchResponse, memoryview], None]:
        """Responses, each with its batch."""
        self._check_open()
        call = self._fetch(request)
        self._fetching += 1
        ended = False
        try:
            async for response in call:
                yield response
            ended = True
        except grpc.aio.AioRpcError as error:
            raise to_error(error, self.address) from None
        except asyncio.CancelledError:
            self._check_open()
            raise
        finally:
            self._fetching -= 1
            if not ended:
                call.cancel()
                self._cut_short = True

    def subscribe(self) -> Any:
        """A new subscription stream for one group member; the caller has to end it."""
        self._check_open()
        return self.groups.Subscribe()

    def note_cut_short(self) -> None:
        """Note that a stream of this connection did not end properly."""
        self._cut_short = True

    def _check_open(self) -> None:
        if self._closed:
            raise errors.ClientClosed("the client is closed")

    async def close(self, *, at_exit: bool = False) -> None:
        """Half-close the publish stream and wait for what gRPC still has to report to this event loop.

        Events reported to a loop that is already closed would show up as errors in the next loop. With ``at_exit``
        there is no next loop, and no task is to be woken.
        """
        self._closed = True
        self._cut_short |= self._fetching > 0
        if self._open_stream is not None and not await self._open_stream.close():
            self._cut_short = True
        await self._channel.close()
        if self._cut_short and not at_exit:
            await asyncio.sleep(_LATE_EVENTS_S)


class _PublishStream:
    """Requests go out in order; responses are matched to callers by correlation id."""

    def __init__(self, call: Any, address: str) -> None:
        self._call = call
        self._address = address
        self._pending: dict[int, asyncio.Future[pb.PublishResponse]] = {}
        self._outgoing: dict[int, tuple[pb.PublishRequest, Sequence[Piece]]] = {}
        self._has_outgoing = asyncio.Event()
        self._next_id = 0
        self.broken = False
        self._tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._read())]

    async def send(self, request: pb.PublishRequest, batch: Sequence[Piece]) -> pb.PublishResponse:
        self._next_id += 1
        request.correlation_id = self._next_id
        future: asyncio.Future[pb.PublishResponse] = asyncio.get_running_loop().create_future()
        self._pending[request.correlation_id] = future
        self._outgoing[request.correlation_id] = request, batch
        self._has_outgoing.set()
        try:
            return await future
        finally:
            # Also drop requests whose caller has gone: with a stalled broker they would pile up here.
            self._pending.pop(request.correlation_id, None)
            self._outgoing.pop(request.correlation_id, None)

    async def _write(self) -> None:
        try:
            while True:
                await self._has_outgoing.wait()
                self._has_outgoing.clear()
                while self._outgoing:
                    await self._call.write(self._outgoing.pop(next(iter(self._outgoing))))
        except CALL_ENDED:
            # The reader sees the same end and passes the reason to all callers.
            self.broken = True

    async def _read(self) -> None:
        reason: GoQueueError = errors.BrokerUnavailable(f"{self._address} ended the publish stream")
        try:
            async for response in self._call:
                future = self._pending.get(response.correlation_id)
                if future is not None and not future.done():
                    future.set_result(response)
        except grpc.aio.AioRpcError as error:
            reason = to_error(error, self._address)
        except asyncio.CancelledError:
            reason = errors.BrokerUnavailable(f"the stream to {self._address} was closed")
        finally:
            self._end(reason)

    def _end(self, reason: GoQueueError) -> None:
        self.broken = True
        self._tasks[0].cancel()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(reason)

    def abandon(self) -> None:
        self.broken = True
        self._call.cancel()
        for task in self._tasks:
            task.cancel()

    async def close(self) -> bool:
        """End the stream; return whether it ended properly."""
        writing, reading = self._tasks
        writing.cancel()
        try:
            async with asyncio.timeout(_END_WITHIN_S):
                await asyncio.gather(writing, return_exceptions=True)
                if not self.broken:
                    await self._call.done_writing()
                await asyncio.shield(reading)
            ended = True
        except (TimeoutError, *CALL_ENDED):
            ended = False
        self.abandon()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return ended


def _refuse_after_fork() -> None:
    global _grpc_pid
    _grpc_pid = _grpc_pid or os.getpid()
    if _grpc_pid != os.getpid():
        raise errors.ClientError(
            "a client was at work in this process before it forked, and gRPC does not survive that; fork before the "
            "first call, or start processes with 'spawn'"
        )


def to_error(error: grpc.aio.AioRpcError, address: str) -> GoQueueError:
    """The error of a failed call. A broker's error code is in the metadata; without one the network failed."""
    metadata = dict(error.trailing_metadata() or ())
    code = metadata.get("goqueue-code")
    details = error.details() or error.code().name
    if code is not None:
        after_ms = metadata.get("goqueue-retry-after-ms")
        return errors.error_from(str(code), details, None if after_ms is None else int(after_ms) / 1_000)
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return errors.DeliveryTimeout(f"{address} did not answer in time")
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        if "larger than max" in details:
            return errors.MessageTooLarge(
                f"{address}: {details} (grpc.max_message_bytes, or the client's max_message_bytes)"
            )
        return errors.error_from("overloaded", f"{address}: {details}", 1)
    if error.code() in _LOST_CODES and _NO_CONNECTION in details:
        if SPEAKS_HTTP in details:
            return errors.WrongPort(f"{address} speaks HTTP, and not gRPC")
        # The details end with ``…: Failed to connect to remote host: Connection refused``.
        reason = details.rpartition("remote host: ")[2] or details
        return NotConnected(f"{address} cannot be reached: {reason}")
    if error.code() in _LOST_CODES:
        return errors.BrokerUnavailable(f"{address} cannot be reached: {details}")
    return errors.error_from("internal_error", f"{address}: {details}")
