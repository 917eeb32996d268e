"""An address at which connections are refused, for as long as a test holds it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager


@contextmanager
def unheard_port() -> Iterator[int]:
    """A port that is taken, so that no other process gets it meanwhile, and at which nothing listens."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
