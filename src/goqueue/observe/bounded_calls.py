"""Calls into what may hang (a name server, a collector, a pipe), waited for only so long."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")


class BoundedCalls:
    """Makes one call at a time, each in a thread that the end of the process does not wait for.

    What hangs is left behind. As long as it hangs, further calls are refused at once: there is never more than one.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = Lock()
        self._is_busy = False
        self._future: Future[Any] | None = None

    def call(self, work: Callable[[], T], timeout_s: float) -> T:
        """What ``work`` gives or raises, or ``TimeoutError``."""
        future: Future[T] = Future()
        with self._lock:
            if self._is_busy:
                raise TimeoutError(f"{self._name}: the call before this one still hangs")
            Thread(target=self._run, args=(work, future), name=self._name, daemon=True).start()
            self._is_busy = True
            self._future = future
        try:
            return future.result(timeout_s)
        except CancelledError:
            raise TimeoutError(f"{self._name}: given up, because it was closed") from None
        except TimeoutError:
            if future.done():
                raise
            raise TimeoutError(f"{self._name}: no answer within {timeout_s:g} s") from None

    def give_up(self) -> None:
        """Whoever waits for a call gets a ``TimeoutError`` now."""
        with self._lock:
            if self._future is not None:
                self._future.cancel()

    def _run(self, work: Callable[[], T], future: Future[T]) -> None:
        answer: Callable[[], None]
        try:
            given = work()
        except BaseException as error:
            raised = error
            answer = lambda: future.set_exception(raised)  # noqa: E731
        else:
            answer = lambda: future.set_result(given)  # noqa: E731
        with self._lock:
            self._is_busy = False
        # Once given up, nobody wants to know any more.
        with suppress(InvalidStateError):
            answer()
