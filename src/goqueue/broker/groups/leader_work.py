"""What one shard does without a request: messages that come back, sessions that expire, dead letters."""

from __future__ import annotations

import asyncio

from goqueue.broker.dead_letters.dead_letter_mover import DeadLetterMover
from goqueue.broker.groups.member_expiry import MemberExpiry
from goqueue.broker.groups.subscriptions import Subscriptions
from goqueue.broker.queues.returns import Returns
from goqueue.broker.shards.shard import Shard
from goqueue.broker.shards.shard_directory import Shards
from goqueue.broker.shards.shard_work import HeldUp
from goqueue.delivery.queue import Queue
from goqueue.model.clock import NANOS_PER_SECOND
from goqueue.model.errors import GoQueueError, StorageFailed
from goqueue.model.ids import GroupId
from goqueue.model.logging import get_logger

log = get_logger(__name__)

_TRY_AGAIN_NS = NANOS_PER_SECOND


class LeaderWork:
    """The ``ShardWork`` of a shard that this broker leads."""

    def __init__(
        self,
        shards: Shards,
        shard: Shard,
        returns: Returns,
        expiry: MemberExpiry,
        subscriptions: Subscriptions,
        mover: DeadLetterMover,
    ) -> None:
        self._shards = shards
        self._shard = shard
        self._clock = shard.host.clock
        self._returns = returns
        self._expiry = expiry
        self._subscriptions = subscriptions
        self.mover = mover
        self._closing: set[asyncio.Task[None]] = set()

    def take_up_queue(self, queue: Queue) -> None:
        self.mover.resume(queue)

    def take_up_group(self, name: str) -> None:
        group = self._shards.get(name)
        if group is not None:
            self._expiry.take_up(group)

    def group_deleted(self, name: str, identity: GroupId) -> None:
        self._shards.forget(name)
        task = asyncio.create_task(self._close_queues(name, identity))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close_queues(self, name: str, identity: GroupId) -> None:
        """If this is interrupted, a start finishes it (``Shards.close_orphans``)."""
        try:
            # The other way round a crash could leave a group that has forgotten what it has done.
            await self._shard.journal.settled()
            for shard in self._shards.leading:
                self._shards.map.forget_group(shard, name, identity)
        except GoQueueError as error:
            log.warning("queues of a deleted group are left for the next start to close", error=str(error))

    def queue_due(self, queue: Queue) -> None:
        group = self._shards.group_of(queue)
        if group is None:
            # It was deleted, or its coordinator has yet to show it to this shard.
            self._shard.look_again(queue, _TRY_AGAIN_NS)
            return
        try:
            self._returns.return_due(group, queue, self._clock.now_ns())
        except StorageFailed as error:
            log.error("a group stands still until the broker is restarted", group=group.name, error=str(error))
        except GoQueueError as error:
            log.warning("messages cannot be given back for now", group=group.name, error=str(error))
            self._shard.look_again(queue, _TRY_AGAIN_NS)

    def group_due(self, name: str) -> None:
        try:
            self._expiry.expire_due(self._shards, name)
        except StorageFailed as error:
            log.error("a group stands still until the broker is restarted", group=name, error=str(error))
        except GoQueueError as error:
            log.warning("a group cannot be seen to for now", group=name, error=str(error))
            self._shard.group_times.set(name, self._clock.now_ns() + _TRY_AGAIN_NS)

    def begin_moving(self, queue: Queue) -> None:
        self.mover.begin(queue)

    async def moved(self, queue: Queue) -> None:
        await self.mover.finished(queue)

    def held_up(self) -> list[HeldUp]:
        return list(self.mover.held_up.values())

    async def stop(self) -> None:
        await self.mover.stop()
        await asyncio.gather(*self._closing)
