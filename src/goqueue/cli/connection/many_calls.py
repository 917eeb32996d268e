"""Many small calls to a broker, several at a time, each thread over a connection that it keeps."""

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

from goqueue.cli.connection.broker_http import BrokerHttp, NoBroker, connection_to, hang_up, why
from goqueue.model.errors import GoQueueError

AT_ONCE = 8
_IDLE_S = 2.0
"""A connection that was not used for longer may be closed from the other side just when it is used again."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class _Kept(threading.local):
    """Of one thread."""

    connection: http.client.HTTPConnection | None = None
    used_s = 0.0


@dataclass(frozen=True, slots=True)
class _KeptHttp(BrokerHttp):
    """Keeps a connection for each thread. An answer may take ``timeout_s`` without a byte: answers are short."""

    _kept: _Kept = field(default_factory=_Kept)
    _open: list[http.client.HTTPConnection] = field(default_factory=list)

    def _ask(self, url: SplitResult, method: str, target: str, body: bytes | None, tried: str) -> tuple[int, bytes]:
        kept = self._kept
        if kept.connection is None or time.monotonic() - kept.used_s > _IDLE_S:
            if kept.connection is not None:
                kept.connection.close()
            kept.connection = connection_to(url, self.timeout_s)
            self._open.append(kept.connection)
        headers = {"Accept": "application/json"} | ({} if body is None else {"Content-Type": "application/json"})
        try:
            kept.connection.request(method, target, body, headers)
            answer = kept.connection.getresponse()
            found = answer.status, answer.read()
        except (OSError, UnicodeError, http.client.HTTPException) as error:
            kept.connection.close()
            kept.connection = None
            if isinstance(error, TimeoutError):
                raise NoBroker(f"{self.server} did not answer {tried} within {self.timeout_s:g} s") from None
            raise NoBroker(f"the connection to {self.server} broke before {tried} was answered: {why(error)}") from None
        kept.used_s = time.monotonic()
        return found

    def close(self) -> None:
        """Whoever still waits for an answer gets none."""
        for connection in self._open:
            sock = connection.sock
            if sock is not None:
                hang_up(sock)
            connection.close()


class ManyCalls:
    """Within a ``with`` block. A call gets a broker and what it is about; it runs in a thread of its own."""

    def __init__(self, broker: BrokerHttp) -> None:
        self._broker = _KeptHttp(broker.server, broker.timeout_s)
        self._pool = ThreadPoolExecutor(AT_ONCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._broker.close()

    def each(self, call: Callable[[BrokerHttp, Item], Answer], items: Sequence[Item]) -> list[Answer | GoQueueError]:
        """What came of each, in order: its answer, or the error of the broker."""

        def attempt(item: Item) -> Answer | GoQueueError:
            try:
                return call(self._broker, item)
            except GoQueueError as error:
                return error

        return list(self._pool.map(attempt, items))
