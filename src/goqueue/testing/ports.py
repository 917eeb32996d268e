"""Ports for brokers that may be killed and started again on the same ones."""

from __future__ import annotations

import random
import socket
from contextlib import closing
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000
_USUAL_END = 32_768
_TRIES = 100


def free_port() -> int:
    """One that nobody uses, and that the system gives to no connection on its way out.

    A client that tries again and again to reach a port from that range, while nobody listens there, may be given the
    very same one as its own. Then it is connected to itself, and waits for an answer that nobody will send.
    """
    for _ in range(_TRIES):
        port = random.SystemRandom().randrange(_LOWEST, _end())
        with closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    # Everything is taken, or nothing may be asked for: as the system likes.
    return 0


def _end() -> int:
    """Where the system's own range begins."""
    try:
        first = int(_RANGE.read_text().split()[0])
    except (OSError, ValueError):
        first = _USUAL_END
    return first if first > _LOWEST else _USUAL_END
