"""The caller of an operation, from a gRPC call."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import unquote

from goqueue.api.grpc.errors import Context
from goqueue.broker.operations import Caller, CallerProtocol

_KNOWN_CONNECTIONS = 4_096


def caller_of(context: Context) -> Caller:
    return _caller_at(context.peer())


@lru_cache(_KNOWN_CONNECTIONS)
def _caller_at(peer: str) -> Caller:
    """Made once for a connection, not for each of its calls. ``peer`` is such as ``ipv4:127.0.0.1:5000``."""
    family, _, address = peer.partition(":")
    known = unquote(address) if family in ("ipv4", "ipv6") else ""
    return Caller(address=known, protocol=CallerProtocol.GRPC)
