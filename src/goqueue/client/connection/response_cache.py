"""Cache of responses, with concurrent requests for the same key merged into one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from goqueue.client.connection.tasks import cancel
from goqueue.model.bounded_cache import BoundedCache
from goqueue.model.errors import ClientClosed

Key = TypeVar("Key", bound=Hashable)
Response = TypeVar("Response")


class ResponseCache(Generic[Key, Response]):
    """Concurrent callers with the same key share one request. Keeps the latest ``max_entries`` responses, no errors."""

    def __init__(self, max_entries: int) -> None:
        self._cached: BoundedCache[Key, Response] = BoundedCache(max_entries)
        self.cached = self._cached.get
        self.put = self._cached.put
        self._requests: dict[Key, asyncio.Task[Response]] = {}
        self._tasks: set[asyncio.Task[Response]] = set()

    def forget(self, is_stale: Callable[[Key], bool]) -> None:
        """Also detaches requests under way: a caller from now on gets the response to a request made from now on."""
        for key in [each for each in self._cached if is_stale(each)]:
            self._cached.drop(key)
        for key in [each for each in self._requests if is_stale(each)]:
            del self._requests[key]

    async def get(self, key: Key, fetch: Callable[[], Awaitable[Response]]) -> Response:
        found = self.cached(key)
        if found is not None:
            return found
        request = self._requests.get(key)
        if request is None:
            request = self._requests[key] = asyncio.create_task(self._fetch(key, fetch))
            self._tasks.add(request)
            request.add_done_callback(self._tasks.discard)
            request.add_done_callback(_mark_retrieved)
        try:
            # A caller that is cancelled leaves the request running for the others.
            return await asyncio.shield(request)
        except asyncio.CancelledError:
            if request.cancelled():
                raise ClientClosed("the client is closed") from None
            raise

    async def _fetch(self, key: Key, fetch: Callable[[], Awaitable[Response]]) -> Response:
        try:
            response = await fetch()
            if self._is_current(key):
                self.put(key, response)
            return response
        finally:
            if self._is_current(key):
                del self._requests[key]

    def _is_current(self, key: Key) -> bool:
        """Whether the current request has not been detached by ``forget``."""
        return self._requests.get(key) is asyncio.current_task()

    async def close(self) -> None:
        await cancel(*self._tasks)


def _mark_retrieved(task: asyncio.Task[Response]) -> None:
    """Mark the exception as retrieved, in case every caller was cancelled."""
    if not task.cancelled():
        task.exception()
