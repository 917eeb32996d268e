"""Calls under way: who calls; what they raise becomes an error of the table; and which of them a stop waits for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import lru_cache, wraps
from time import perf_counter
from types import SimpleNamespace
from typing import Any, Protocol
from urllib.parse import unquote

import grpc.aio
from google.protobuf.message import Message

from goqueue.api.calls.failures import shutting_down
from goqueue.api.grpc.errors import Context, abort, unexpected
from goqueue.api.grpc.stream_room import StreamRoom
from goqueue.api.grpc.unread import Unread
from goqueue.api.grpc.unreadable import check_readable
from goqueue.broker.operations import Caller, CallerProtocol, Endpoint, Requests
from goqueue.model.errors import GoQueueError, RequestTimeout

_KNOWN_CONNECTIONS = 4_096
_OK = "OK"
_CANCELLED = "CANCELLED"
_READING = ("Describe", "Fetch", "Find", "Get", "List", "Peek")
"""How the names of calls begin that change nothing."""


def caller_of(context: Context) -> Caller:
    """The caller of an operation."""
    return _caller_at(context.peer())


@lru_cache(_KNOWN_CONNECTIONS)
def _caller_at(peer: str) -> Caller:
    """Made once for a connection, not for each of its calls. ``peer`` is such as ``ipv4:127.0.0.1:5000``."""
    family, _, address = peer.partition(":")
    known = unquote(address) if family in ("ipv4", "ipv6") else ""
    return Caller(address=known, protocol=CallerProtocol.GRPC)


class Calls:
    """Shared by all services of a server."""

    def __init__(self, max_call_s: float, requests: Requests, unread: Unread, stream_room: StreamRoom) -> None:
        self.max_call_s = max_call_s
        self.unread = unread
        self.stream_room = stream_room
        self._requests = requests
        self.streaming: Counter[str] = Counter()
        """How many streams each connection has open."""
        self.stopping = False
        self._to_answer: set[asyncio.Task[Any]] = set()
        self._to_cut: set[asyncio.Task[Any]] = set()

    def begin(self, *, resumable: bool = False) -> None:
        """The task that runs now is a call. A ``resumable`` one may be cut short: its client goes on elsewhere."""
        if self.stopping:
            raise shutting_down()
        task = asyncio.current_task()
        if task is not None:
            tasks = self._to_cut if resumable else self._to_answer
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    def endpoint(self, method: str) -> Endpoint:
        """Where calls of a method are counted."""
        return self._requests.find(method) or self._requests.endpoint(method, method)

    def stream_began(self, peer: str) -> None:
        self.streaming[peer] += 1

    def stream_ended(self, peer: str) -> None:
        self.streaming[peer] -= 1
        if not self.streaming[peer]:
            del self.streaming[peer]

    async def finish(self, within_s: float) -> None:
        """From here on nothing begins; return when those that must be answered are, or the time is up."""
        self.stopping = True
        for task in list(self._to_cut):
            task.cancel()
        if self._to_answer:
            await asyncio.wait(list(self._to_answer), timeout=within_s)


class StreamingService(Protocol):
    """Whose streams these are."""

    calls: Calls


def servicer(service: object, calls: Calls) -> Any:
    """What gRPC's generated code asks for: the calls of a service, which are its public methods."""
    names = [name for name in dir(service) if not name.startswith("_")]
    return SimpleNamespace(**{name: answered(calls, name, getattr(service, name)) for name in names})


def answered(
    calls: Calls, name: str, method: Callable[[Caller, Any], Awaitable[Message]]
) -> Callable[[Any, Context], Awaitable[bytes]]:
    """A call with one answer: bounded in time, and whatever it raises is an error of the table.

    The answer is serialized here, where its bytes are counted until the client has read them. When there is no room
    for more, calls are refused before they begin, and those that only read also when their answer is made.
    """
    changes_nothing = name.startswith(_READING) or name.endswith("Stats")

    async def call(request: Any, context: Context) -> bytes:
        failure: GoQueueError
        code, began = _CANCELLED, perf_counter()
        try:
            try:
                calls.begin()
                calls.unread.check_room(name)
                async with asyncio.timeout(calls.max_call_s):
                    reply = (await method(caller_of(context), check_readable(request))).SerializeToString()
                if changes_nothing:
                    # Many calls may have been let in at once.
                    calls.unread.check_room(name, len(reply))
                calls.unread.add(context, len(reply))
                code = _OK
                return reply
            except GoQueueError as error:
                failure = error
            except TimeoutError:
                failure = RequestTimeout(f"the call took longer than {calls.max_call_s} s (grpc.max_call_ms)")
            except Exception as error:
                failure = unexpected(error, name, context)
            code = failure.grpc_status
            # It takes hardly any memory, but one of the calls that may be served at once.
            calls.unread.add(context, 0)
            await abort(context, failure)
            raise failure
        finally:
            calls.endpoint(name).done(code, perf_counter() - began)

    return call


def streamed(method: Callable[..., Awaitable[None]]) -> Callable[..., Any]:
    """The same for a call that writes a stream of answers.

    Not a generator: gRPC would leave one that is suspended in the middle to the garbage collector.
    """

    name = method.__name__

    @wraps(method)
    async def call(service: StreamingService, request: Any, context: Context) -> None:
        failure: GoQueueError
        code, peer = _CANCELLED, context.peer()
        service.calls.stream_began(peer)
        try:
            try:
                await method(service, check_readable(request), context)
                code = _OK
                return
            except GoQueueError as error:
                failure = error
            except asyncio.CancelledError:
                if context.cancelled() or not service.calls.stopping:
                    raise
                failure = shutting_down()
            except (grpc.aio.AbortError, grpc.aio.UsageError):
                raise
            except grpc.aio.InternalError:
                # A write met the end of the call: its reader has gone, as readers do that have what they wanted.
                return
            except Exception as error:
                failure = unexpected(error, name, context)
            code = failure.grpc_status
            await abort(context, failure)
        finally:
            service.calls.stream_ended(peer)
            # How long a stream was open says nothing: it has no duration.
            service.calls.endpoint(name).count(code)

    return call
