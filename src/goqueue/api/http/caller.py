"""The caller of an operation, from the address of an HTTP connection."""

from __future__ import annotations

from functools import lru_cache

from goqueue.broker.operations import Caller, CallerProtocol

_KNOWN_CONNECTIONS = 4_096
UNKNOWN = Caller(protocol=CallerProtocol.HTTP)


@lru_cache(_KNOWN_CONNECTIONS)
def caller_at(host: str, port: int) -> Caller:
    """The same object for each request of a connection."""
    return Caller(address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}", protocol=CallerProtocol.HTTP)
