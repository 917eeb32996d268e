"""Calls with a timeout into code that may block forever (a name server, a collector, a pipe)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from functools import partial
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")


class BoundedCalls:
    """Makes one call at a time, each in a daemon thread, which the process does not wait for on exit.

    A call that exceeds its timeout is abandoned. While it hangs, further calls are refused at once, so there is never
    more than one thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = Lock()
        self._is_busy = False
        self._future: Future[Any] | None = None

    def call(self, work: Callable[[], T], timeout_s: float) -> T:
        """The result of ``work``, or its exception; ``TimeoutError`` after ``timeout_s``."""
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
        """End a wait in ``call`` with ``TimeoutError`` immediately."""
        with self._lock:
            if self._future is not None:
                self._future.cancel()

    def _run(self, work: Callable[[], T], future: Future[T]) -> None:
        answer: Callable[[], None]
        try:
            answer = partial(future.set_result, work())
        except BaseException as error:
            answer = partial(future.set_exception, error)
        with self._lock:
            self._is_busy = False
        # After ``give_up``, the result is discarded.
        with suppress(InvalidStateError):
            answer()
