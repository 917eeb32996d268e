"""One attempt of a poll at a member's queues: where it looks, how much it may fetch, and what it has found."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass, field

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.shards.active_group import ActiveGroup
from goqueue.broker.shards.backlog import NORMAL
from goqueue.broker.shards.group_runtime import Session
from goqueue.delivery.queue import Queue
from goqueue.delivery.receipts import Seal
from goqueue.model.errors import GoQueueError, TopicNotFound
from goqueue.model.ids import QueueKey
from goqueue.wire.batch import FrameRun


@dataclass(frozen=True, slots=True)
class Delivery:
    """Messages of one lease. In a stream there is no lease: it is 0, and so are ``count`` and ``until_ns``."""

    topic: str
    partition: int
    run: FrameRun
    lease: int
    count: int
    seal: Seal | None
    next_offset: int
    until_ns: int
    """When the visibility timeout of the messages ends."""

    def receipt(self, offset: int) -> str | None:
        return None if self.seal is None else self.seal.receipt(offset, self.count, self.lease)

    @property
    def token(self) -> bytes:
        return b"" if self.seal is None else self.seal.token(self.count, self.lease)


@dataclass(slots=True)
class Room:
    """What is left of a poll's bounds. One message goes in however large it is."""

    messages: int
    size: int
    taken: bool = False
    is_left: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_left = self.messages > 0 and (self.size > 0 or not self.taken)

    def take(self, messages: int, size: int) -> None:
        self.messages -= messages
        self.size -= size
        self.taken = True
        self.is_left = self.messages > 0 and self.size > 0

    def part(self, messages: int) -> Room:
        """Room for so many of them."""
        return Room(min(messages, self.messages), self.size, self.taken)

    def absorb(self, part: Room, messages: int) -> None:
        """What was taken of a part that had room for so many messages is taken of the whole."""
        self.messages -= min(messages, self.messages) - part.messages
        self.size, self.taken = part.size, part.taken
        self.is_left = self.messages > 0 and (self.size > 0 or not self.taken)


@dataclass(frozen=True, slots=True)
class Poller:
    """A member that polls. If its group is gone after an await, so are the group's queues."""

    group: ActiveGroup
    member_id: str
    session: Session


@dataclass(frozen=True, slots=True)
class Visit:
    """One member at one lane of a queue."""

    poller: Poller
    queue: Queue
    topic: Topic
    partition: Partition
    room: Room
    lane: int = NORMAL


@dataclass(slots=True)
class Attempt:
    """What one look at a member's queues has come to."""

    poller: Poller
    room: Room
    to_visit: deque[Queue]
    """Queues that the attempt has not come to yet."""
    found: list[Delivery] = field(default_factory=list)
    steps: dict[QueueKey, tuple[int | None, int | None]] = field(default_factory=dict)
    """Of a stream: from where to where each queue was read."""
    failure: GoQueueError | None = None

    async def harvest(self, taking: Awaitable[list[Delivery]]) -> bool:
        """Collect what was taken from one partition; return whether it can be read at all."""
        try:
            self.found += await taking
        except TopicNotFound:
            # Deleted while it was read.
            return False
        except GoQueueError as error:
            # One partition that cannot be read does not keep the others from being read.
            self.failure = error
            return False
        return True
