"""One HTTP request within the limits of the broker: its body as it arrives, and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any, TypeVar

from msgspec import Struct

from goqueue.api.http.bodies.answer import Answer
from goqueue.api.http.bodies.errors import RawHeaders, error_answer, known_error
from goqueue.api.http.server.connection_limits import ALWAYS_ANSWERED, ConnectionLimits
from goqueue.api.http.server.content_coding import coding_of, is_worth_packing, packed, takes_gzip, unpacked
from goqueue.broker.operations import Caller, Endpoint
from goqueue.model.config import HttpConfig
from goqueue.model.errors import BodyTooLarge, InvalidRequest, Overloaded
from goqueue.model.logging import get_logger

log = get_logger(__name__)

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Result = TypeVar("Result")

HEALTH = {path.decode() for path in ALWAYS_ANSWERED}
NO_ANSWER = 499
"""What other servers count for a request without an answer; not a status of HTTP."""
_RETRY_AFTER_S = 1


class Load:
    """What all requests together take at the moment."""

    def __init__(self, config: HttpConfig, crowd: ConnectionLimits) -> None:
        self.config = config
        self.crowd = crowd
        self.active = 0
        self.waiting = 0
        self.body_bytes = 0


class Request(Struct):
    """A request. Its body is counted against the limits while it arrives, and until the request is answered."""

    load: Load
    receive: Receive
    emit: Send
    method: str
    path: str
    raw_path: bytes
    query: bytes
    raw_headers: RawHeaders
    headers: Mapping[bytes, bytes]
    """The last of each name. Names are in lower case."""
    caller: Caller
    endpoint: Endpoint
    """Where the request is counted."""
    abort: Callable[[], None] | None = None
    """Cuts the connection off; the server sets it, if it can."""
    route: str = ""
    """The path of the route that serves it, as declared."""
    status: int = NO_ANSWER
    is_repeatable: bool = False
    """The answer may still be withheld: making it has changed nothing."""
    _received: int = 0
    counted: int = 0
    """Bytes of the body that are counted in ``load``."""
    _is_left: bool = False
    """The client is gone: no answer reaches it."""

    def header(self, name: bytes) -> str:
        """The first of that name."""
        return next((value.decode("latin-1") for each, value in self.raw_headers if each == name), "")

    # The body

    async def body(self, max_bytes: int | None = None) -> bytes:
        """All of it, unpacked if it was packed. ``max_bytes``: the limit of this path, below that of all."""
        packed_as = self.headers.get(b"content-encoding")
        coding = None if packed_as is None else coding_of(packed_as)
        if max_bytes is not None and coding is None and int(self.headers.get(b"content-length", 0)) > max_bytes:
            raise self._too_large_for_path()
        parts: list[bytes] = []
        is_whole = False
        while not is_whole:
            message = await self.receive()
            if message["type"] != "http.request":
                self._is_left = True
                raise InvalidRequest("the client left before its request was whole")
            parts.append(message["body"])
            self._received += len(parts[-1])
            self._count(self._received)
            if max_bytes is not None and self._received > max_bytes:
                raise self._too_large_for_path()
            is_whole = not message["more_body"]
        content = parts[0] if len(parts) == 1 else b"".join(parts)
        if coding is not None:
            content = await self._unpacked(content, coding)
            if max_bytes is not None and len(content) > max_bytes:
                raise self._too_large_for_path()
        return content

    def _check_size(self) -> None:
        most = self.load.config.max_body_bytes
        if self._received > most:
            raise too_large(self._received, most)

    def _count(self, total: int) -> None:
        config = self.load.config
        self._check_size()
        more = total - self.counted
        if more > 0:
            if self.load.body_bytes + more > config.max_request_memory_bytes:
                raise overloaded("http.max_request_memory_bytes", config.max_request_memory_bytes)
            self.load.body_bytes += more
            self.counted = total

    async def _unpacked(self, content: bytes, coding: str) -> bytes:
        """Both forms are counted until the request is answered."""
        most = self.load.config.max_body_bytes
        pieces: list[bytes] = []
        size = 0
        for piece in unpacked(content, coding):
            size += len(piece)
            if size > most:
                raise BodyTooLarge(f"the body unpacks to {size} bytes or more; http.max_body_bytes allows {most}")
            self._count(self._received + size)
            pieces.append(piece)
            # Other requests have their turn: a small body can stand for a large one.
            await asyncio.sleep(0)
        return b"".join(pieces)

    def _too_large_for_path(self) -> BodyTooLarge:
        return BodyTooLarge(f"{self.method} {self.path[:200]}: Request Entity Too Large")

    # Waiting

    async def waiting_read(self, read: Coroutine[Any, Any, Result]) -> Result:
        """Wait for a read as one of ``http.max_waiting_reads``, not of the active requests, until the client leaves."""
        load = self.load
        if load.waiting >= load.config.max_waiting_reads:
            read.close()
            raise overloaded("http.max_waiting_reads", load.config.max_waiting_reads)
        load.waiting += 1
        load.active -= 1
        try:
            return await self._unless_left(read)
        finally:
            load.waiting -= 1
            load.active += 1

    async def _unless_left(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of ``work``, which is cancelled when the client leaves."""
        working, leaving = asyncio.create_task(work), asyncio.create_task(self._left())
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                leaving.result()
                raise InvalidRequest("the client left before the answer")
            return working.result()
        finally:
            working.cancel()
            leaving.cancel()
            await asyncio.gather(working, leaving, return_exceptions=True)

    async def _left(self) -> None:
        """Returns when the client has gone. A body that comes meanwhile is not kept, and bounded all the same."""
        while (message := await self.receive())["type"] != "http.disconnect":
            self._received += len(message["body"])
            self._check_size()
        self._is_left = True

    # The answer

    async def send(self, answer: Answer) -> None:
        """Once for each request."""
        load = self.load
        if self.is_repeatable and load.crowd.is_unread_full and self.path not in HEALTH:
            # Many requests may have been admitted at once. What was stored or handed out is answered all the same.
            answer = error_answer(overloaded("http.max_unread_bytes", load.config.max_unread_bytes))
        if not self._is_left:
            self.status = answer.status
        headers = [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
        if answer.media_type:
            headers.append((b"content-type", answer.media_type.encode()))
        content = answer.content
        if not isinstance(content, bytes):
            await self.emit({"type": "http.response.start", "status": answer.status, "headers": headers})
            try:
                await self._unless_left(self._stream(content))
            except Exception as error:
                # A client may leave at any time: that is no failure of the broker.
                if not self._is_left:
                    await self._cut_short(error)
            return
        if self._takes_gzip(answer):
            headers.append((b"vary", b"accept-encoding"))
            if (smaller := await packed(content)) is not None:
                content = smaller
                headers.append((b"content-encoding", b"gzip"))
        if answer.status != HTTPStatus.NO_CONTENT:
            headers.append((b"content-length", b"%d" % len(content)))
        await self.emit({"type": "http.response.start", "status": answer.status, "headers": headers})
        await self.emit({"type": "http.response.body", "body": content, "more_body": False})

    def _takes_gzip(self, answer: Answer) -> bool:
        accept = self.headers.get(b"accept-encoding")
        if accept is None or self.method != "GET" or answer.status != 200:
            return False
        return takes_gzip(accept) and is_worth_packing(answer.media_type)

    async def _stream(self, pieces: AsyncIterator[bytes]) -> None:
        async for piece in pieces:
            await self.emit({"type": "http.response.body", "body": piece, "more_body": True})
        await self.emit({"type": "http.response.body", "body": b"", "more_body": False})

    async def _cut_short(self, error: Exception) -> None:
        """End an answer of which a part was sent: there is no last piece, so the client knows that it is not whole."""
        failure = known_error(error, self.method, self.path, self.raw_headers)
        log.warning("an answer was cut short", reason=str(failure), method=self.method, path=self.path)
        self.status = failure.http_status
        if self.abort is None:
            raise failure
        self.abort()
        # The server takes an answer without an end for a defect unless it has seen the connection go.
        while (await self.receive())["type"] != "http.disconnect":
            pass


def overloaded(setting: str, limit: int) -> Overloaded:
    return Overloaded(f"the broker is at its limit: {setting} is {limit}", retry_after_s=_RETRY_AFTER_S)


def too_large(size: int, limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body has {size} bytes or more; http.max_body_bytes allows {limit}")
