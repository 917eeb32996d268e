"""Futures of sent messages. A failure that is never read is logged when the future is garbage-collected."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any

from goqueue.client.messages.outgoing_message import Sent

Tell = Callable[[BaseException], None]
"""Logs a failure."""


class Delivery(asyncio.Future[Sent]):
    """For a producer on the loop. ``tell`` is called instead of asyncio's log message with a traceback."""

    tell: Tell | None = None

    def __del__(self) -> None:
        if not self._log_traceback:
            return
        self._log_traceback = False
        error = self.exception()
        if self.tell is not None and error is not None:
            self.tell(error)


class SyncDelivery(concurrent.futures.Future[Sent]):
    """For a producer in other threads. A failure counts as read once the result or a callback was asked for."""

    tell: Tell | None = None
    _is_asked = False

    def result(self, timeout: float | None = None) -> Sent:
        self._is_asked = True
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._is_asked = True
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[concurrent.futures.Future[Sent]], Any]) -> None:
        self._is_asked = True
        super().add_done_callback(fn)

    def __del__(self) -> None:
        if self._is_asked or self.tell is None or not self.done() or self.cancelled():
            return
        error = super().exception(0)
        if error is not None:
            self.tell(error)
