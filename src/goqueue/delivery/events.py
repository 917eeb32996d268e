"""What can happen to a group's messages of one partition. ``q`` names the queue; runs are flat and half-open.

``parts`` pair a lease with the runs of it that are meant.
"""

from __future__ import annotations

import msgspec

from goqueue.model.runs import Runs

Parts = list[tuple[int, Runs]]


class QueueEvent(msgspec.Struct, frozen=True):
    """Something that happened to the queue ``q``."""

    q: str


class QueueOpened(QueueEvent, frozen=True, tag="opened"):
    """A group begins with a partition, at ``start``."""

    group: str
    topic_id: str
    partition: int
    start: int


class QueueClosed(QueueEvent, frozen=True, tag="closed"):
    """The partition is gone, and everything known of it with it."""


class Delivered(QueueEvent, frozen=True, tag="delivered"):
    """``runs`` went to a member for the first time. What is skipped counts as done; the cursor is at ``upto``."""

    runs: Runs
    skipped: Runs
    upto: int
    member: str
    until_ns: int


class Redelivered(QueueEvent, frozen=True, tag="redelivered"):
    """Waiting messages of an earlier lease went to a member once more."""

    parts: Parts
    member: str
    until_ns: int


class Acked(QueueEvent, frozen=True, tag="acked"):
    """Done."""

    parts: Parts


class Returned(QueueEvent, frozen=True, tag="returned"):
    """In flight no more; to be delivered again at ``at_ns`` or later."""

    parts: Parts
    at_ns: int
    error: str


class Released(QueueEvent, frozen=True, tag="released"):
    """Given back unseen: ready again at once, and this delivery does not count."""

    parts: Parts


class Extended(QueueEvent, frozen=True, tag="extended"):
    """In flight until ``until_ns``."""

    parts: Parts
    until_ns: int


class Target(msgspec.Struct, frozen=True, array_like=True):
    """Where copies go. ``end`` is that log's end when this was decided: a copy can only lie at it or after it."""

    topic: str
    topic_id: str
    partition: int
    end: int


class Moving(QueueEvent, frozen=True, tag="moving"):
    """To be copied elsewhere and then done. ``fresh`` are messages that were never delivered."""

    parts: Parts
    fresh: Runs
    reason: str
    target: Target


class Moved(QueueEvent, frozen=True, tag="moved"):
    """The copies are durable: done."""

    runs: Runs


class Committed(QueueEvent, frozen=True, tag="committed"):
    """A stream group is done with everything below ``offset``."""

    offset: int


class Dropped(QueueEvent, frozen=True, tag="dropped"):
    """The log begins at ``start``: whatever lay below has expired."""

    start: int


class ResetTo(QueueEvent, frozen=True, tag="reset"):
    """Begin again at ``offset``; receipts from before are void."""

    offset: int


class CutTo(QueueEvent, frozen=True, tag="cut"):
    """The log ends at ``end`` and knows nothing of what came after: a crash took it."""

    end: int


AnyQueueEvent = (
    QueueOpened
    | QueueClosed
    | Delivered
    | Redelivered
    | Acked
    | Returned
    | Released
    | Extended
    | Moving
    | Moved
    | Committed
    | Dropped
    | ResetTo
    | CutTo
)
