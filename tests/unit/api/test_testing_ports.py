from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

from goqueue.testing.ports import free_port

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_a_port_is_free_and_none_that_a_client_is_given_for_itself() -> None:
    first = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    for _ in range(50):
        port = free_port()
        assert 0 < port < first
        with closing(socket.create_server(("127.0.0.1", port))):
            pass
