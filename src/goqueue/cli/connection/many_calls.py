"""Many small calls to a broker in parallel, with one kept-alive connection per thread."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import SplitResult

from goqueue.cli.connection.broker_http import BrokerHttp, call_on, connection_to, shut_down
from goqueue.model.errors import GoQueueError

AT_ONCE = 8
_IDLE_S = 2.0
"""A connection idle for longer is replaced: the server may close it just as it is used again."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class _ThreadConnection(threading.local):
    """One thread's connection."""

    connection: http.client.HTTPConnection | None = None
    used_s = 0.0


@dataclass(frozen=True, slots=True)
class _KeepAliveHttp(BrokerHttp):
    """Keeps one connection per thread. ``timeout_s`` limits the wait for each byte, not the whole answer: answers are
    short."""

    _own: _ThreadConnection = field(default_factory=_ThreadConnection)
    _open: list[http.client.HTTPConnection] = field(default_factory=list)

    def _exchange(
        self, url: SplitResult, method: str, target: str, body: bytes | None, description: str
    ) -> tuple[int, bytes]:
        kept = self._own
        if kept.connection is None or time.monotonic() - kept.used_s > _IDLE_S:
            if kept.connection is not None:
                kept.connection.close()
            kept.connection = connection_to(url, self.timeout_s)
            self._open.append(kept.connection)
        try:
            found = call_on(kept.connection, method, target, body)
        except (OSError, UnicodeError, http.client.HTTPException) as error:
            kept.connection.close()
            kept.connection = None
            raise self._no_answer(description, error) from None
        kept.used_s = time.monotonic()
        return found

    def close(self) -> None:
        """Close all connections. Calls that still wait for an answer fail."""
        for connection in self._open:
            sock = connection.sock
            if sock is not None:
                shut_down(sock)
            connection.close()


class ManyCalls:
    """Runs calls in a thread pool for the duration of a ``with`` block. A call gets the broker and its item."""

    def __init__(self, broker: BrokerHttp) -> None:
        self._broker = _KeepAliveHttp(broker.server, broker.timeout_s)
        self._pool = ThreadPoolExecutor(AT_ONCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._broker.close()

    def call_each(
        self, call: Callable[[BrokerHttp, Item], Answer], items: Sequence[Item]
    ) -> list[Answer | GoQueueError]:
        """Call for each item; return in the items' order each answer, or the broker's error."""

        def attempt(item: Item) -> Answer | GoQueueError:
            try:
                return call(self._broker, item)
            except GoQueueError as error:
                return error

        return list(self._pool.map(attempt, items))
