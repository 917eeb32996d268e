"""A queue without a broker, and the terms that decisions about it go by."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.delivery.claims import Claimed
from goqueue.delivery.events import AnyQueueEvent, Delivered, QueueOpened, Target
from goqueue.delivery.leases import lease_in
from goqueue.delivery.queue import Queue
from goqueue.delivery.retry import Terms
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.group_settings import GroupSettings
from goqueue.model.topic_settings import TopicSettings

Q = "g/t/0"
NORMAL = 2
MEMBER = "m"
NOW_NS = 1_000 * NANOS_PER_MS
TARGET = Target("t.dlq", "d", 0, 7)
FIRST, SECOND = lease_in(1, NORMAL), lease_in(2, NORMAL)


def a_queue(count: int = 0, member: str = MEMBER) -> Queue:
    """A queue that has delivered its first messages to a member, in one lease."""
    queue = Queue(QueueOpened(Q, "g", "t", 0, 0), {})
    if count:
        queue.apply(Delivered(Q, [0, count], [], count, member, NOW_NS + 1))
    return queue


def terms(target: Target | None = TARGET, now_ns: int = NOW_NS, **settings: int) -> Terms:
    """As a topic of these settings has them; the group leaves all to the topic."""
    return Terms(GroupSettings(), TopicSettings(**settings), now_ns, lambda: target)


def apply(queue: Queue, events: Sequence[AnyQueueEvent]) -> None:
    for event in events:
        queue.apply(event)


def held(queue: Queue, member: str | None = MEMBER) -> Claimed:
    """All that a member has in flight."""
    return [(batch, batch.bits) for batch in queue.batches() if batch.member == member]
