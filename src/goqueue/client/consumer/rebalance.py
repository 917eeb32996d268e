"""Rebalancing: applies assignments in order, and runs the user's callbacks for partitions gained and lost."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from goqueue.client.connection.tasks import cancel
from goqueue.client.consumer.receive_buffer import ReceiveBuffer
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
        buffer: ReceiveBuffer,
        progress: Progress,
        on_assigned: OnPartitions | None,
        on_revoked: OnPartitions | None,
        commit: Callable[[], Awaitable[None]],
    ) -> None:
        self._buffer = buffer
        self._progress = progress
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._commit = commit
        self._is_stream = False
        self.assigned: set[TopicPartition] = set()
        self.revoking: set[TopicPartition] = set()
        self._announced: set[TopicPartition] = set()
        """Partitions announced to the user's callbacks."""
        self._changed = asyncio.Event()
        self._applying: asyncio.Task[None] | None = None
        self.up_to_date = asyncio.Event()

    def start(self) -> None:
        self._applying = asyncio.create_task(self._apply_changes())

    async def stop(self) -> None:
        """Revoke all partitions that were announced."""
        applying, self._applying = self._applying, None
        if applying is not None:
            await cancel(applying)
            try:
                await self._notify(self._on_revoked, self._announced)
            except Exception:
                # Closing continues, so that the group learns that this member leaves.
                log.exception("on_revoked failed at the end")

    def update(self, assignment: pb.Assignment) -> None:
        """Accept an assignment; it is carried out in order, as fast as the user's callbacks allow."""
        self._is_stream = assignment.settings["mode"] == "stream"
        assigned = {TopicPartition(each.topic, each.partition) for each in assignment.assigned}
        revoking = {TopicPartition(each.topic, each.partition) for each in assignment.revoking}
        if self._on_assigned is not None:
            self._buffer.hold_back(assigned - self._announced)
        if self._is_stream:
            gone = (self.assigned | self.revoking) - assigned - revoking
            # Other members may own these by now.
            self._buffer.drop(gone)
            self._progress.forget(gone)
            self._buffer.prioritize(revoking)
        self.assigned, self.revoking = assigned, revoking
        self.up_to_date.clear()
        self._changed.set()

    def owns(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self.assigned or topic_partition in self.revoking

    async def _apply_changes(self) -> None:
        try:
            while True:
                self._changed.clear()
                await self._revoke()
                gained = self.assigned - self._announced
                await self._notify(self._on_assigned, gained)
                self._announced |= gained
                self._buffer.release(gained)
                if self._changed.is_set():
                    continue
                if not (self._is_stream and self.revoking):
                    self.up_to_date.set()
                    await self._changed.wait()
                else:
                    await self._wait_for_progress_or_change()
        except Exception as error:
            # An error of a callback is raised to the user on the next receive.
            self._buffer.fail(error)
            self.up_to_date.set()

    async def _revoke(self) -> None:
        revoked = self._announced - self.assigned
        if self._is_stream:
            # A revoked partition is kept until the records handed out are finished.
            revoked = {each for each in revoked if each not in self.revoking or self._buffer.is_drained(each)}
        await self._notify(self._on_revoked, revoked)
        self._announced -= revoked
        if self._is_stream and any(self._buffer.is_drained(each) for each in self.revoking):
            try:
                await self._commit()
            except GoQueueError as error:
                log.warning("offsets not committed at a rebalance", error=str(error))

    async def _wait_for_progress_or_change(self) -> None:
        waiting = [asyncio.ensure_future(self._buffer.moved()), asyncio.ensure_future(self._changed.wait())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    async def _notify(self, callback: OnPartitions | None, topic_partitions: set[TopicPartition]) -> None:
        if callback is None or not topic_partitions:
            return
        result: Any = callback(sorted(topic_partitions))
        if inspect.isawaitable(result):
            await result
