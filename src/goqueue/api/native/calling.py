"""Calls with one answer of one connection: what they do is the same as over gRPC (``api.calls``)."""

from __future__ import annotations

import asyncio
from time import perf_counter

from goqueue.api.native.host import CallTarget, Requester
from goqueue.api.native.requests import decoded, known
from goqueue.model.errors import BodyTooLarge, InvalidRequest, RequestTimeout, UnsupportedFeature
from goqueue.wire.native.message import Message


class Calling:
    """Each call is a task, which a client may cancel."""

    def __init__(self, connection: Requester) -> None:
        self._connection = connection
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def take(self, message: Message) -> None:
        connection, correlation = self._connection, message.correlation
        if correlation in self._tasks:
            raise InvalidRequest(f"correlation {correlation} is that of a call that is not answered yet")
        connection.begin()
        self._tasks[correlation] = task = asyncio.create_task(self._serve(message))
        task.add_done_callback(lambda _: self._ended(correlation))

    def _ended(self, correlation: int) -> None:
        del self._tasks[correlation]
        self._connection.done()

    def cancel(self, correlation: int | None = None) -> None:
        """One call, or all of them: nobody waits for the answer any more."""
        tasks = list(self._tasks.values()) if correlation is None else [self._tasks.get(correlation)]
        for task in tasks:
            if task is not None:
                task.cancel()

    async def _serve(self, message: Message) -> None:
        connection, operation, correlation = self._connection, message.operation, message.correlation
        server = connection.server
        call = server.calls.get(operation)
        if call is None:
            connection.fail(operation, correlation, UnsupportedFeature(f"there is no operation {operation}"))
            return
        began_s, code = perf_counter(), "CANCELLED"
        try:
            reply = await self._reply(call, message)
            code = "OK"
            connection.answer(operation, correlation, b"", [reply])
        except Exception as error:
            failure = known(error, call.name)
            code = failure.grpc_status
            connection.fail(operation, correlation, failure)
        finally:
            call.endpoint.done(code, perf_counter() - began_s)

    async def _reply(self, call: CallTarget, message: Message) -> bytes:
        """The answer, encoded."""
        connection, max_call_s = self._connection, self._connection.server.max_call_s
        if len(message.payload) > call.max_request_bytes:
            raise BodyTooLarge(
                f"the request has {len(message.payload)} bytes; {call.max_request_bytes} are allowed for this call"
            )
        request = decoded(call.request, message.payload, f"the request of {call.name}")
        try:
            async with asyncio.timeout(max_call_s):
                await connection.until_writable()
                reply = await call.method(connection.caller, request)
            return reply.SerializeToString()
        except TimeoutError:
            raise RequestTimeout(f"the call took longer than {max_call_s} s (native.max_call_ms)") from None
