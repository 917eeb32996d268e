"""The core of ``audit``: determines the fate of each message from all evidence.

Evidence is ranges of offsets, each with a kind. The log provides the existing messages; the group's journal those that
are done or in flight; traces the events and their order; dead letters their origins. No source is trusted alone where
another one can contradict it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goqueue.spark.pipelines.analysis.offset_blocks import BLOCK, NEVER, Numbers, covered_mask, paint, runs_where_same
from goqueue.spark.pipelines.auditing.audit_kinds import ANY_LANE, LANES, Evidence, Fate, Kind, Knowledge

Mask = NDArray[np.bool_]

_SAMPLE_BLOCK = 1_024
"""Tracing samples blocks of this many consecutive offsets: all of them are traced, or none."""


class FateRuns(NamedTuple):
    """Runs of consecutive offsets with the same fate."""

    fate: Numbers
    first: Numbers
    size: Numbers


def determine_fates(evidence: Evidence, base: int, knowledge: Knowledge) -> FateRuns:
    """The fate of each message of the block that begins at offset ``base``."""
    block = _Block(evidence, base)
    found = np.full(BLOCK, NEVER, np.int64)
    messages = block.has(Kind.MESSAGE)
    found[messages] = _message_fates(block, knowledge)[messages]
    found[block.has(Kind.OTHERS)] = Fate.OTHERS
    hidden = found == NEVER
    # An offset that is not in the log may never have held a message, unless its publishing was traced.
    published = hidden & block.is_traced() & ~block.has(Kind.ABORTED, Kind.DELAYED)
    if knowledge.is_whole:
        found[published] = Fate.GONE
    found[published & (block.last_valid(Kind.LOST) > NEVER)] = Fate.LOST
    delayed = hidden & (block.last_valid(Kind.DELAYED) > NEVER) & ~block.has(Kind.FIRED, Kind.ABORTED)
    found[delayed] = _delayed_fates(block, knowledge)[delayed]
    offsets = np.flatnonzero(found != NEVER)
    starts, counts = runs_where_same(offsets, found[offsets])
    return FateRuns(found[offsets[starts]], offsets[starts] + base, counts)


class _Block:
    """The evidence of one block as arrays with one element per offset, computed per kind on request."""

    def __init__(self, evidence: Evidence, base: int) -> None:
        self._evidence = evidence
        self._base = base
        self._replaced, self._published = self._last(Kind.REPLACED), self._last(Kind.PUBLISHED)
        self._valid_from = np.maximum(self._last(Kind.VOIDED, Kind.REPLACED), self._published)

    def has(self, *kinds: Kind) -> Mask:
        rows = self._evidence.of(*kinds)
        return covered_mask(rows.first, rows.end, self._base)

    def last_valid(self, *kinds: Kind) -> Numbers:
        """The sequence number of the last such event, ``NEVER`` if a reset or a replacement has voided it."""
        last = self._last(*kinds)
        return np.where(last > self._valid_from, last, NEVER)

    def is_reset(self) -> Mask:
        """Whether the group was reset to an offset at or before the message."""
        return self._last(Kind.VOIDED) > NEVER

    def done(self, kind: Kind) -> Mask:
        """Whether each message is done, by its own lane."""
        rows = self._evidence.of(kind)
        messages = self._evidence.of(Kind.MESSAGE)
        lanes = paint(messages.first, messages.end, self._base, messages.lane)
        found = np.zeros(BLOCK, np.bool_)
        for lane in (ANY_LANE, *range(LANES)):
            mask = rows.lane == lane
            if mask.any():
                of_lane = covered_mask(rows.first[mask], rows.end[mask], self._base)
                found |= of_lane if lane == ANY_LANE else of_lane & (lanes == lane)
        return found

    def is_traced(self) -> Mask:
        """Whether a message is traced from its start, so that events that are not in its trace did not happen."""
        # A copy's start is in its original's trace; whether the copy itself is traced shows in its sampling block.
        direct = self.has(Kind.PUBLISHED, Kind.CONSUMED).reshape(-1, _SAMPLE_BLOCK).any(axis=1)
        copied = (self._last(Kind.COPIED) > self._replaced) & np.repeat(direct, _SAMPLE_BLOCK)
        return (self._published > self._replaced) | copied

    def _last(self, *kinds: Kind) -> Numbers:
        rows = self._evidence.of(*kinds)
        order = np.argsort(rows.seq, kind="stable")
        return paint(rows.first[order], rows.end[order], self._base, rows.seq[order])


def _message_fates(block: _Block, knowledge: Knowledge) -> Numbers:
    done, done_later = block.done(Kind.DONE), block.done(Kind.DONE_LATER)
    acked, committed = block.last_valid(Kind.ACKED) > NEVER, block.last_valid(Kind.COMMITTED) > NEVER
    consumed = block.last_valid(Kind.CONSUMED) > NEVER
    died, letter = block.last_valid(Kind.DIED) > NEVER, block.has(Kind.LETTER)
    traced = block.is_traced()
    # A dead letter from before a reset does not prove the fate of the message after the reset.
    is_dead = letter & (died | ~block.is_reset())

    # Ordered from proved to merely claimed.
    done_fates = _first_match(
        (committed | (acked & consumed), Fate.ACKED),
        (is_dead, Fate.DEAD_LETTERED),
        (block.last_valid(Kind.EXPIRED) > NEVER, Fate.EXPIRED),
        (block.last_valid(Kind.DISCARDED) > NEVER, Fate.DISCARDED),
        (block.last_valid(Kind.SKIPPED) > NEVER, Fate.SKIPPED),
        (died & (not knowledge.has_letters), Fate.DEAD_LETTERED),
        (died, Fate.LETTER_MISSING),
        (acked & traced, Fate.ACKED_UNSEEN),
        (acked | block.has(Kind.BEFORE), np.where(acked, Fate.SETTLED, Fate.BEFORE)),
        (consumed & traced, Fate.NEVER_ACKED),
        (traced, Fate.NEVER_DELIVERED),
        otherwise=Fate.SETTLED,
    )
    if not knowledge.has_runs:
        return _first_match((done, done_fates), (letter, Fate.DEAD_LETTERED), otherwise=Fate.OPEN)
    pending_fates = _first_match(
        # It was finished while the audit was reading.
        (done_later & (acked | committed | is_dead | died), np.where(is_dead | died, Fate.DEAD_LETTERED, Fate.ACKED)),
        (block.has(Kind.MOVING), Fate.MOVING),
        (is_dead & ~done_later, Fate.LETTER_EARLY),
        ((acked | committed) & ~done_later, Fate.ACK_FORGOTTEN),
        (block.has(Kind.FROZEN), Fate.FROZEN),
        (block.has(Kind.IN_FLIGHT), Fate.IN_FLIGHT),
        (block.has(Kind.RETRY), Fate.RETRY),
        otherwise=Fate.NOT_DELIVERED,
    )
    return np.where(done, done_fates, pending_fates)


def _first_match(*cases: tuple[Mask, Fate | Numbers], otherwise: Fate) -> Numbers:
    """At each offset the fate of the first case whose condition holds there."""
    conditions, fates = zip(*cases, strict=True)
    found: Numbers = np.select(conditions, fates, otherwise).astype(np.int64)
    return found


def _delayed_fates(block: _Block, knowledge: Knowledge) -> Numbers:
    cancelled, waiting = block.has(Kind.CANCELLED), block.has(Kind.WAITING)
    otherwise = Fate.DELAY_LOST if knowledge.has_delays else Fate.DELAYED
    return _first_match((cancelled, Fate.CANCELLED), (waiting, Fate.DELAYED), otherwise=otherwise)
