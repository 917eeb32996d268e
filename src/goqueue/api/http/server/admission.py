"""How much is served at once. What goes beyond is answered 503 with Retry-After, before any work is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from goqueue.api.http.bodies.errors import error_answer
from goqueue.api.http.caller import UNKNOWN, caller_at
from goqueue.api.http.server.connection_limits import ABORT, ConnectionLimits
from goqueue.api.http.server.origin import Origins
from goqueue.api.http.server.request import HEALTH, Load, Receive, Request, Send, overloaded, too_large
from goqueue.broker.operations import Requests
from goqueue.model.config import HttpConfig
from goqueue.model.errors import BodyTooLarge, GoQueueError


class Admission:
    """The ASGI application: checks each request against the limits, has it served, and counts it."""

    def __init__(
        self,
        config: HttpConfig,
        serve: Callable[[Request], Awaitable[None]],
        requests: Requests | None = None,
        crowd: ConnectionLimits | None = None,
    ) -> None:
        self._config = config
        self._serve = serve
        self._requests = requests or Requests("http")
        self._origins = Origins(config)
        self.load = Load(config, crowd or ConnectionLimits(config))

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        method, path, raw_headers = scope["method"], scope["path"], scope["headers"]
        client, headers, load = scope["client"], dict(raw_headers), self.load
        request = Request(
            load,
            receive,
            send,
            method,
            path,
            scope["raw_path"],
            scope["query_string"],
            raw_headers,
            headers,
            UNKNOWN if client is None else caller_at(*client),
            self._requests.other,
            scope.get("state", {}).get(ABORT),
        )
        refusal = self._origins.refusal(method, path, headers) or self._too_much(path, headers.get(b"content-length"))
        if refusal is not None:
            request.endpoint.count(refusal.http_status)
            answer = error_answer(refusal)
            if isinstance(refusal, BodyTooLarge):
                # The rest of the body is not worth reading.
                answer.headers["connection"] = "close"
            await request.send(answer)
            return
        load.active += 1
        began = perf_counter()
        try:
            await self._serve(request)
        finally:
            load.active -= 1
            load.body_bytes -= request.counted
            request.endpoint.done(request.status, perf_counter() - began)

    def _too_much(self, path: str, announced: bytes | None) -> GoQueueError | None:
        """Why there is no room for a request. Health is answered all the same."""
        config, load = self._config, self.load
        if path not in HEALTH:
            if load.active >= config.max_concurrent_requests:
                return overloaded("http.max_concurrent_requests", config.max_concurrent_requests)
            if load.crowd.unread_bytes >= config.max_unread_bytes:
                return overloaded("http.max_unread_bytes", config.max_unread_bytes)
        # Only what has arrived is counted below: any length can be announced.
        total = 0 if announced is None else int(announced)
        if total > config.max_body_bytes:
            return too_large(total, config.max_body_bytes)
        if total and load.body_bytes >= config.max_request_memory_bytes:
            return overloaded("http.max_request_memory_bytes", config.max_request_memory_bytes)
        return None
