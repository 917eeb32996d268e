"""What can happen to a group's messages of one partition. ``q`` names the queue; runs are flat and half-open.

``parts`` pair a lease with the runs of it that are meant.
"""

from __future__ import annotations

import msgspec

from goqueue.model.ids import QueueKey, TopicId
from goqueue.model.runs import Offsets, Runs, size_of

Parts = list[tuple[int, Offsets]]


class QueueEvent(msgspec.Struct, frozen=True):
    """Something that happened to the queue ``q``."""

    q: QueueKey


class QueueOpened(QueueEvent, frozen=True, tag="opened"):
    """A group begins with a partition, at ``start``."""

    group: str
    topic_id: TopicId
    partition: int
    start: int


class QueueClosed(QueueEvent, frozen=True, tag="closed"):
    """The partition is gone, and everything known of it with it."""


class Delivered(QueueEvent, frozen=True, tag="delivered", omit_defaults=True):
    """``runs`` of one lane went to a member for the first time; the lane's cursor is at ``upto``.

    What is skipped counts as done; ``None``: all else between the cursor and ``upto``. If this is further than any lane
    was before, ``left`` names the other lanes that have something in between, and where it begins.
    """

    runs: Offsets
    skipped: Runs | None
    upto: int
    member: str
    until_ns: int
    lane: int = 2
    left: list[tuple[int, int]] = []


class Redelivered(QueueEvent, frozen=True, tag="redelivered"):
    """Waiting messages of an earlier lease went to a member once more."""

    parts: Parts
    member: str
    until_ns: int


class Acked(QueueEvent, frozen=True, tag="acked", omit_defaults=True):
    """Done; or given up, if there is an ``error``: dead letters have no dead letters.

    ``gone``: they were not acked; the log does not have them any more.
    """

    parts: Parts
    error: str = ""
    gone: bool = False


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


class Frozen(QueueEvent, frozen=True, tag="frozen"):
    """Acked in a transaction, which holds them until it ends."""

    parts: Parts
    holder: str


class Target(msgspec.Struct, frozen=True, array_like=True):
    """Where copies go. ``end``: when this was decided, that log was durable up to there, and had no copy behind it.

    ``due_ns``: when readers are to see them; 0 for at once.
    """

    topic: str
    topic_id: TopicId
    partition: int
    end: int
    due_ns: int = 0


class Moving(QueueEvent, frozen=True, tag="moving"):
    """To be copied elsewhere and then done. ``fresh`` are messages of ``lane`` that were never delivered."""

    parts: Parts
    fresh: Runs
    reason: str
    target: Target
    lane: int = 2


class Moved(QueueEvent, frozen=True, tag="moved"):
    """The copies are durable: done. ``lane`` is that of messages without a ``Moving`` event."""

    runs: Runs
    lane: int = 2


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
    | Frozen
    | Moving
    | Moved
    | Committed
    | Dropped
    | ResetTo
    | CutTo
)


def total(parts: Parts) -> int:
    """How many messages these are."""
    return sum(size_of(runs) for _, runs in parts)
