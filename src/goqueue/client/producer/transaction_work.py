"""Operations under way in a transaction, and the first failure among them."""

from __future__ import annotations

import asyncio

from goqueue.model.errors import TransactionAborted


class PendingOperations:
    """``with work:`` surrounds operations that the transaction depends on: after an exception in one it cannot
    commit."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        """The first failure."""
        self._running = 0
        self._is_idle = asyncio.Event()

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.fail(error)
        self.end()

    def begin(self) -> None:
        self._running += 1

    def end(self) -> None:
        self._running -= 1
        if not self._running:
            self._is_idle.set()

    def fail(self, error: BaseException) -> None:
        if self.failure is None:
            is_error = isinstance(error, Exception)
            self.failure = (
                error if is_error else TransactionAborted("something that was to be part of it was called off")
            )

    async def finished(self) -> None:
        """Return when no operation is under way."""
        while self._running:
            self._is_idle.clear()
            await self._is_idle.wait()
