"""Subscription stream of one group member: messages and assignments come in, settlements and commits go out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import grpc
import grpc.aio

from goqueue.client.connection.connection import Connection
from goqueue.client.connection.grpc_connection import CALL_ENDED, to_error
from goqueue.client.connection.tasks import cancel
from goqueue.model.errors import BrokerUnavailable, ClientError, DeliveryTimeout, GoQueueError
from goqueue.model.logging import get_logger
from goqueue.wire.proto import goqueue_pb2 as pb

log = get_logger(__name__)

Request = pb.SettleRequest | pb.CommitOffsetsRequest
Response = pb.SettleResponse | pb.CommitOffsetsResponse
_END_WITHIN_S = 0.5


class Subscription:
    """Requests go out in order; responses are matched to callers by correlation id. Raises ``GoQueueError`` only."""

    def __init__(
        self,
        connection: Connection,
        on_messages: Callable[[pb.PollResponse], None],
        on_assignment: Callable[[pb.Assignment, bool], None],
    ) -> None:
        """``on_assignment`` is called with whether it is the first assignment. The callbacks must not block."""
        self.connection = connection
        self._call = connection.subscribe()
        self._on_messages = on_messages
        self._on_assignment = on_assignment
        self._pending: dict[int, asyncio.Future[Response]] = {}
        self._outgoing: deque[pb.SubscribeRequest | None] = deque()
        """``None`` ends the stream."""
        self._has_outgoing = asyncio.Event()
        self._next_id = 0
        loop = asyncio.get_running_loop()
        self._joined: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[GoQueueError] = loop.create_future()
        """The error that the stream ended with."""
        self._tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._read())]

    async def join(self, request: pb.JoinRequest, timeout_s: float) -> None:
        """Send the join request; must be called first. If it fails, the stream has ended."""
        self.send(pb.SubscribeRequest(join=request))
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._joined)
        except BaseException as error:
            await self.end()
            if isinstance(error, TimeoutError):
                raise BrokerUnavailable(f"{self.connection.address} did not answer in time") from None
            raise

    def send(self, request: pb.SubscribeRequest | None) -> None:
        self._outgoing.append(request)
        self._has_outgoing.set()

    async def request(self, request: Request, timeout_s: float) -> Response:
        if self.ended.done():
            raise self.ended.result()
        self._next_id += 1
        number = request.correlation_id = self._next_id
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        if isinstance(request, pb.SettleRequest):
            self.send(pb.SubscribeRequest(settle=request))
        else:
            self.send(pb.SubscribeRequest(commit=request))
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            # The broker may be stalled; a fresh stream may get through where this one does not.
            self.abandon()
            raise DeliveryTimeout(f"{self.connection.address} did not answer within {timeout_s:g} s") from None
        finally:
            self._pending.pop(number, None)

    async def finish(self, timeout_s: float) -> bool:
        """Half-close the stream, and receive until the broker ends it; return whether it did so in time."""
        if not self.ended.done():
            self.send(None)
            await asyncio.wait([self.ended], timeout=timeout_s)
        in_time = self.ended.done()
        await self.end()
        return in_time

    async def _write(self) -> None:
        try:
            while True:
                await self._has_outgoing.wait()
                self._has_outgoing.clear()
                while self._outgoing:
                    request = self._outgoing.popleft()
                    if request is None:
                        await self._call.done_writing()
                        return
                    await self._call.write(request)
        except CALL_ENDED:
            # The reader sees the same end and passes the reason to all callers.
            return

    async def _read(self) -> None:
        address = self.connection.address
        reason: GoQueueError = BrokerUnavailable(f"{address} ended the subscription")
        try:
            async for response in self._call:
                self._take(response)
        except grpc.aio.AioRpcError as error:
            reason = to_error(error, address)
        except asyncio.CancelledError:
            reason = BrokerUnavailable(f"the subscription to {address} was closed")
        except GoQueueError as error:
            # A message that cannot be decoded; another attempt would not help.
            reason = error
        except Exception as error:
            log.exception("an answer could not be taken in")
            reason = ClientError(f"an answer of {address} could not be taken in: {error!r}")
        finally:
            self._end(reason)

    def _take(self, response: pb.SubscribeResponse) -> None:
        match response.WhichOneof("response"):
            case "messages":
                self._on_messages(response.messages)
            case "settled":
                self._resolve(response.settled)
            case "committed":
                self._resolve(response.committed)
            case "assignment":
                first = not self._joined.done()
                # Handled here, before any message that follows it.
                self._on_assignment(response.assignment, first)
                if first:
                    self._joined.set_result(None)

    def _resolve(self, response: Response) -> None:
        caller = self._pending.get(response.correlation_id)
        if caller is not None and not caller.done():
            caller.set_result(response)

    def _end(self, reason: GoQueueError) -> None:
        self._tasks[0].cancel()
        if not self.ended.done():
            self.ended.set_result(reason)
        if not self._joined.done():
            self._joined.set_exception(reason)
            # Mark the exception as retrieved, in case the caller has timed out.
            self._joined.exception()
        for caller in self._pending.values():
            if not caller.done():
                caller.set_exception(reason)

    def abandon(self) -> None:
        """Cancel it at once; ``ended`` is done shortly after."""
        self._call.cancel()
        for task in self._tasks:
            task.cancel()

    async def end(self) -> None:
        """End the stream, in order if the broker responds in time."""
        writing, reading = self._tasks
        await cancel(writing)
        try:
            if not self.ended.done():
                async with asyncio.timeout(_END_WITHIN_S):
                    await self._call.done_writing()
                    await asyncio.shield(reading)
        except (TimeoutError, *CALL_ENDED):
            self.connection.note_cut_short()
        self.abandon()
        await asyncio.gather(reading, return_exceptions=True)
