"""Addresses of a broker for its clients."""

from __future__ import annotations

from urllib.parse import urlsplit

_RESOLVED_BY_GRPC = ("dns:", "ipv4:", "ipv6:", "unix:", "unix-abstract:", "xds:")
"""Other kinds of names that gRPC resolves. It reports problems with them itself."""


SCHEME = "goqueue://"
"""How addresses of the native protocol begin; all others are of gRPC."""


def is_host_and_port(text: str) -> bool:
    """Whether the text is a ``HOST:PORT``; an IPv6 address has brackets."""
    try:
        parsed = urlsplit(f"//{text}")
        is_good = bool(parsed.hostname) and bool(parsed.port) and parsed.netloc == text and parsed.username is None
    except ValueError:
        return False
    return is_good and text.isprintable() and " " not in text


def is_address(text: str) -> bool:
    """Whether a client can connect to the text: it is a ``HOST:PORT``, or a name that gRPC resolves."""
    return is_host_and_port(text.removeprefix(SCHEME)) or text.startswith(_RESOLVED_BY_GRPC)


def host_and_port(address: str) -> tuple[str, int]:
    """Of a ``HOST:PORT``."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
