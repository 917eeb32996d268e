"""Commits of a stream's offsets: on request, at intervals, at a rebalance, and at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from goqueue.client.connection.tasks import cancel
from goqueue.client.consumer.membership import JoinTerms, Membership
from goqueue.client.consumer.reader import Record
from goqueue.client.consumer.receive_buffer import ReceiveBuffer
from goqueue.client.consumer.stream_source import Progress, TopicPartition
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.logging import get_logger
from goqueue.wire.proto import goqueue_pb2 as pb

log = get_logger(__name__)


class OffsetCommits:
    """``owns``: whether this member may commit a partition's offset by itself."""

    def __init__(
        self,
        terms: JoinTerms,
        membership: Membership,
        buffer: ReceiveBuffer,
        progress: Progress,
        owns: Callable[[TopicPartition], bool],
    ) -> None:
        self._group = terms.group
        self._config = terms.config
        self._membership = membership
        self._buffer = buffer
        self._progress = progress
        self._owns = owns
        self._committing: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._config.auto_commit:
            self._committing = asyncio.create_task(self._commit_regularly())

    async def stop(self, *, all_finished: bool) -> None:
        """Commit for the last time. ``all_finished``: the record handed out last is finished as well."""
        await cancel(self._committing)
        if not self._membership.is_connected:
            return
        try:
            async with asyncio.timeout(self._config.close_timeout_ms / 1_000):
                await self.commit_finished(all_finished=all_finished)
        except (GoQueueError, TimeoutError) as error:
            log.warning("offsets not committed at the end", group=self._group, error=str(error))

    def positions(self, record: Record | None) -> dict[TopicPartition, int]:
        """Of everything handed out so far, or of everything up to ``record`` in its partition."""
        if record is not None:
            return {TopicPartition(record.topic, record.partition): record.offset + 1}
        return self._buffer.positions(finished=False)

    def positions_for_transaction(self, record: Record | None) -> dict[TopicPartition, int]:
        if self._config.auto_commit:
            raise InvalidRequest(
                "a consumer whose offsets are part of a transaction needs auto_commit=False; it would commit by itself "
                "what the transaction has not"
            )
        return self.positions(record)

    async def commit_finished(self, *, all_finished: bool = False) -> None:
        if self._config.auto_commit:
            positions = self._buffer.positions(finished=not all_finished)
            await self.commit({each: at for each, at in positions.items() if self._owns(each)})

    async def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        uncommitted = self._progress.uncommitted(positions)
        if not uncommitted:
            return
        offsets = [
            pb.PartitionOffset(topic=each.topic, partition=each.partition, offset=offset)
            for each, offset in uncommitted.items()
        ]
        await self._membership.commit(
            pb.CommitOffsetsRequest(group=self._group, member_id=self._membership.member_id, offsets=offsets)
        )
        self._progress.committed(uncommitted)

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._config.auto_commit_ms / 1_000)
            try:
                await self.commit_finished()
            except GoQueueError as error:
                log.warning("offsets not committed; tried again later", group=self._group, error=str(error))
