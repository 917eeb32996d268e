"""What is being done in a transaction at the moment, and what went wrong with it."""

from __future__ import annotations

import asyncio

from goqueue.model.errors import TransactionAborted


class Work:
    """``with work:`` is around everything without which the transaction is not what was meant: whatever is raised there
    is why it cannot be committed any more."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        """The first one."""
        self._under_way = 0
        self._is_idle = asyncio.Event()

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.fail(error)
        self.end()

    def begin(self) -> None:
        self._under_way += 1

    def end(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._is_idle.set()

    def fail(self, error: BaseException) -> None:
        if self.failure is None:
            is_told = isinstance(error, Exception)
            self.failure = (
                error if is_told else TransactionAborted("something that was to be part of it was called off")
            )

    async def finished(self) -> None:
        """Return when nothing is under way."""
        while self._under_way:
            self._is_idle.clear()
            await self._is_idle.wait()
