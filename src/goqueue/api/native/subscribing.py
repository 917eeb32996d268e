"""A member's stream: requests and answers with the same correlation, in both directions."""

from __future__ import annotations

import asyncio

from goqueue.api.calls.failures import unexpected
from goqueue.api.calls.limits import max_request_bytes
from goqueue.api.calls.subscription import Subscription, Turn
from goqueue.api.native.host import Requester
from goqueue.api.native.requests import decoded, run_stream
from goqueue.broker.operations import PollBounds
from goqueue.model.errors import BodyTooLarge, GoQueueError, InvalidRequest
from goqueue.wire.native.message import Message, MessageFlag
from goqueue.wire.native.operations import Operation
from goqueue.wire.proto import goqueue_pb2 as pb

_MORE = int(MessageFlag.MORE)
_MAX_REQUEST_BYTES = max_request_bytes("Groups.Subscribe")


class _OpenTurn:
    """Nothing to wait for: what is written and not read is bounded by the connection."""

    def narrowed(self, bounds: PollBounds) -> PollBounds:
        return bounds

    def take(self, size_bytes: int) -> bool:
        return True

    async def make_room(self, size_bytes: int) -> None: ...

    async def wait(self, size_bytes: int) -> None: ...

    def done(self) -> None: ...


class Subscribing:
    """One stream, which begins with the message that asks for it."""

    def __init__(self, connection: Requester, message: Message) -> None:
        self._connection = connection
        self._correlation = message.correlation
        self._requests: asyncio.Queue[pb.SubscribeRequest | None] = asyncio.Queue()
        self._has_ended = False
        self.caller = connection.caller
        self.turn: Turn = _OpenTurn()
        self.take(message)
        self._task = asyncio.create_task(self._run())

    def take(self, message: Message) -> None:
        """A request of the member. Requests are not read further while too many of a connection wait."""
        if self._has_ended:
            raise InvalidRequest("the member's stream goes on after its last message")
        if len(message.payload) > _MAX_REQUEST_BYTES:
            raise BodyTooLarge(f"the request has {len(message.payload)} bytes; {_MAX_REQUEST_BYTES} are allowed here")
        self._has_ended = bool(message.flags & MessageFlag.LAST)
        if len(message.payload):
            request = decoded(pb.SubscribeRequest, message.payload, "the request of a member")
            self._connection.begin()
            self._requests.put_nowait(request)
        if self._has_ended:
            self._requests.put_nowait(None)

    def cancel(self) -> None:
        self._task.cancel()

    # For the subscription

    async def read(self) -> pb.SubscribeRequest | None:
        request = await self._requests.get()
        if request is not None:
            self._connection.done()
        return request

    async def write(self, response: pb.SubscribeResponse) -> None:
        self._connection.answer(Operation.SUBSCRIBE, self._correlation, b"", [response.SerializeToString()], _MORE)
        await self._connection.until_writable()

    def unexpected(self, error: Exception) -> GoQueueError:
        return unexpected(error, "subscribe")

    async def _run(self) -> None:
        connection = self._connection
        endpoint = connection.server.subscribe_endpoint
        try:
            await run_stream(connection, Operation.SUBSCRIBE, self._correlation, endpoint, self._serve)
        finally:
            while not self._requests.empty():
                if self._requests.get_nowait() is not None:
                    connection.done()

    async def _serve(self) -> None:
        await Subscription(self._connection.server.subscriptions, self).run()
        self._connection.answer(Operation.SUBSCRIBE, self._correlation)
