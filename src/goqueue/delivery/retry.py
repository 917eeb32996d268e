"""Decisions on messages that come back without an ack: retry after a backoff, or dead letter after the last retry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from goqueue.delivery.claims import Claimed, to_parts
from goqueue.delivery.dead_letters import MAX_REASON_LENGTH, FindTarget, decide_dead_letters
from goqueue.delivery.events import AnyQueueEvent, Returned
from goqueue.delivery.in_flight_batch import READY, InFlightBatch
from goqueue.delivery.queue import Queue
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.group_settings import GroupSettings
from goqueue.model.topic_settings import TopicSettings

_MOST_DOUBLINGS = 40
_LEFT = "its consumer left"
_ABORTED = "its transaction was aborted"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """A group's retries for messages of one topic."""

    max_retries: int
    backoff_ns: int
    max_backoff_ns: int

    def backoff(self, deliveries: int) -> int:
        """Twice as long each time. A message that was given back unseen may have no delivery that counts."""
        return min(self.max_backoff_ns, self.backoff_ns << max(0, min(deliveries - 1, _MOST_DOUBLINGS)))


def retry_policy(group: GroupSettings, topic: TopicSettings) -> RetryPolicy:
    """The group's own settings, and the topic's where it has none."""
    return RetryPolicy(
        _chosen(group.max_retries, topic.max_retries),
        _chosen(group.retry_backoff_ms, topic.retry_backoff_ms) * NANOS_PER_MS,
        _chosen(group.max_retry_backoff_ms, topic.max_retry_backoff_ms) * NANOS_PER_MS,
    )


def _chosen(own: int | None, otherwise: int) -> int:
    return otherwise if own is None else own


class Terms(msgspec.Struct, frozen=True):
    """What a decision goes by beside the queue: settings, the time, and where dead letters go."""

    group: GroupSettings
    topic: TopicSettings
    now_ns: int
    find_target: FindTarget


def decide_return(
    queue: Queue, claimed: Claimed, reason: str, terms: Terms, *, delay_ms: int | None = None, backs_off: bool
) -> list[AnyQueueEvent]:
    """Each message is tried again, or becomes a dead letter if it was delivered more often than there are retries.

    The retry is due after ``delay_ms`` if that is given, after the policy's backoff if ``backs_off``, else at once.
    """
    policy = retry_policy(terms.group, terms.topic)
    later: dict[int, Claimed] = {}
    exhausted: Claimed = []
    for batch, bits in claimed:
        if batch.count > policy.max_retries:
            exhausted.append((batch, bits))
            continue
        wait_ns = 0
        if delay_ms is not None:
            wait_ns = delay_ms * NANOS_PER_MS
        elif backs_off:
            wait_ns = policy.backoff(batch.count)
        later.setdefault(wait_ns, []).append((batch, bits))
    events: list[AnyQueueEvent] = [
        Returned(queue.key, to_parts(some), terms.now_ns + wait_ns if wait_ns else READY, reason)
        for wait_ns, some in later.items()
    ]
    if exhausted:
        events += decide_dead_letters(queue.key, to_parts(exhausted), [], reason, terms.find_target())
    return events


def decide_departure(queue: Queue, member: str, terms: Terms, *, orderly: bool) -> list[AnyQueueEvent]:
    """Everything that a member has in flight is ready for the next poll.

    If the member went without a word, one of these messages may have been the reason: those without retries left
    become dead letters, or such a message would come back for ever.
    """
    held = whole([batch for batch in queue.batches() if batch.member == member])
    if orderly:
        return [Returned(queue.key, to_parts(held), READY, _LEFT)]
    return decide_return(queue, held, _LEFT, terms, backs_off=False)


def decide_thaw(
    queue: Queue, batches: Sequence[InFlightBatch], terms: Terms, reason: str | None = None, *, backs_off: bool
) -> list[AnyQueueEvent]:
    """The transaction that holds these batches was aborted, which is like a nack if ``backs_off``."""
    why = _ABORTED if reason is None else f"{_ABORTED}: {reason}"[:MAX_REASON_LENGTH]
    return decide_return(queue, whole(batches), why, terms, backs_off=backs_off)


def whole(batches: Sequence[InFlightBatch]) -> Claimed:
    """All messages of these batches."""
    return [(batch, batch.bits) for batch in batches]
