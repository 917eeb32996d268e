"""Messages of one lease that are in the same state: in flight with one member, or waiting for the same retry."""

from __future__ import annotations

import msgspec

from goqueue.model.runs import Offsets, Runs, bits_to_runs, to_bits, unpacked

SPAN = 1_024
"""A lease covers offsets within so many of its first, which keeps its bits small."""

HOLDER_PREFIX = "transaction "
"""Begins the name under which a transaction holds messages that were acked in it. No member has a space in its name."""

READY = 0
"""``at_ns`` of a batch that any poll may deliver again."""


class InFlightBatch(msgspec.Struct, gc=False):
    """In flight with ``member`` until ``at_ns``; without a member, waiting to be delivered again at ``at_ns``.

    Batches of one lease are linked by ``next``: a lease splits when some of its messages are extended or returned.
    They have the same ``first``, so that their bits stand for the same offsets.
    """

    lease: int
    first: int
    bits: int
    whole: int
    """All that the lease had at first."""
    count: int
    """How many times the messages were delivered."""
    member: str | None
    at_ns: int
    error: str = ""
    is_frozen: bool = False
    """Acked in a transaction, which is ``member``: done when it is committed, and delivered to no member until then."""
    next: InFlightBatch | None = None

    @property
    def runs(self) -> Runs:
        return bits_to_runs(self.first, self.bits)

    def among(self, runs: Runs) -> int:
        """The bits of this batch that are in ``runs``, which may reach beyond its lease."""
        return to_bits(runs, self.first, SPAN) & self.bits


class InFlightBatchDump(msgspec.Struct, frozen=True, array_like=True):
    """As it goes into a snapshot."""

    lease: int
    runs: Runs
    count: int
    member: str | None
    at_ns: int
    error: str
    whole: Offsets | None = None
    """Empty: the same as ``runs``. ``None``: an earlier version, which did not keep it, wrote this."""

    @property
    def first(self) -> int:
        """Where the bits of its lease begin, if this is the first that is left of it."""
        if isinstance(self.whole, str):
            return unpacked(self.whole)[0]
        return self.whole[0] if self.whole else self.runs[0]
