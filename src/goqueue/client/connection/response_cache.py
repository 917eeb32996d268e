"""Cache of responses, with concurrent requests for the same key merged into one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from goqueue.model.errors import ClientClosed

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class Answers(Generic[Key, Answer]):
    """Concurrent callers with the same key share one request; the ``most`` latest responses are cached. Errors are
    not."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Key, Answer] = OrderedDict()
        self._asking: dict[Key, asyncio.Task[Answer]] = {}
        self._tasks: set[asyncio.Task[Answer]] = set()

    def known(self, key: Key) -> Answer | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def keep(self, key: Key, answer: Answer) -> None:
        self._kept[key] = answer
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def forget(self, doubtful: Callable[[Key], bool]) -> None:
        """Also detaches requests under way: a caller from now on gets the response to a request made from now on."""
        for key in [each for each in self._kept if doubtful(each)]:
            del self._kept[key]
        for key in [each for each in self._asking if doubtful(each)]:
            del self._asking[key]

    async def get(self, key: Key, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        found = self.known(key)
        if found is not None:
            return found
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.create_task(self._ask(key, ask))
            self._tasks.add(asking)
            asking.add_done_callback(self._tasks.discard)
            asking.add_done_callback(_seen)
        try:
            # A caller that is cancelled leaves the request running for the others.
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            if asking.cancelled():
                raise ClientClosed("the client is closed") from None
            raise

    async def _ask(self, key: Key, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        try:
            answer = await ask()
            if self._is_wanted(key):
                self.keep(key, answer)
            return answer
        finally:
            if self._is_wanted(key):
                del self._asking[key]

    def _is_wanted(self, key: Key) -> bool:
        """Whether the current request has not been detached by ``forget``."""
        return self._asking.get(key) is asyncio.current_task()

    async def close(self) -> None:
        asking = list(self._tasks)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


def _seen(task: asyncio.Task[Answer]) -> None:
    """Mark the exception as retrieved, in case every caller was cancelled."""
    if not task.cancelled():
        task.exception()
