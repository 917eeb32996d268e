"""Closing the connections of given peers, for which gRPC has no call: by their sockets in this process."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Collection
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from urllib.parse import unquote

_DESCRIPTORS = Path("/dev/fd")


def cut_off(peers: Collection[str], port: int) -> None:
    """Close what these peers (as ``ServicerContext.peer`` names them) have open to a port of this process.

    gRPC notices as if the client had closed the connection: its calls end, and what was to be sent is dropped.
    """
    addresses = {address for peer in peers if (address := _address_of(peer)) is not None}
    for entry in _DESCRIPTORS.iterdir():
        # Descriptors come and go in other threads meanwhile.
        with suppress(OSError), _duplicate(int(entry.name)) as connection:
            if connection.getsockname()[1] == port and _address(*connection.getpeername()[:2]) in addresses:
                connection.shutdown(socket.SHUT_RDWR)


def _duplicate(descriptor: int) -> socket.socket:
    """The socket behind a descriptor, under one of our own, which no one else closes or takes for another file."""
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        raise OSError("no socket")
    own = os.dup(descriptor)
    try:
        found = socket.socket(fileno=own)
    except OSError:
        os.close(own)
        raise
    if found.family not in (socket.AF_INET, socket.AF_INET6):
        found.close()
        raise OSError("no connection over a network")
    return found


def _address_of(peer: str) -> tuple[str, int] | None:
    """Of ``ipv4:127.0.0.1:50000`` or ``ipv6:%5B::1%5D:50000``."""
    host, _, port = unquote(peer.partition(":")[2]).rpartition(":")
    try:
        return _address(host.strip("[]"), int(port))
    except ValueError:
        return None


def _address(host: str, port: int) -> tuple[str, int]:
    """The same for an IPv4 address and its form in IPv6."""
    found = ip_address(host.partition("%")[0])
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return str(found), port
