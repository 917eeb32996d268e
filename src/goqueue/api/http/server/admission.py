"""How much is served at once. What goes beyond is answered 503 with Retry-After, before any work is done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from time import perf_counter
from typing import Any, TypeVar

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from goqueue.api.http.bodies.allowed_methods import has_effects
from goqueue.api.http.bodies.errors import error_body, error_headers
from goqueue.api.http.server.connection_limits import ALWAYS_ANSWERED, ConnectionLimits
from goqueue.api.http.server.content_coding import CODINGS, coding_of, packing, takes_gzip, unpacked
from goqueue.api.http.server.methods import answer_options
from goqueue.api.http.server.metrics import endpoint_of
from goqueue.api.http.server.origin import Hosts, foreign_page
from goqueue.broker.operations import Requests
from goqueue.model.config import HttpConfig
from goqueue.model.errors import BodyTooLarge, GoQueueError, InvalidRequest, Overloaded, UnsupportedMediaType

Result = TypeVar("Result")

_RETRY_AFTER_S = 1
_NO_ANSWER = 499
"""What others count for a request without an answer; no status of HTTP."""
_HEALTH = {path.decode() for path in ALWAYS_ANSWERED}


class Admission:
    """The outermost layer of the app: counts requests, bodies and waiting reads against their bounds."""

    def __init__(
        self, config: HttpConfig, requests: Requests | None = None, crowd: ConnectionLimits | None = None
    ) -> None:
        self._config = config
        self._requests = requests or Requests("http")
        self._crowd = crowd or ConnectionLimits(config)
        self._hosts = Hosts(config)
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
        method, headers = scope["method"], dict(scope["headers"])
        body = _Body(self, self._config, scope, receive, send)
        refusal = (
            self._hosts.refusal(headers.get(b"host"))
            or foreign_page(method, scope["path"], headers)
            or self._too_much(scope["path"])
            or body.refusal(headers.get(b"content-length"))
        )
        if refusal is not None:
            await self._refuse(send, refusal)
            return
        self.active += 1
        began = perf_counter()
        answer: Send = body.send
        try:
            if method == "HEAD" and not has_effects(scope["path"]):
                # The server leaves the body out, by the scope that it has itself.
                scope = {**scope, "method": "GET"}
            elif method == "GET" and b"accept-encoding" in headers and takes_gzip(headers[b"accept-encoding"]):
                answer = packing(body.send)
            if b"content-encoding" in headers:
                await self._unpacked(app, scope, body, headers[b"content-encoding"], answer)
            elif method == "OPTIONS":
                await answer_options(app, scope, body.receive, body.send)
            else:
                await app(scope, body.receive, answer)
        finally:
            self.active -= 1
            self.body_bytes -= body.counted
            endpoint_of(scope, self._requests).done(body.status, perf_counter() - began)

    def _too_much(self, path: str) -> GoQueueError | None:
        """Whether the broker has its hands full; how it is can be asked for all the same."""
        config = self._config
        if self.active >= config.max_concurrent_requests and path not in _HEALTH:
            return _overloaded("http.max_concurrent_requests", config.max_concurrent_requests)
        return self.too_much_unread(path)

    def too_much_unread(self, path: str) -> GoQueueError | None:
        """Whether there is no room for another answer until clients take those that wait for them."""
        if self._crowd.is_unread_full and path not in _HEALTH:
            return _overloaded("http.max_unread_bytes", self._config.max_unread_bytes)
        return None

    async def _unpacked(self, app: ASGIApp, scope: Scope, body: _Body, coding: bytes, send: Send) -> None:
        """Answer a request whose body is packed."""
        try:
            name = coding_of(coding)
            if name is None:
                await app(scope, body.receive, send)
                return
            content = await body.unpacked(name)
        except GoQueueError as error:
            await _refuse(body.send, error)
            return
        dropped = {b"content-encoding", b"content-length", b"transfer-encoding"}
        kept = [each for each in scope["headers"] if each[0] not in dropped]
        scope["headers"] = [*kept, (b"content-length", str(len(content)).encode())]
        await app(scope, _after(content, body.receive), send)

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

    __slots__ = (
        "_admission", "_config", "_is_left", "_is_refused", "_receive", "_received", "_scope", "_send", "_whole",
        "counted", "status",
    )  # fmt: skip

    def __init__(self, admission: Admission, config: HttpConfig, scope: Any, receive: Receive, send: Send) -> None:
        self._admission = admission
        self._config = config
        self._scope = scope
        self._receive = receive
        self._send = send
        self.status = _NO_ANSWER
        self._is_left = False
        """Its client is gone: whatever is answered, nobody gets it."""
        self._is_refused = False
        """There was no room any more for the answer that was made."""
        self._received = 0
        self._whole = False
        self.counted = 0

    def refusal(self, announced: bytes | None) -> GoQueueError | None:
        """Whether the announced length already goes too far. Only what has come is counted: anyone can announce."""
        total = 0 if announced is None else int(announced)
        if total > self._config.max_body_bytes:
            return self._too_large(total)
        if total and self._admission.body_bytes >= self._config.max_request_memory_bytes:
            return self._no_memory()
        return None

    def _too_large(self, total: int) -> BodyTooLarge:
        return BodyTooLarge(
            f"the body has {total} bytes or more; http.max_body_bytes allows {self._config.max_body_bytes}"
        )

    def _no_memory(self) -> Overloaded:
        return _overloaded("http.max_request_memory_bytes", self._config.max_request_memory_bytes)

    def _count(self, total: int) -> GoQueueError | None:
        more = total - self.counted
        if more > 0:
            if self._admission.body_bytes + more > self._config.max_request_memory_bytes:
                return self._no_memory()
            self._admission.body_bytes += more
            self.counted = total
        return None

    def send(self, message: Message) -> Awaitable[None]:
        if self._is_refused:
            return _nothing()
        if message["type"] == "http.response.start":
            refusal = self._admission.too_much_unread(self._scope["path"])
            # Many requests may have been let in at once. What was stored or handed out is answered all the same.
            if refusal is not None and self._scope["method"] == "GET" and not has_effects(self._scope["path"]):
                self._is_refused = True
                self.status = refusal.http_status
                return _refuse(self._send, refusal)
            if not self._is_left:
                self.status = message["status"]
        return self._send(message)

    async def receive(self) -> Any:
        message = await self._receive()
        if message["type"] == "http.request":
            self._received += len(message["body"])
            if self._received > self._config.max_body_bytes:
                raise self._too_large(self._received)
            refusal = self._count(self._received)
            if refusal is not None:
                raise refusal
            self._whole = not message["more_body"]
        else:
            self._is_left = True
            if not self._whole:
                raise InvalidRequest("the client left before its request was whole")
        return message

    async def unpacked(self, coding: str) -> bytes:
        """All of it, without its coding. Both forms are counted until the request is answered."""
        parts = []
        while True:
            message = await self.receive()
            parts.append(message["body"])
            if self._whole:
                break
        packed, pieces, size = b"".join(parts), [], 0
        for piece in unpacked(packed, coding):
            size += len(piece)
            if size > self._config.max_body_bytes:
                raise BodyTooLarge(
                    f"the body unpacks to {size} bytes or more; http.max_body_bytes allows "
                    f"{self._config.max_body_bytes}"
                )
            refusal = self._count(self._received + size)
            if refusal is not None:
                raise refusal
            pieces.append(piece)
            # Others have their turn: a small body can stand for a large one.
            await asyncio.sleep(0)
        return b"".join(pieces)


async def _nothing() -> None:
    pass


def _after(content: bytes, receive: Receive) -> Receive:
    """Hands over a body that is there already, and then goes on as ``receive``."""
    is_taken = False

    async def receive_next() -> Any:
        nonlocal is_taken
        if is_taken:
            return await receive()
        is_taken = True
        return {"type": "http.request", "body": content, "more_body": False}

    return receive_next


def _overloaded(setting: str, limit: int) -> Overloaded:
    return Overloaded(f"the broker is at its limit: {setting} is {limit}", retry_after_s=_RETRY_AFTER_S)


async def _refuse(send: Send, error: GoQueueError) -> None:
    body = error_body(error)
    headers = [(name.lower().encode(), value.encode()) for name, value in error_headers(error).items()]
    headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if isinstance(error, UnsupportedMediaType):
        headers.append((b"accept-encoding", CODINGS.encode()))
    if isinstance(error, BodyTooLarge):
        # The rest of the body is not worth reading.
        headers.append((b"connection", b"close"))
    start: Message = {"type": "http.response.start", "status": error.http_status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body, "more_body": False})
