"""The caller of an operation, from an HTTP request."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from litestar import Request
from litestar.types import Scope

from goqueue.broker.operations import Caller, CallerProtocol

AnyRequest = Request[Any, Any, Any]

_KNOWN_CONNECTIONS = 4_096
_UNKNOWN = Caller(protocol=CallerProtocol.HTTP)


def caller_of(request: AnyRequest) -> Caller:
    """For a route of the framework."""
    return caller_in(request.scope)


def caller_in(scope: Scope) -> Caller:
    """For what answers before the framework does."""
    client = scope["client"]
    return _UNKNOWN if client is None else _caller_at(*client)


@lru_cache(_KNOWN_CONNECTIONS)
def _caller_at(host: str, port: int) -> Caller:
    """Made once for a connection, not for each of its requests."""
    return Caller(address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}", protocol=CallerProtocol.HTTP)
