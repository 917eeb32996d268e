"""The caller of an operation: which principal, from which address, over which protocol."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

ANONYMOUS = "anonymous"
"""The principal of every caller until there is authentication."""


class CallerProtocol(StrEnum):
    """The protocol that an operation was asked for by."""

    HTTP = "http"
    GRPC = "grpc"
    NATIVE = "native"
    IN_PROCESS = "in_process"


@dataclass(frozen=True, slots=True)
class Caller:
    """Every operation takes one as its first argument; it never changes what the operation does by itself."""

    principal: str = ANONYMOUS
    address: str = ""
    """Where the request came from, as host:port; empty if there is no connection or its other end is not known."""
    protocol: CallerProtocol = CallerProtocol.IN_PROCESS


IN_PROCESS = Caller()
"""Code in the broker's own process, such as an application that embeds a ``Broker``."""
