"""Decisions on where a group is in a partition: commits, resets, and what becomes of a group ahead of its log."""

from __future__ import annotations

from goqueue.delivery.claims import claim_below, to_parts
from goqueue.delivery.events import Acked, AnyQueueEvent, Committed, CutTo, ResetTo
from goqueue.delivery.queue import Queue
from goqueue.model.errors import OffsetOutOfRange
from goqueue.model.fields import shown
from goqueue.model.ids import QueueKey


def decide_acks_below(queue: Queue, offset: int) -> list[AnyQueueEvent]:
    """A member of a queue commits ``offset``: what was delivered below it is done, and nothing else."""
    parts = to_parts(claim_below(queue, offset))
    return [Acked(queue.key, parts)] if parts else []


def decide_commit(queue: Queue, offset: int, since: int = 0) -> list[AnyQueueEvent]:
    """A stream group goes on at ``offset``, unless it is there or further, or was set back behind ``since``."""
    return [Committed(queue.key, offset)] if since <= queue.committed < offset else []


def decide_reset(key: QueueKey, offset: int, start: int, end: int) -> ResetTo:
    """Begin again at ``offset`` of a partition that has messages from ``start`` to before ``end``."""
    if not start <= offset <= end:
        raise OffsetOutOfRange(f"offset {shown(offset)} is not there; there are {start} to {end}")
    return ResetTo(key, offset)


def decide_cut(queue: Queue, log_end: int) -> list[CutTo]:
    """A crash may have taken messages from the end of the log that the group was delivered, or is done with."""
    # What is done may lie beyond the front: the broker's own group is not polled, and others may have gone back.
    return [CutTo(queue.key, log_end)] if queue.known_end > log_end else []
