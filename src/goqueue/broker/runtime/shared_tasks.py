"""Work that several callers ask for at the same time, done once for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class SharedTasks(Generic[Result]):
    """Tasks under way, by key."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[Result]] = {}

    async def run(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """The result of ``work``, or of the task for this key that is under way already."""
        task = self._tasks.get(key)
        if task is None:
            # The first caller may be cancelled while others still wait.
            task = self._tasks[key] = asyncio.create_task(work())
            task.add_done_callback(lambda done: self._done(key, done))
        return await asyncio.shield(task)

    async def wait(self) -> None:
        """Return when all tasks under way have ended."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _done(self, key: Hashable, done: asyncio.Task[Result]) -> None:
        del self._tasks[key]
        if not done.cancelled():
            # Mark the exception as retrieved, in case every caller was cancelled.
            done.exception()
