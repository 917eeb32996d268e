"""Where a broker's gRPC is, as people write it."""

from __future__ import annotations

from urllib.parse import urlsplit

_RESOLVED_BY_GRPC = ("dns:", "ipv4:", "ipv6:", "unix:", "unix-abstract:", "xds:")
"""gRPC has names of other kinds as well, and says itself what is wrong with them."""


def is_host_and_port(text: str) -> bool:
    """Whether it is like ``HOST:PORT``; an IPv6 address has brackets."""
    try:
        parsed = urlsplit(f"//{text}")
        is_good = bool(parsed.hostname) and bool(parsed.port) and parsed.netloc == text and parsed.username is None
    except ValueError:
        return False
    return is_good and text.isprintable() and " " not in text


def is_address(text: str) -> bool:
    """Whether a client can try it: ``HOST:PORT``, or a name of gRPC's own kinds."""
    return is_host_and_port(text) or text.startswith(_RESOLVED_BY_GRPC)
