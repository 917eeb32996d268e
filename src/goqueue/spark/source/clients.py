"""Cache of broker clients, one per Python process and list of brokers."""

from __future__ import annotations

import os

from goqueue.client.sync import Client

_CONNECT_TIMEOUT_MS = 30_000
"""Long enough for a query to survive a broker restart."""
_clients: dict[tuple[int, tuple[str, ...]], Client] = {}


def client_for(brokers: tuple[str, ...]) -> Client:
    """The client of this process, created on first use and kept: a Spark worker runs many tasks.

    Keyed by process id, so a forked worker never uses its parent's client.
    """
    key = (os.getpid(), brokers)
    if key not in _clients:
        _clients[key] = Client(list(brokers), connect_timeout_ms=_CONNECT_TIMEOUT_MS)
    return _clients[key]
