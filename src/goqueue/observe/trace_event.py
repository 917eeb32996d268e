"""Something that happened to messages of one partition, all at once.

One event covers as many messages as shared it, so tracing costs what batches cost. What happened to one message is put
together from events when someone asks. An event is one line of JSON in a trace file; its place comes first in the line.
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
"""A delayed message was due, and became visible as another record."""
CANCELLED = "cancelled"
RESCHEDULED = "rescheduled"
CONSUME = "consume"
REDELIVERED = "redelivered"
ACK = "ack"
NACK = "nack"
REJECT = "reject"
EXPIRED = "expired"
"""Not settled in time, or not delivered within its time to live."""
OVER_AGE = EXPIRED_REASON
"""Why a message expired that nobody got; any other reason is that of a delivery, after which it comes again."""
RELEASED = "released"
EXTENDED = "extended"
COMMITTED = "committed"
"""By a group that reads a stream; without a group, the transaction that it was published in."""
DLQ = "dlq"
REDRIVEN = "redriven"
LOST = "lost"
"""The log does not have it any more, and the group was not done with it."""
DISCARDED = "discarded"
"""A dead letter was tried often enough: there are no dead letters of dead letters."""
RESET = "reset"
"""The group was set back, and gets it again."""
SKIPPED = "skipped"
"""The group was set to a later offset."""
CUT = "cut"
"""A crash took it from the end of the log, where its offset may be given to another."""
DELETED = "deleted"
"""With its topic."""
ABORTED = "aborted"
"""The transaction that it was published in: nobody ever sees it."""

MARKER = "transaction_end"
"""No message, but the record that tells in the log how a transaction ended."""

IN_TRANSACTION = "in a transaction"
"""What the reason of a ``PUBLISH`` begins with if nobody sees the message before a transaction is committed."""
NEVER_SEEN = "its transaction was aborted"
"""What the reason of an ``ABORTED`` begins with; behind a colon follows why, if that is known."""

HIDES = frozenset({DELAY, RESCHEDULED, FIRED, CANCELLED, ABORTED})
"""What happens only to records that no group sees."""
ENDS = frozenset({ACK, COMMITTED, REJECT, DLQ, LOST, EXPIRED, DISCARDED, SKIPPED, CUT})
"""After one of these a group may be done with a message."""

_MANY_EDGES = 48
_BITS_FOR_AN_EDGE = 32
"""Bits are worth it only where gaps are small: they cost what the whole span costs, however few offsets are in it."""


class TraceEvent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """``place`` is topic and partition, ``orders/3``; times are Unix nanoseconds."""

    place: str
    at: int
    event: str
    offsets: Offsets
    group: str = ""
    member: str = ""
    reason: str = ""
    until: int = 0
    """In flight until, or to be seen again or at all from then on."""
    to: str = ""
    """Where copies went."""
    first_copy: int = 0
    """The offset of the first copy there; the others follow it."""
    order: list[int] = []
    """Which message each copy is of, unless they are in the order of their offsets."""

    def copy_of(self, offset: int) -> int:
        """Where the copy of one of these messages lies."""
        place = self.order.index(offset) if self.order else _rank(self.offsets, offset)
        return self.first_copy + place

    def original_of(self, copy: int) -> int | None:
        """Which message a copy is of; ``None`` if it is none of these."""
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
    """Whether it is a publishing that nobody sees before a commit."""
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
    """Whether an offset is among them."""
    if isinstance(offsets, str):
        first, bits = unpacked(offsets)
        return offset >= first and bool(bits >> (offset - first) & 1)
    return bisect_right(offsets, offset) % 2 == 1


def extent(offsets: Offsets) -> tuple[int, int]:
    """The first offset, and the end behind the last."""
    if isinstance(offsets, str):
        first, bits = unpacked(offsets)
        return first, first + bits.bit_length()
    return (offsets[0], offsets[-1]) if offsets else (0, 0)


def joined(parts: Sequence[Offsets]) -> Offsets:
    """Several sets that have nothing in common, as one; where it has many gaps, in the form that takes less memory."""
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


def weight(event: TraceEvent) -> int:
    """How much memory it takes, in about the size of one number."""
    return 10 + len(event.offsets) + len(event.order)


def _rank(offsets: Offsets, offset: int) -> int:
    before = 0
    for first, end in pairs(runs_of(offsets)):
        if offset < end:
            return before + offset - first
        before += end - first
    return before
