"""Trace events: one event records what happened to a set of messages of one partition at once.

One event covers all messages that share it, so tracing costs what batches cost. The trace of one message is assembled
from events when it is queried. An event is one line of JSON in a trace file; its topic and partition come first in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from goqueue.delivery.dead_letters import EXPIRED_REASON
from goqueue.model.runs import Offsets, Runs, bits_to_runs, packed, pairs, to_bits, unpacked

PUBLISH = "publish"
DELAY = "delay"
FIRED = "fired"
"""A delayed message was due and became visible as another record."""
CANCELLED = "cancelled"
RESCHEDULED = "rescheduled"
CONSUME = "consume"
REDELIVERED = "redelivered"
ACK = "ack"
NACK = "nack"
REJECT = "reject"
EXPIRED = "expired"
"""Not settled within the visibility timeout, or not delivered within its time to live."""
OVER_AGE = EXPIRED_REASON
"""Reason of an expired message that was not delivered; any other reason belongs to a delivery, which is retried."""
RELEASED = "released"
EXTENDED = "extended"
COMMITTED = "committed"
"""By a group that reads a stream; without a group, by the transaction that the message was published in."""
DLQ = "dlq"
REDRIVEN = "redriven"
LOST = "lost"
"""The log no longer holds the message, and the group had not finished with it."""
DISCARDED = "discarded"
"""A dead letter exceeded its delivery attempts: dead letters have no dead letters."""
RESET = "reset"
"""The group was reset to an earlier offset, and gets the message again."""
SKIPPED = "skipped"
"""The group was set to a later offset."""
CUT = "cut"
"""A crash cut the message from the end of the log; its offset may be assigned again."""
DELETED = "deleted"
"""Deleted with its topic."""
ABORTED = "aborted"
"""The transaction that the message was published in was aborted: it never becomes visible."""

MARKER = "transaction_end"
"""No message, but the control record in the log that ends a transaction."""

IN_TRANSACTION = "in a transaction"
"""Prefix of the reason of a ``PUBLISH`` whose message is invisible until a transaction is committed."""
NEVER_SEEN = "its transaction was aborted"
"""Prefix of the reason of an ``ABORTED``; the cause follows after a colon, if it is known."""

HIDES = frozenset({DELAY, RESCHEDULED, FIRED, CANCELLED, ABORTED})
"""Events that occur only on records that no group sees."""
ENDS = frozenset({ACK, COMMITTED, REJECT, DLQ, LOST, EXPIRED, DISCARDED, SKIPPED, CUT})
"""Events after which a group may have finished with a message."""

_MANY_EDGES = 48
_BITS_FOR_AN_EDGE = 32
"""A bitmap is used up to this many bits per range boundary: it is as large as its whole span, however few offsets it
holds, so it saves memory only where gaps are small."""


class TraceEvent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A trace event. ``place`` is topic and partition, ``orders/3``; times are Unix nanoseconds."""

    place: str
    at: int
    event: str
    offsets: Offsets
    group: str = ""
    member: str = ""
    reason: str = ""
    until: int = 0
    """End of the visibility timeout, or the time from which the messages are visible (again)."""
    to: str = ""
    """Topic and partition of the copies."""
    first_copy: int = 0
    """Offset of the first copy; the other copies follow it."""
    order: list[int] = []
    """Index of the message that each copy is of, unless copies are in the order of the messages' offsets."""

    def copy_of(self, offset: int) -> int:
        """Offset of the copy of one of these messages."""
        place = self.order.index(offset) if self.order else _rank(self.offsets, offset)
        return self.first_copy + place

    def original_of(self, copy: int) -> int | None:
        """Offset of the message that a copy was made of; ``None`` if it is none of these."""
        place = copy - self.first_copy
        if place < 0:
            return None
        if self.order:
            return self.order[place] if place < len(self.order) else None
        for first, end in pairs(runs_of(self.offsets)):
            if place < end - first:
                return first + place
            place -= end - first
        return None


def is_in_transaction(event: str, reason: str) -> bool:
    """Whether the event is a publish that is invisible until a commit."""
    return event == PUBLISH and reason.startswith(IN_TRANSACTION)


def place_name(topic: str, partition: int) -> str:
    return f"{topic}/{partition}"


@lru_cache(maxsize=4_096)
def split_place(place: str) -> tuple[str, int]:
    topic, _, partition = place.rpartition("/")
    return topic, int(partition)


def runs_of(offsets: Offsets) -> Runs:
    return bits_to_runs(*unpacked(offsets)) if isinstance(offsets, str) else offsets


def covers(offsets: Offsets, offset: int) -> bool:
    """Whether the set contains an offset."""
    if isinstance(offsets, str):
        first, bits = unpacked(offsets)
        return offset >= first and bool(bits >> (offset - first) & 1)
    return bisect_right(offsets, offset) % 2 == 1


def extent(offsets: Offsets) -> tuple[int, int]:
    """First offset, and last offset plus one."""
    if isinstance(offsets, str):
        first, bits = unpacked(offsets)
        return first, first + bits.bit_length()
    return (offsets[0], offsets[-1]) if offsets else (0, 0)


def joined(parts: Sequence[Offsets]) -> Offsets:
    """Union of disjoint sets; with many gaps, in the representation that takes less memory."""
    if len(parts) == 1:
        return parts[0]
    together: Runs = []
    for first, end in sorted(pair for part in parts for pair in pairs(runs_of(part))):
        if together and together[-1] == first:
            together[-1] = end
        else:
            together += (first, end)
    edges, span = len(together), together[-1] - together[0] if together else 0
    if edges <= _MANY_EDGES or span > _BITS_FOR_AN_EDGE * edges:
        return together
    return packed(together[0], to_bits(together, together[0], span))


def _rank(offsets: Offsets, offset: int) -> int:
    before = 0
    for first, end in pairs(runs_of(offsets)):
        if offset < end:
            return before + offset - first
        before += end - first
    return before
