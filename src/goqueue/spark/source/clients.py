"""One client for each Python process of Spark that needs one."""

from __future__ import annotations

import os

from goqueue.client.sync import Client

_CONNECT_TIMEOUT_MS = 30_000
"""A query outlives a broker that is started again."""
_clients: dict[tuple[int, tuple[str, ...]], Client] = {}


def client_for(brokers: tuple[str, ...]) -> Client:
    """Made when it is first asked for, and kept: Spark's workers serve many tasks. A fork never gets its parent's."""
    key = (os.getpid(), brokers)
    if key not in _clients:
        _clients[key] = Client(list(brokers), connect_timeout_ms=_CONNECT_TIMEOUT_MS)
    return _clients[key]
