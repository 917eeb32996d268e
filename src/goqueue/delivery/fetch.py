"""Decisions of a poll at one lane of a queue: new messages, retries, parked messages whose key is free, and skips.

Messages are read first. What is decided here goes by the queue as it is then, and has to be applied in the same step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from goqueue.delivery.dead_letters import EXPIRED_REASON, decide_dead_letters
from goqueue.delivery.events import Acked, AnyQueueEvent, Delivered, Dropped, Redelivered
from goqueue.delivery.in_flight_batch import SPAN, InFlightBatch
from goqueue.delivery.key_order import KeyOrder
from goqueue.delivery.queue import Queue
from goqueue.delivery.selection import FetchTerms, Selection
from goqueue.model.runs import offset_bits, packed, to_bits, to_runs


@dataclass(frozen=True, slots=True)
class Redelivery:
    """``gone`` and ``again`` are applied in this order; ``indexes`` are those of the messages found that go out."""

    gone: list[AnyQueueEvent]
    again: list[AnyQueueEvent]
    indexes: list[int]


@dataclass(frozen=True, slots=True)
class ParkedDelivery:
    """Messages that waited for their key: ``indexes`` are those of the messages found that go out."""

    events: list[AnyQueueEvent]
    indexes: list[int]
    expired: list[int]
    over: list[int]
    """Offsets that wait no longer, whatever became of them."""

    def note_keys(self, keys: KeyOrder) -> None:
        """Once the events were applied. What they made done has left already."""
        for offset in self.over:
            if keys.is_ready(offset):
                keys.take(offset)


def decide_new(
    queue: Queue, selection: Selection, left: list[tuple[int, int]], terms: FetchTerms
) -> list[AnyQueueEvent]:
    """Deliver what was selected. ``left`` names other lanes with messages up to there, and where these begin."""
    delivered = Delivered(
        queue.key, selection.runs, selection.skipped, selection.upto, terms.member, terms.until_ns, terms.lane, left
    )
    return [delivered, *_decide_expired(queue, selection.expired, terms)]


def decide_skip(
    queue: Queue, lane: int, upto: int, member: str, left: list[tuple[int, int]] | None = None
) -> Delivered:
    """The lane has nothing to deliver before ``upto``."""
    return Delivered(queue.key, [], None, upto, member, 0, lane, left or [])


def decide_read_ahead(
    queue: Queue,
    lane: int,
    offsets: NDArray[np.int64],
    upto: int,
    left: list[tuple[int, int]],
    member: str,
    until_ns: int,
) -> Delivered:
    """Deliver messages that were read ahead and need no closer look; the lane has nothing else before ``upto``."""
    return Delivered(queue.key, packed(int(offsets[0]), offset_bits(offsets)), None, upto, member, until_ns, lane, left)


def decide_redelivery(
    queue: Queue, batch: InFlightBatch, wanted: int, found: Sequence[int], upto: int, terms: FetchTerms
) -> Redelivery:
    """Deliver messages of a batch again. Of the bits ``wanted`` the log was searched up to ``upto``, and has ``found``.

    What was settled meanwhile is not delivered; what the log does not have any more is done.
    """
    first = batch.first
    there = wanted & batch.among([first, upto])
    again = there & to_bits(to_runs(found), first, SPAN)
    gone = there & ~again
    return Redelivery(
        [Acked(queue.key, [(batch.lease, packed(first, gone))], gone=True)] if gone else [],
        [Redelivered(queue.key, [(batch.lease, packed(first, again))], terms.member, terms.until_ns)] if again else [],
        [index for index, offset in enumerate(found) if again >> (offset - first) & 1],
    )


def decide_parked(
    queue: Queue,
    keys: KeyOrder,
    wanted: Sequence[int],
    found: Sequence[int],
    upto: int,
    expired: set[int],
    terms: FetchTerms,
) -> ParkedDelivery:
    """Deliver parked messages whose key is free. Of those ``wanted`` the log has ``found`` below ``upto``.

    ``expired`` are indexes of messages found whose time to live is over.
    """
    ready = [(index, offset) for index, offset in enumerate(found) if keys.is_ready(offset)]
    indexes = [index for index, _ in ready if index not in expired]
    taken = [found[index] for index in indexes]
    late = [offset for index, offset in ready if index in expired]
    there = set(found)
    gone = [each for each in wanted if each < upto and each not in there and keys.is_ready(each)]
    skipped = gone if terms.keeps_expired else sorted(gone + late)
    delivered = Delivered(
        queue.key, to_runs(taken), to_runs(skipped), queue.cursor(terms.lane), terms.member, terms.until_ns, terms.lane
    )
    return ParkedDelivery([delivered, *_decide_expired(queue, late, terms)], indexes, late, [*taken, *late, *gone])


def decide_lost(queue: Queue, lane: int, offsets: Sequence[int], member: str) -> Delivered:
    """Parked messages that the log does not have any more are done."""
    return Delivered(queue.key, [], to_runs(offsets), queue.cursor(lane), member, 0, lane)


def decide_drop(queue: Queue, log_start: int) -> list[AnyQueueEvent]:
    """What retention has removed from the log leaves the queue."""
    return [Dropped(queue.key, log_start)] if log_start > queue.cursors.committed else []


def _decide_expired(queue: Queue, offsets: Sequence[int], terms: FetchTerms) -> list[AnyQueueEvent]:
    """Dead letters of messages that were never delivered, unless the selection has skipped them."""
    if not offsets or not terms.keeps_expired:
        return []
    return decide_dead_letters(queue.key, [], to_runs(offsets), EXPIRED_REASON, terms.find_target(), terms.lane)
