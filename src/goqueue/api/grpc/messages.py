"""Publishing and reading whole batches of frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import grpc.aio

from goqueue.api.calls.batches import to_stored, transaction_of_batch
from goqueue.api.calls.conversion import start_at, to_error
from goqueue.api.calls.failures import shutting_down
from goqueue.api.grpc.calls import Calls, answered, caller_of, streamed
from goqueue.api.grpc.errors import Context, unexpected
from goqueue.api.grpc.stream_room import Turn
from goqueue.api.grpc.unreadable import check_readable
from goqueue.broker.operations import AppendedBatch, Bounds, Caller, Operations
from goqueue.model.config import GrpcConfig
from goqueue.model.errors import GoQueueError, InvalidRequest, Overloaded
from goqueue.wire.batch import parse_batch
from goqueue.wire.batch_envelope import FETCH_RESPONSE, PUBLISH_REQUEST, Piece
from goqueue.wire.proto import goqueue_pb2 as pb

_WAIT_MS = 30_000


class _Accepted(NamedTuple):
    """A request that is written and not answered yet."""

    response: pb.PublishResponse
    batch: AppendedBatch | None = None
    """To be waited for; ``None`` if there is nothing to wait for."""

    async def answer(self) -> pb.PublishResponse:
        if self.batch is not None:
            await self.batch.durable()
        return self.response


class MessagesService:
    """Thin: decodes the envelope, asks the broker, encodes the answer."""

    def __init__(self, operations: Operations, config: GrpcConfig, calls: Calls) -> None:
        self._operations = operations
        self._config = config
        self.calls = calls
        self._taking: set[asyncio.Task[None]] = set()
        self._max_fetches = min(config.max_fetch_streams, max(1, config.max_concurrent_calls // 2))
        self._fetches = 0

    async def Publish(self, caller: Caller, request: pb.PublishRequest) -> pb.PublishResponse:
        return await (await self._append(caller, request, memoryview(request.batch))).answer()

    @streamed
    async def PublishStream(
        self, _requests: AsyncIterator[tuple[pb.PublishRequest, memoryview]], context: Context
    ) -> None:
        self.calls.begin()
        waiting: asyncio.Queue[_Accepted | None] = asyncio.Queue()
        slots = asyncio.Semaphore(self._config.max_in_flight_batches)
        taking = asyncio.create_task(self._take_in(context, waiting, slots))
        self._taking.add(taking)
        try:
            while (next_up := await waiting.get()) is not None:
                await context.write(await _answer(next_up))
                slots.release()
        finally:
            self._taking.discard(taking)
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
        if taking.cancelled():
            raise shutting_down()
        # What came before is answered by now.
        taking.result()

    async def _take_in(
        self, context: Context, waiting: asyncio.Queue[_Accepted | None], slots: asyncio.Semaphore
    ) -> None:
        """Append in the order of arrival. Nothing is read while every slot waits for its answer: flow control."""
        caller = caller_of(context)
        try:
            while await slots.acquire() and (read := await context.read()) is not grpc.aio.EOF:
                request, batch = check_readable(read)
                try:
                    entry = await self._append(caller, request, batch)
                except GoQueueError as error:
                    entry = _Accepted(_refusal(request.correlation_id, error))
                except Exception as error:
                    entry = _Accepted(_refusal(request.correlation_id, unexpected(error, "PublishStream", context)))
                waiting.put_nowait(entry)
        finally:
            waiting.put_nowait(None)

    def stop_reading(self) -> None:
        """Take nothing more from publish streams; each ends when what it brought is answered."""
        for taking in self._taking:
            taking.cancel()

    async def _append(self, caller: Caller, request: pb.PublishRequest, batch: memoryview) -> _Accepted:
        run = parse_batch(batch)
        transaction = transaction_of_batch(request, run) if request.transaction_id else None
        appended = self._operations.publishing.append(caller, request.topic, request.partition, run, transaction)
        if not isinstance(appended, AppendedBatch):
            appended = await appended
        response = pb.PublishResponse(correlation_id=request.correlation_id, stored=to_stored(appended))
        if request.acks == pb.ACKS_NONE:
            appended.forget()
            return _Accepted(response)
        return _Accepted(response, appended)

    @streamed
    async def Fetch(self, request: pb.FetchRequest, context: Context) -> None:
        self.calls.begin(resumable=True)
        if self._fetches >= self._max_fetches:
            raise Overloaded(
                f"{self._fetches} streams fetch already; grpc.max_fetch_streams and half of grpc.max_concurrent_calls "
                f"are the bounds",
                retry_after_s=1,
            )
        self._fetches += 1
        try:
            await self._fetch(request, context)
        finally:
            self._fetches -= 1

    async def _fetch(self, request: pb.FetchRequest, context: Context) -> None:
        most = min(self._config.max_batch_bytes, self._config.max_message_bytes - self._config.max_message_bytes // 8)
        if request.max_batch_bytes > most:
            raise InvalidRequest(f"max_batch_bytes is {request.max_batch_bytes}; grpc.max_batch_bytes allows {most}")
        bounds = Bounds(
            request.max_batch_bytes or most,
            wait_ms=_WAIT_MS if request.follow else 0,
            uncommitted=request.read_uncommitted,
        )
        turn = Turn(self.calls.stream_room, context)
        try:
            await self._send_batches(request, bounds, turn, context)
        finally:
            turn.done()

    async def _send_batches(self, request: pb.FetchRequest, bounds: Bounds, turn: Turn, context: Context) -> None:
        caller, reading = caller_of(context), self._operations.reading
        offset = reading.find_offset(caller, request.topic, request.partition, start_at(request.start))
        while True:
            read = await reading.read_frames(
                caller, request.topic, request.partition, turn.narrowed(bounds), offset=offset, verify=request.verify
            )
            size = 0 if read.run is None else len(read.run.frames)
            if not turn.take(size):
                del read
                await turn.make_room(size)
                continue
            offset = read.next_offset
            response = pb.FetchResponse(
                next_offset=offset, high_watermark=read.high_watermark, stable_end=read.stable_end
            )
            if read.run is not None:
                await context.write((response, read.run.pieces()))
            elif not request.follow:
                await context.write((response, ()))
                return
            elif self._operations.is_stopping:
                raise shutting_down()
            turn.done()


def messages_handler(service: MessagesService) -> grpc.GenericRpcHandler:
    """Instead of what is generated: most of all bytes are in batches of these calls, and do not go through protobuf."""
    return grpc.method_handlers_generic_handler(
        "goqueue.v1.Messages",
        {
            "Publish": grpc.unary_unary_rpc_method_handler(
                answered(service.calls, "Publish", service.Publish),
                request_deserializer=pb.PublishRequest.FromString,
                response_serializer=pb.PublishResponse.SerializeToString,
            ),
            "PublishStream": grpc.stream_stream_rpc_method_handler(
                service.PublishStream,
                request_deserializer=PUBLISH_REQUEST.load,
                response_serializer=pb.PublishResponse.SerializeToString,
            ),
            "Fetch": grpc.unary_stream_rpc_method_handler(
                service.Fetch, request_deserializer=pb.FetchRequest.FromString, response_serializer=_dump_fetched
            ),
        },
    )


def _dump_fetched(answer: tuple[pb.FetchResponse, Sequence[Piece]]) -> bytes:
    return FETCH_RESPONSE.dump(*answer)


def _refusal(correlation_id: int, error: GoQueueError) -> pb.PublishResponse:
    return pb.PublishResponse(correlation_id=correlation_id, error=to_error(error))


async def _answer(entry: _Accepted) -> pb.PublishResponse:
    try:
        return await entry.answer()
    except GoQueueError as error:
        return _refusal(entry.response.correlation_id, error)
