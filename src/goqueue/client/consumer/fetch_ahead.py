"""Prefetch of a queue consumer: announces its window to the broker, and returns surplus messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any

from goqueue.client.consumer.fetch_pace import Pace
from goqueue.client.consumer.leases import LeaseKeeper
from goqueue.client.consumer.receive_buffer import Demand, Intake

_LOOK_S = 1.0


class FetchAhead(Demand):
    """Inactive before ``start`` and after ``stop``, and always for a stream."""

    def __init__(
        self, most: int, keeper: LeaseKeeper, tell: Callable[[int], None], give_back: Callable[[list[Any]], None]
    ) -> None:
        self.pace = Pace(most, self._in_hand, tell, monotonic)
        self._keeper = keeper
        self._give_back = give_back
        self._intake: Intake | None = None
        self._looking: asyncio.Task[None] | None = None
        self._is_to_grow = False

    def start(self, intake: Intake) -> None:
        self._intake = intake
        self._looking = asyncio.create_task(self._look_regularly())

    async def stop(self) -> None:
        self._intake = None
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def _in_hand(self) -> int:
        """Messages handed out and not settled."""
        here = 0 if self._intake is None else self._intake.waiting
        return max(0, self._keeper.messages - here)

    # Events

    def begins(self, messages: int) -> None:
        self.pace.begins(messages)
        self._grow_soon()

    def met(self, messages: int) -> None:
        self.pace.met(messages)

    def given_up(self, messages: int) -> None:
        self.pace.given_up(messages)

    def finished(self, count: int) -> None:
        """This many messages were settled by their handlers."""
        if self.pace.finished(count):
            self._grow_soon()

    # Actions

    def _grow_soon(self) -> None:
        """Combine all requests and settlements of one turn of the loop into one update."""
        if self._intake is not None and not self._is_to_grow:
            self._is_to_grow = True
            asyncio.get_running_loop().call_soon(self._grow)

    def _grow(self) -> None:
        self._is_to_grow = False
        if self._intake is not None:
            self.pace.grow()

    async def _look_regularly(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            self.look()

    def look(self) -> None:
        """After handlers have slowed down, return messages that would wait here for long, so that other members get
        them."""
        if self._intake is None:
            return
        self.pace.look()
        if self._intake.waiting > self.pace.keeps:
            self._give_back(self._intake.take_beyond(self.pace.keeps))
