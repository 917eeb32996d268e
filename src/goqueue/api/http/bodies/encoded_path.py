"""Names in paths that may have a ``/``.

Clients send it as ``%2F``; the framework looks at paths that are decoded. So it is kept encoded until a route is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from litestar import Request
from litestar.types import ASGIApp, Receive, Scope, Send


def has_encoded_slash(scope: Scope) -> bool:
    raw = scope["raw_path"]
    return b"%2f" in raw.lower() or b"%25" in raw


def decoded_parts(scope: Scope) -> list[str]:
    """The parts of a path, each decoded on its own."""
    raw = scope["raw_path"].decode("ascii", "replace")
    return [unquote(part, errors="replace") for part in raw.partition("?")[0].split("/")]


def encoded(parts: Sequence[str]) -> str:
    """A path of these parts, as it is kept until a route is found."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


def decode_parameters(request: Request[Any, Any, Any]) -> None:
    """To be called before the route of such a path."""
    # In a new dictionary: the framework keeps the other for the next request.
    request.scope["path_params"] = {
        name: value.replace("%2F", "/").replace("%25", "%") if isinstance(value, str) else value
        for name, value in request.scope["path_params"].items()
    }


def keeping_slashes(start: str, app: ASGIApp) -> ASGIApp:
    """Keeps every ``/`` in the last part of the paths that begin with ``start``."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].removeprefix("/v1").startswith(start) and has_encoded_slash(scope):
            scope["path"] = encoded(decoded_parts(scope))
        await app(scope, receive, send)

    return serve
