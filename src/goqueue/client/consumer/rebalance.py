"""Rebalancing: applies assignments in order, and runs the user's callbacks for partitions gained and lost."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from goqueue.client.consumer.receive_buffer import Intake
from goqueue.client.consumer.stream_source import Progress, TopicPartition
from goqueue.model.errors import GoQueueError
from goqueue.model.logging import get_logger
from goqueue.wire.proto import goqueue_pb2 as pb

log = get_logger(__name__)

OnPartitions = Callable[[list[TopicPartition]], Awaitable[None] | None]
"""Called with the partitions that were assigned, or that are being revoked. May be a coroutine function."""


class Rebalancer:
    """Tracks the member's partitions.

    Of a revoked partition, a queue goes on handing out buffered messages: each is this consumer's until it is settled.
    A stream hands out buffered records first, finishes and commits them; then the next owner continues.
    """

    def __init__(
        self,
        intake: Intake,
        progress: Progress,
        on_assigned: OnPartitions | None,
        on_revoked: OnPartitions | None,
        commit: Callable[[], Awaitable[None]],
    ) -> None:
        self._intake = intake
        self._progress = progress
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._commit = commit
        self._is_stream = False
        self.assigned: set[TopicPartition] = set()
        self.revoking: set[TopicPartition] = set()
        self._told: set[TopicPartition] = set()
        """Partitions announced to the user's callbacks."""
        self._news = asyncio.Event()
        self._working: asyncio.Task[None] | None = None
        self.up_to_date = asyncio.Event()

    def start(self) -> None:
        self._working = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Revoke all partitions that were announced."""
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
            self._working = None
            try:
                await self._tell(self._on_revoked, self._told)
            except Exception:
                # Closing continues, so that the group learns that this member leaves.
                log.exception("on_revoked failed at the end")

    def take(self, assignment: pb.Assignment) -> None:
        """Accept an assignment; it is carried out in order, as fast as the user's callbacks allow."""
        self._is_stream = assignment.settings["mode"] == "stream"
        assigned = {TopicPartition(each.topic, each.partition) for each in assignment.assigned}
        revoking = {TopicPartition(each.topic, each.partition) for each in assignment.revoking}
        if self._on_assigned is not None:
            self._intake.withhold(assigned - self._told)
        if self._is_stream:
            gone = (self.assigned | self.revoking) - assigned - revoking
            # Other members may own these by now.
            self._intake.drop(gone)
            self._progress.forget(gone)
            self._intake.hurry(revoking)
        self.assigned, self.revoking = assigned, revoking
        self.up_to_date.clear()
        self._news.set()

    def owns(self, place: TopicPartition) -> bool:
        return place in self.assigned or place in self.revoking

    async def _work(self) -> None:
        try:
            while True:
                self._news.clear()
                await self._let_go()
                gained = self.assigned - self._told
                await self._tell(self._on_assigned, gained)
                self._told |= gained
                self._intake.release(gained)
                if self._news.is_set():
                    continue
                if not (self._is_stream and self.revoking):
                    self.up_to_date.set()
                    await self._news.wait()
                else:
                    await self._wait_for_user_or_news()
        except Exception as error:
            # An error of a callback is raised to the user on the next receive.
            self._intake.fail(error)
            self.up_to_date.set()

    async def _let_go(self) -> None:
        going = self._told - self.assigned
        if self._is_stream:
            # A revoked partition is kept until its records in hand are finished.
            going = {each for each in going if each not in self.revoking or self._intake.is_drained(each)}
        await self._tell(self._on_revoked, going)
        self._told -= going
        if self._is_stream and any(self._intake.is_drained(each) for each in self.revoking):
            try:
                await self._commit()
            except GoQueueError as error:
                log.warning("offsets not committed at a rebalance", error=str(error))

    async def _wait_for_user_or_news(self) -> None:
        waiting = [asyncio.ensure_future(self._intake.moved()), asyncio.ensure_future(self._news.wait())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    async def _tell(self, callback: OnPartitions | None, places: set[TopicPartition]) -> None:
        if callback is None or not places:
            return
        result: Any = callback(sorted(places))
        if inspect.isawaitable(result):
            await result
