"""How long a delivery is invisible to others, and what ends it then: its visibility timeout."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.delivery.events import AnyQueueEvent
from goqueue.delivery.in_flight_batch import InFlightBatch
from goqueue.delivery.queue import Queue
from goqueue.delivery.retry import Terms, decide_return, whole
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.group_settings import GroupSettings
from goqueue.model.topic_settings import TopicSettings


def visibility_ns(group: GroupSettings, topic: TopicSettings) -> int:
    """The visibility timeout of a delivery: the group's own, or the topic's if it has none."""
    own_ms = group.visibility_timeout_ms
    return (topic.visibility_timeout_ms if own_ms is None else own_ms) * NANOS_PER_MS


def decide_timeout(queue: Queue, expired: Sequence[InFlightBatch], terms: Terms) -> list[AnyQueueEvent]:
    """Batches whose visibility timeout is over, as ``Leases.ripen`` found them, are ready for the next poll."""
    return decide_return(queue, whole(expired), "its visibility timed out", terms, backs_off=False)
