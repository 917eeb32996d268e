"""Taking a port, and saying what to do if it cannot be taken."""

from __future__ import annotations

import errno
import os
import socket

from goqueue.model.errors import InvalidConfiguration

_EVERYWHERE = {"0.0.0.0", "::", "[::]"}


def host_with_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def advertised(address: str, host: str, port: int) -> str:
    """The address that clients are given: the configured one, or where we listen.

    Empty if only the client knows how it got here: we listen everywhere and were not told.
    """
    return address or ("" if host in _EVERYWHERE else host_with_port(host, port))


class CannotListen(InvalidConfiguration):
    """A port or an address cannot be taken. The message says why and what to do about it."""

    remedy = ""


def listening_socket(
    host: str, port: int, protocol: str, port_option: str, backlog: int | None = None
) -> socket.socket:
    """``port_option``: how the user chooses another port."""
    host = host.removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=backlog)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}:{port} for {protocol}: {_why(error, port_option)}") from None


def _why(error: OSError, port_option: str) -> str:
    if (error.errno or 0) < 0:
        # What looking up a name says; those of the system are above 0.
        return "there is no such host; --host takes an address of this machine, such as 127.0.0.1 or 0.0.0.0"
    match error.errno:
        case errno.EADDRINUSE:
            return (
                "another program listens there, perhaps another broker ('ss -ltnp' names it); stop it, or choose "
                f"another port with {port_option}"
            )
        case errno.EACCES:
            return f"this user may not take it, as ports below 1024 are the system's; choose one with {port_option}"
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address; choose one that it has with --host, such as 127.0.0.1 or 0.0.0.0"
        case number:
            why = os.strerror(number) if number else str(error)
            return f"{why}; choose another with {port_option} or --host"
