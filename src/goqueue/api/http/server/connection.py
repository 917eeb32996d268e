"""One client's connection, with deadlines: a client that sends nothing, or reads nothing, does not hold it for ever."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from goqueue.api.http.bodies.errors import error_body, error_headers
from goqueue.api.http.server.connection_limits import ABORT, ALWAYS_ANSWERED, ConnectionLimits
from goqueue.broker.operations import Requests
from goqueue.model.config import HttpConfig
from goqueue.model.errors import GoQueueError, InvalidRequest, Overloaded, RequestTimeout, UnsupportedFeature

_VERSIONS = {"1.0", "1.1"}
_CHUNK_LINE_BYTES = 20
"""The most that the line of a chunk, and the end of the chunk, take without extensions."""


class _Dropped(list[tuple[bytes, bytes]]):
    """Where trailers go: uvicorn would add them to the headers of the request, or keep them."""

    def append(self, trailer: tuple[bytes, bytes]) -> None:
        pass


_DROPPED = _Dropped()


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, watched. ``sweep`` closes those that are past their deadline; no timer per request."""

    limits: ClassVar[HttpConfig] = HttpConfig()
    requests: ClassVar[Requests] = Requests("http")
    crowd: ClassVar[ConnectionLimits] = ConnectionLimits(HttpConfig())
    """What all connections of a server have together; each server has its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._line_bytes = 0
        """Of the head; behind it, of all that is no body: lines of chunks with their extensions, and trailers."""
        self._offered: bytes | None = None
        """The head of a request that offers another protocol, without the offer, until it is parsed once more."""
        self._answering: RequestResponseCycle | None = None
        self._held: tuple[RequestResponseCycle, ASGI3Application] | None = None
        """The next request, while the client does not read the answer to the one before."""
        self._is_spare = False
        """Whether it came when there were connections enough; then it may ask how the broker is, and nothing else."""
        self._unread_bytes = 0
        self._unread_since = 0.0
        self._counted_bytes = 0
        self.deadline: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {ABORT: transport.abort}
        self.deadline = self.loop.time() + self.limits.header_timeout_ms / 1_000
        if len(self.connections) - len(self.crowd.spare) > self.limits.max_connections:
            self._is_spare = True
            pushed_out = self.crowd.add_spare(self)
            if pushed_out is not None:
                pushed_out.refuse_spare()

    # Requests

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        # What belongs to a body is taken off again as the parser finds it.
        self._line_bytes += len(data)
        if self.deadline is None:
            self.deadline = self.loop.time() + self.limits.header_timeout_ms / 1_000
        self._unset_keepalive_if_required()
        self._feed(data)
        if self._line_bytes > self.limits.max_header_bytes:
            self._refuse_lines()

    def _feed(self, data: bytes | memoryview) -> None:
        """Not uvicorn's own: that one drops what follows an offer to change the protocol."""
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as offer:
                # Java's client makes one with its first request. A server may ignore it, and this one does: a parser
                # of its own reads the same head without the offer, and then what follows it.
                if self._offered is None:
                    return
                head, self._offered = self._offered, None
                data = memoryview(data)[offer.args[0] :]
                self.parser = _new_parser(self)
                try:
                    self.parser.feed_data(head)
                except httptools.HttpParserError:
                    self.send_400_response("Invalid HTTP request received.")
                    return
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
                return

    def on_headers_complete(self) -> None:
        size, hosts, coding = len(self.url), 0, b"chunked"
        for name, value in self.headers:
            size += len(name) + len(value) + 4
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding" and value.lower() != b"chunked":
                coding = value
        version = self.parser.get_http_version()
        if size > self.limits.max_header_bytes:
            # All of it came at once, before anything could be counted.
            self._refuse_lines()
        elif version not in _VERSIONS:
            self.refuse(InvalidRequest(f"the request is HTTP/{version}; HTTP/1.1 and HTTP/1.0 are spoken here"))
        elif hosts > 1 or (not hosts and version != "1.0"):
            self.refuse(InvalidRequest(f"the request has {hosts} Host headers; HTTP/{version} asks for one"))
        elif coding != b"chunked":
            shown = coding[:100].decode("ascii", "replace")
            self.refuse(UnsupportedFeature(f"Transfer-Encoding {shown!r} is not taken; 'chunked' is"))
        elif self.parser.get_method() == b"CONNECT":
            self.refuse(InvalidRequest("the request is CONNECT; the broker is no proxy"))
        elif self._is_spare and self.url.partition(b"?")[0] not in ALWAYS_ANSWERED:
            self.refuse_spare()
        elif self.parser.should_upgrade():
            self._offered = _without_offer(self.parser, self.url, self.headers)
            return
        if self.transport.is_closing():
            # Raising makes the parser stop.
            raise InvalidRequest("the request was refused")
        self.deadline = self.loop.time() + self.limits.body_timeout_ms / 1_000
        super().on_headers_complete()
        self.headers = _DROPPED
        self._in_head = False
        self._line_bytes = 0
        if self._is_spare:
            self.cycle.keep_alive = False
        if not self.pipeline:
            self._answering = self.cycle

    def on_body(self, body: bytes) -> None:
        self._line_bytes = max(0, self._line_bytes - len(body) - _CHUNK_LINE_BYTES)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._offered is not None:
            return
        super().on_message_complete()
        self._in_head = True
        self._line_bytes = 0
        self.deadline = None

    # Answers

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Whose client does not read has one answer waiting for it, and not another one made."""
        if self.flow.write_paused:
            self._held = (cycle, app)
        else:
            super()._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._count(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._count(0)
        if self._held is not None:
            held, self._held = self._held, None
            super()._start_asgi_task(*held)

    def _count(self, unread_bytes: int) -> None:
        self.crowd.unread_bytes += unread_bytes - self._counted_bytes
        self._counted_bytes = unread_bytes

    def on_response_complete(self) -> None:
        self._answering = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()
        self._held = None
        super().connection_lost(exc)
        self._count(0)
        self.crowd.spare.pop(self, None)

    def _let_go(self) -> None:
        """Nobody hears the answer any more. uvicorn tells that to the last request only, which may be another."""
        if self._answering is not None:
            self._answering.disconnected = True
            self._answering.message_event.set()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for what is not HTTP."""
        self.refuse(InvalidRequest(msg))

    def refuse_spare(self) -> None:
        self.refuse(
            Overloaded(
                f"there are {self.limits.max_connections} connections already (http.max_connections)", retry_after_s=1
            )
        )

    def _refuse_lines(self) -> None:
        what = "headers" if self._in_head else "trailers and lines of chunks"
        self.refuse(InvalidRequest(f"the request's {what} have more than {self.limits.max_header_bytes} bytes"))

    def refuse(self, error: GoQueueError) -> None:
        if self.transport.is_closing():
            return
        if self._is_answered():
            self._let_go()
            self.transport.close()
            return
        if self._answering is None:
            # Else the request is counted by those who answer it.
            self.requests.other.count(error.http_status)
        body = error_body(error)
        head = [STATUS_LINE[error.http_status], b"content-type: application/json\r\nconnection: close\r\n"]
        head += [f"{name.lower()}: {value}\r\n".encode() for name, value in error_headers(error).items()]
        self.transport.write(b"".join([*head, b"content-length: %d\r\n\r\n" % len(body), body]))
        self._let_go()
        self.transport.close()

    def _is_answered(self) -> bool:
        """Whether what is sent now would be a second answer to a request, or be taken for a part of the first one."""
        answering = self._answering
        if answering is None:
            return not self._in_head and self.cycle.response_complete
        return answering.response_started

    def past_deadline(self, now: float) -> bool:
        return self.deadline is not None and now > self.deadline

    def is_unread(self, now: float) -> bool:
        """Whether the client has taken nothing of what waits for it, for too long."""
        before, self._unread_bytes = self._unread_bytes, self.transport.get_write_buffer_size()
        self._count(self._unread_bytes)
        if not before or self._unread_bytes < before:
            self._unread_since = now
        return self._unread_bytes > 0 and now - self._unread_since > self.crowd.patience_ms / 1_000

    def time_out(self) -> None:
        what = "headers" if self._in_head else "body"
        limit_ms = self.limits.header_timeout_ms if self._in_head else self.limits.body_timeout_ms
        if self._in_head and not self._line_bytes:
            self.transport.close()
        else:
            self.refuse(RequestTimeout(f"the request's {what} did not arrive within {limit_ms} ms"))


def sweep(connections: set[Any], now: float) -> None:
    """Close every connection whose client let its deadline pass, or does not read."""
    for connection in list(connections):
        if not isinstance(connection, Connection):
            continue
        if connection.is_unread(now):
            # Not ``close``, which would wait until all is read.
            connection.transport.abort()
        elif connection.past_deadline(now):
            connection.time_out()


def _new_parser(connection: Connection) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(connection)
    # As uvicorn has it: what comes after the last request of a connection is no error of that request.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _without_offer(parser: httptools.HttpRequestParser, url: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The head of a request as it was sent, but for what offers another protocol."""
    lines = [b"%b %b HTTP/%b\r\n" % (parser.get_method(), url, parser.get_http_version().encode())]
    lines += [b"%b: %b\r\n" % (name, value) for name, value in headers if name != b"upgrade"]
    return b"".join([*lines, b"\r\n"])
