"""Prefetch of a queue consumer: announces its window to the broker, and returns surplus messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any

from goqueue.client.connection.tasks import cancel
from goqueue.client.consumer.fetch_pace import FetchPace
from goqueue.client.consumer.leases import LeaseKeeper
from goqueue.client.consumer.receive_buffer import DemandListener, ReceiveBuffer

_SHRINK_INTERVAL_S = 1.0


class FetchAhead(DemandListener):
    """Inactive before ``start`` and after ``stop``, and always for a stream."""

    def __init__(
        self,
        max_window: int,
        keeper: LeaseKeeper,
        set_window: Callable[[int], None],
        give_back: Callable[[list[Any]], None],
    ) -> None:
        self.pace = FetchPace(max_window, self._in_hand, set_window, monotonic)
        self._keeper = keeper
        self._give_back = give_back
        self._buffer: ReceiveBuffer | None = None
        self._shrinking: asyncio.Task[None] | None = None
        self._is_grow_scheduled = False

    def start(self, buffer: ReceiveBuffer) -> None:
        self._buffer = buffer
        self._shrinking = asyncio.create_task(self._shrink_periodically())

    async def stop(self) -> None:
        self._buffer = None
        await cancel(self._shrinking)

    def _in_hand(self) -> int:
        """Messages handed out and not settled."""
        here = 0 if self._buffer is None else self._buffer.waiting
        return max(0, self._keeper.messages - here)

    # Events

    def wait_started(self, messages: int) -> None:
        self.pace.wait_started(messages)
        self._grow_soon()

    def wait_satisfied(self, messages: int) -> None:
        self.pace.wait_satisfied(messages)

    def wait_abandoned(self, messages: int) -> None:
        self.pace.wait_abandoned(messages)

    def finished(self, count: int) -> None:
        """This many messages were settled by their handlers."""
        if self.pace.finished(count):
            self._grow_soon()

    # Actions

    def _grow_soon(self) -> None:
        """Combine all requests and settlements of one turn of the loop into one update."""
        if self._buffer is not None and not self._is_grow_scheduled:
            self._is_grow_scheduled = True
            asyncio.get_running_loop().call_soon(self._grow)

    def _grow(self) -> None:
        self._is_grow_scheduled = False
        if self._buffer is not None:
            self.pace.grow()

    async def _shrink_periodically(self) -> None:
        while True:
            await asyncio.sleep(_SHRINK_INTERVAL_S)
            self.shrink()

    def shrink(self) -> None:
        """After handlers have slowed down, return messages that would wait here for long to the other members."""
        if self._buffer is None:
            return
        self.pace.shrink()
        if self._buffer.waiting > self.pace.max_buffered:
            self._give_back(self._buffer.take_beyond(self.pace.max_buffered))
