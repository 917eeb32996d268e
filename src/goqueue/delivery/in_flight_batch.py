"""Messages of one lease that are in the same state: in flight with one member, or waiting for the same retry."""

from __future__ import annotations

import msgspec

from goqueue.model.runs import Offsets, Runs, bits_to_runs, to_bits, unpacked

SPAN = 1_024
"""A lease covers offsets within so many of its first, which keeps its bits small."""

HOLDER_PREFIX = "transaction "
"""Begins the name of who has messages in hand that were acked in a transaction. No member has a space in its name."""

READY = 0
"""``at_ns`` of a batch that waits for nobody but a poll."""


class InFlightBatch(msgspec.Struct, gc=False):
    """In flight with ``member`` until ``at_ns``; without a member, waiting to be delivered again at ``at_ns``.

    Batches of one lease hang together by ``next``: a lease splits when some of its messages are extended or returned.
    They have the same ``first``, so that their bits stand for the same offsets.
    """

    lease: int
    first: int
    bits: int
    whole: int
    """All that the lease had at first."""
    count: int
    member: str | None
    at_ns: int
    error: str = ""
    next: InFlightBatch | None = None

    @property
    def is_frozen(self) -> bool:
        """Whether it is done when a transaction is committed, and nobody's until then."""
        return self.member is not None and self.member.startswith(HOLDER_PREFIX)

    @property
    def runs(self) -> Runs:
        return bits_to_runs(self.first, self.bits)

    def among(self, runs: Runs) -> int:
        """The bits of this batch that are in ``runs``, wherever these lie."""
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
    """Empty: just these. ``None``: a version that did not keep it has written this."""

    @property
    def first(self) -> int:
        """Where the bits of its lease begin, if this is the first that is left of it."""
        if isinstance(self.whole, str):
            return unpacked(self.whole)[0]
        return self.whole[0] if self.whole else self.runs[0]
