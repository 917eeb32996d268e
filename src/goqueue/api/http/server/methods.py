"""What HTTP asks of every path: ``HEAD`` where there is ``GET``, and ``OPTIONS`` that names all methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litestar.types import ASGIApp, Receive, Scope, Send

_EVERYWHERE = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"
_NO_ROUTE_HAS = "TRACE"


async def answer_options(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """The framework's own answer knows one route of a path; its refusal of a method knows all of them."""
    if scope["path"] == "*":
        await _answer(send, [(b"allow", _EVERYWHERE.encode())])
        return
    methods: list[tuple[bytes, bytes]] = []

    async def look(message: Any) -> None:
        if message["type"] == "http.response.start":
            methods.extend(each for each in message["headers"] if each[0] == b"allow")

    probe: Any = {**scope, "method": _NO_ROUTE_HAS}
    await app(probe, receive, look)
    if methods:
        await _answer(send, methods)
    else:
        # There is no such path, and the framework says so.
        await app(scope, receive, send)


async def _answer(send: Send, headers: Sequence[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": list(headers)})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
