"""How much is served at once. What goes beyond is answered 503 with Retry-After, before any work is done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from time import perf_counter
from typing import Any, TypeVar

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from goqueue.api.http.errors import error_body, error_headers
from goqueue.api.http.metrics import endpoint_of
from goqueue.model.config import HttpConfig
from goqueue.model.errors import BodyTooLarge, CrossOrigin, GoQueueError, InvalidRequest, Overloaded
from goqueue.observe.requests import Requests

Result = TypeVar("Result")

_RETRY_AFTER_S = 1
_NO_ANSWER = 499
"""What others count for a request without an answer; no status of HTTP."""
_SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
_HEALTH = ("/health", "/healthz", "/livez", "/readyz")
_ALWAYS_ANSWERED = {*_HEALTH, *(f"/v1{path}" for path in _HEALTH)}
"""A broker that has much to do is not one that is to be restarted."""


class Admission:
    """The outermost layer of the app: counts requests, bodies and waiting reads against their bounds."""

    def __init__(self, config: HttpConfig, requests: Requests | None = None) -> None:
        self._config = config
        self._requests = requests or Requests("http")
        self._app: ASGIApp | None = None
        self.active = 0
        self.waiting = 0
        self.body_bytes = 0

    def wrap(self, app: ASGIApp) -> ASGIApp:
        self._app = app
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if app is None or scope["type"] != ScopeType.HTTP:
            return
        if self.active >= self._config.max_concurrent_requests and scope["path"] not in _ALWAYS_ANSWERED:
            await self._refuse(send, _overloaded("http.max_concurrent_requests", self._config.max_concurrent_requests))
            return
        body = _Body(self, self._config, receive, send)
        refusal = _foreign_page(scope) or body.refusal(scope["headers"])
        if refusal is not None:
            await self._refuse(send, refusal)
            return
        self.active += 1
        began = perf_counter()
        try:
            await app(scope, body.receive, body.send)
        finally:
            self.active -= 1
            self.body_bytes -= body.counted
            endpoint_of(scope, self._requests).done(body.status, perf_counter() - began)

    async def _refuse(self, send: Send, error: GoQueueError) -> None:
        """Nobody has looked yet what was asked for."""
        self._requests.other.count(error.http_status)
        await _refuse(send, error)

    async def waiting_read(self, receive: Receive, read: Coroutine[Any, Any, Result]) -> Result:
        """A read that waits gives its place to others, and takes one among those who wait until its client leaves."""
        if self.waiting >= self._config.max_waiting_reads:
            read.close()
            raise _overloaded("http.max_waiting_reads", self._config.max_waiting_reads)
        self.waiting += 1
        self.active -= 1
        reading, leaving = asyncio.create_task(read), asyncio.create_task(_left(receive))
        try:
            await asyncio.wait({reading, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise InvalidRequest("the client left before the answer")
            return reading.result()
        finally:
            reading.cancel()
            leaving.cancel()
            await asyncio.gather(reading, leaving, return_exceptions=True)
            self.waiting -= 1
            self.active += 1


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _Body:
    """Counts a request's body as it comes in, and sees what the answer is."""

    __slots__ = ("_admission", "_config", "_is_left", "_receive", "_received", "_send", "_whole", "counted", "status")

    def __init__(self, admission: Admission, config: HttpConfig, receive: Receive, send: Send) -> None:
        self._admission = admission
        self._config = config
        self._receive = receive
        self._send = send
        self.status = _NO_ANSWER
        self._is_left = False
        """Its client is gone: whatever is answered, nobody gets it."""
        self._received = 0
        self._whole = False
        self.counted = 0

    def refusal(self, headers: Any) -> GoQueueError | None:
        """Whether the declared length already goes too far."""
        for name, value in headers:
            if name == b"content-length":
                return self._count(int(value))
        return None

    def _count(self, total: int) -> GoQueueError | None:
        if total > self._config.max_body_bytes:
            return BodyTooLarge(
                f"the body has {total} bytes or more; http.max_body_bytes allows {self._config.max_body_bytes}"
            )
        more = total - self.counted
        if more > 0:
            if self._admission.body_bytes + more > self._config.max_request_memory_bytes:
                return _overloaded("http.max_request_memory_bytes", self._config.max_request_memory_bytes)
            self._admission.body_bytes += more
            self.counted = total
        return None

    def send(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start" and not self._is_left:
            self.status = message["status"]
        return self._send(message)

    async def receive(self) -> Any:
        message = await self._receive()
        if message["type"] == "http.request":
            self._received += len(message["body"])
            refusal = self._count(self._received)
            if refusal is not None:
                raise refusal
            self._whole = not message["more_body"]
        else:
            self._is_left = True
            if not self._whole:
                raise InvalidRequest("the client left before its request was whole")
        return message


def _foreign_page(scope: Any) -> GoQueueError | None:
    """Browsers name the page behind a request that may change something; only the broker's own pages may."""
    if scope["method"] in _SAFE_METHODS:
        return None
    headers = dict(scope["headers"])
    origin = headers.get(b"origin")
    if origin is None or origin.partition(b"//")[2] == headers.get(b"host"):
        return None
    return CrossOrigin(f"requests from pages of {origin.decode(errors='replace')[:100]} are refused")


def _overloaded(setting: str, limit: int) -> Overloaded:
    return Overloaded(f"the broker is at its limit: {setting} is {limit}", retry_after_s=_RETRY_AFTER_S)


async def _refuse(send: Send, error: GoQueueError) -> None:
    body = error_body(error)
    headers = [(name.lower().encode(), value.encode()) for name, value in error_headers(error).items()]
    headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if isinstance(error, BodyTooLarge):
        # The rest of the body is not worth reading.
        headers.append((b"connection", b"close"))
    start: Message = {"type": "http.response.start", "status": error.http_status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body, "more_body": False})
