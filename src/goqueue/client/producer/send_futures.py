"""Futures of sent messages. A failure that is never read is logged when the future is garbage-collected."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any

from goqueue.client.messages.outgoing_message import Sent

LogFailure = Callable[[BaseException], None]
"""Logs a failure."""


class SendFuture(asyncio.Future[Sent]):
    """For a producer on the loop. ``log_failure`` is called instead of asyncio's log message with a traceback."""

    log_failure: LogFailure | None = None

    def __del__(self) -> None:
        if not self._log_traceback:
            return
        self._log_traceback = False
        error = self.exception()
        if self.log_failure is not None and error is not None:
            self.log_failure(error)


class SyncSendFuture(concurrent.futures.Future[Sent]):
    """For a producer in other threads. A failure counts as read once the result or a callback was asked for."""

    log_failure: LogFailure | None = None
    _was_read = False

    def result(self, timeout: float | None = None) -> Sent:
        self._was_read = True
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._was_read = True
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[concurrent.futures.Future[Sent]], Any]) -> None:
        self._was_read = True
        super().add_done_callback(fn)

    def __del__(self) -> None:
        if self._was_read or self.log_failure is None or not self.done() or self.cancelled():
            return
        error = super().exception(0)
        if error is not None:
            self.log_failure(error)
