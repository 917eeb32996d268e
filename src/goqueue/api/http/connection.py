"""One client's connection, with deadlines: a client that sends nothing, or reads nothing, does not hold it for ever."""

from __future__ import annotations

import asyncio
import re
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from goqueue.api.http.errors import error_body, error_headers
from goqueue.model.config import HttpConfig
from goqueue.model.errors import GoQueueError, InvalidRequest, Overloaded, RequestTimeout
from goqueue.observe.requests import Requests

_UPGRADE = re.compile(rb"\r\nupgrade(?=[ \t]*:)", re.IGNORECASE)
_NOT_AN_UPGRADE = b"\r\nx-pgrade"


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, watched. ``sweep`` closes those that are past their deadline; no timer per request."""

    limits: ClassVar[HttpConfig] = HttpConfig()
    requests: ClassVar[Requests] = Requests("http")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = True
        self._answering: RequestResponseCycle | None = None
        self._unread_bytes = 0
        self._unread_since = 0.0
        self.deadline: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            self.refuse(
                Overloaded(
                    f"there are {self.limits.max_connections} connections already (http.max_connections)",
                    retry_after_s=1,
                )
            )
            return
        self.deadline = self.loop.time() + self.limits.header_timeout_ms / 1_000

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
            if self.deadline is None:
                self.deadline = self.loop.time() + self.limits.header_timeout_ms / 1_000
            data = _without_upgrade(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > self.limits.max_header_bytes:
            self._refuse_head()

    def on_headers_complete(self) -> None:
        if (
            len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            > self.limits.max_header_bytes
        ):
            # All of it came at once, before anything could be counted. Raising makes the parser stop.
            self._refuse_head()
            raise InvalidRequest("headers")
        self._in_head = False
        self.deadline = self.loop.time() + self.limits.body_timeout_ms / 1_000
        super().on_headers_complete()
        if not self.pipeline:
            self._answering = self.cycle

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True
        self._head_bytes = 0
        self.deadline = None

    def on_response_complete(self) -> None:
        self._answering = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()
        super().connection_lost(exc)

    def _let_go(self) -> None:
        """Nobody hears the answer any more. uvicorn tells that to the last request only, which may be another."""
        if self._answering is not None:
            self._answering.disconnected = True
            self._answering.message_event.set()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for what is not HTTP."""
        self.refuse(InvalidRequest(msg))

    def _refuse_head(self) -> None:
        self.refuse(InvalidRequest(f"the request's headers have more than {self.limits.max_header_bytes} bytes"))

    def refuse(self, error: GoQueueError) -> None:
        if self.transport.is_closing():
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

    def past_deadline(self, now: float) -> bool:
        return self.deadline is not None and now > self.deadline

    def is_unread(self, now: float) -> bool:
        """Whether the client has taken nothing of what waits for it, for too long."""
        before, self._unread_bytes = self._unread_bytes, self.transport.get_write_buffer_size()
        if not before or self._unread_bytes < before:
            self._unread_since = now
        return self._unread_bytes > 0 and now - self._unread_since > self.limits.write_timeout_ms / 1_000

    def time_out(self) -> None:
        what = "headers" if self._in_head else "body"
        limit_ms = self.limits.header_timeout_ms if self._in_head else self.limits.body_timeout_ms
        answering = self._answering is not None and self._answering.response_started
        if answering or (self._in_head and not self._head_bytes):
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


def _without_upgrade(data: bytes) -> bytes:
    """Hide an offer to change the protocol, which a server may ignore.

    Java's client makes one with its first request. The parser would take the body for the other protocol's bytes.
    """
    end = data.find(b"\r\n\r\n")
    end = len(data) if end < 0 else end
    if _UPGRADE.search(data, 0, end) is None:
        return data
    return _UPGRADE.sub(_NOT_AN_UPGRADE, data[:end]) + data[end:]
