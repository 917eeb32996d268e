"""What a shard needs done for its groups and queues without a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from goqueue.delivery.queue import Queue
from goqueue.model.ids import GroupId


@dataclass(frozen=True, slots=True)
class HeldUp:
    """Moves of a queue that cannot go on for now."""

    group: str
    messages: int
    reason: str


class ShardWork(Protocol):
    """What is done for a shard's groups and queues without a request. It begins with ``lead``, ends with ``let_go``."""

    def take_up_queue(self, queue: Queue) -> None:
        """The shard leads from now on: continue what the journal says is under way in a queue."""

    def take_up_group(self, name: str) -> None:
        """The same for a group: sessions of its members."""

    def group_deleted(self, name: str, identity: GroupId) -> None:
        """A group of the shard was deleted: have all shards close its queues and forget it, once that is durable."""

    def queue_due(self, queue: Queue) -> None:
        """A visibility timeout of the queue ends, or a retry is due."""

    def group_due(self, name: str) -> None:
        """A session or a handover of the group may have expired."""

    def begin_moving(self, queue: Queue) -> None:
        """The queue has messages on their way to another topic."""

    async def moved(self, queue: Queue) -> None:
        """Return when nothing of the queue is on its way any more, or it cannot go on for now."""

    def held_up(self) -> list[HeldUp]:
        """Messages that cannot be moved for now."""

    async def stop(self) -> None:
        """Finish what is under way; the rest is continued by the next who leads."""
