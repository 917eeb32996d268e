"""What became of each message, from everything that is known of it: the heart of ``audit``.

Evidence is ranges of offsets, each with a kind. The log says which messages there are; the group's journal which of
them it counts as done or holds; traces say what happened, and in which order; dead letters where they came from. No
one of them is believed alone where another can contradict it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goqueue.spark.pipelines.analysis.offset_blocks import BLOCK, NEVER, Numbers, covered, painted, runs_where_same
from goqueue.spark.pipelines.auditing.audit_kinds import ANY_LANE, LANES, Evidence, Fate, Kind, Knowledge

Mask = NDArray[np.bool_]

_SAMPLE_BLOCK = 1_024
"""Of so many neighbours all are traced, or none."""


class Fates(NamedTuple):
    """Runs of neighbours with the same fate."""

    fate: Numbers
    first: Numbers
    size: Numbers


def fates(evidence: Evidence, base: int, knows: Knowledge) -> Fates:
    """What became of each message of the block from ``base`` on."""
    block = _Block(evidence, base)
    found = np.full(BLOCK, NEVER, np.int64)
    messages = block.has(Kind.MESSAGE)
    found[messages] = _of_messages(block, knows)[messages]
    found[block.has(Kind.OTHERS)] = Fate.OTHERS
    hidden = found == NEVER
    # What left the log may have been no message at all, unless its publishing is known.
    published = hidden & block.is_traced() & ~block.has(Kind.ABORTED, Kind.DELAYED)
    if knows.is_whole:
        found[published] = Fate.GONE
    found[published & (block.since(Kind.LOST) > NEVER)] = Fate.LOST
    delayed = hidden & (block.since(Kind.DELAYED) > NEVER) & ~block.has(Kind.FIRED, Kind.ABORTED)
    found[delayed] = _of_delayed(block, knows)[delayed]
    places = np.flatnonzero(found != NEVER)
    starts, counts = runs_where_same(places, found[places])
    return Fates(found[places[starts]], places[starts] + base, counts)


class _Block:
    """Evidence painted onto one block, each kind when it is first asked for."""

    def __init__(self, evidence: Evidence, base: int) -> None:
        self._evidence = evidence
        self._base = base
        self._replaced, self._published = self._last(Kind.REPLACED), self._last(Kind.PUBLISHED)
        self._counts_from = np.maximum(self._last(Kind.VOIDED, Kind.REPLACED), self._published)

    def has(self, *kinds: Kind) -> Mask:
        rows = self._evidence.of(*kinds)
        return covered(rows.first, rows.end, self._base)

    def since(self, *kinds: Kind) -> Numbers:
        """The order of the last such event, if it still counts."""
        last = self._last(*kinds)
        return np.where(last > self._counts_from, last, NEVER)

    def is_void(self) -> Mask:
        """Whether the group was set back to before it."""
        return self._last(Kind.VOIDED) > NEVER

    def done(self, kind: Kind) -> Mask:
        """By the lane of each message."""
        rows = self._evidence.of(kind)
        messages = self._evidence.of(Kind.MESSAGE)
        lanes = painted(messages.first, messages.end, self._base, messages.lane)
        found = np.zeros(BLOCK, np.bool_)
        for lane in (ANY_LANE, *range(LANES)):
            mask = rows.lane == lane
            if mask.any():
                of_lane = covered(rows.first[mask], rows.end[mask], self._base)
                found |= of_lane if lane == ANY_LANE else of_lane & (lanes == lane)
        return found

    def is_traced(self) -> Mask:
        """Whether its story is kept from the start, so that what is not in it did not happen."""
        # A copy's beginning is told with its original; whether it is traced itself, its neighbours tell.
        direct = self.has(Kind.PUBLISHED, Kind.CONSUMED).reshape(-1, _SAMPLE_BLOCK).any(axis=1)
        copied = (self._last(Kind.COPIED) > self._replaced) & np.repeat(direct, _SAMPLE_BLOCK)
        return (self._published > self._replaced) | copied

    def _last(self, *kinds: Kind) -> Numbers:
        rows = self._evidence.of(*kinds)
        order = np.argsort(rows.seq, kind="stable")
        return painted(rows.first[order], rows.end[order], self._base, rows.seq[order])


def _of_messages(block: _Block, knows: Knowledge) -> Numbers:
    done, done_later = block.done(Kind.DONE), block.done(Kind.DONE_LATER)
    acked, committed = block.since(Kind.ACKED) > NEVER, block.since(Kind.COMMITTED) > NEVER
    consumed = block.since(Kind.CONSUMED) > NEVER
    died, letter = block.since(Kind.DIED) > NEVER, block.has(Kind.LETTER)
    traced = block.is_traced()
    # A dead letter from before a reset says nothing of what became of the message after it.
    is_dead = letter & (died | ~block.is_void())

    # What comes first holds: from what is proved to what is only said.
    of_done = np.select(
        [
            committed | (acked & consumed),
            is_dead,
            block.since(Kind.EXPIRED) > NEVER,
            block.since(Kind.DISCARDED) > NEVER,
            block.since(Kind.SKIPPED) > NEVER,
            died & (not knows.has_letters),
            died,
            acked & traced,
            acked | block.has(Kind.BEFORE),
            consumed & traced,
            traced,
        ],
        [
            Fate.ACKED,
            Fate.DEAD_LETTERED,
            Fate.EXPIRED,
            Fate.DISCARDED,
            Fate.SKIPPED,
            Fate.DEAD_LETTERED,
            Fate.LETTER_MISSING,
            Fate.ACKED_UNSEEN,
            np.where(acked, Fate.SETTLED, Fate.BEFORE),
            Fate.NEVER_ACKED,
            Fate.NEVER_DELIVERED,
        ],
        Fate.SETTLED,
    )
    if not knows.has_runs:
        return np.select([done, letter], [of_done, np.full(BLOCK, Fate.DEAD_LETTERED)], Fate.OPEN).astype(np.int64)
    of_pending = np.select(
        [
            # It was done meanwhile.
            done_later & (acked | committed | is_dead | died),
            block.has(Kind.MOVING),
            is_dead & ~done_later,
            (acked | committed) & ~done_later,
            block.has(Kind.FROZEN),
            block.has(Kind.IN_FLIGHT),
            block.has(Kind.RETRY),
        ],
        [
            np.where(is_dead | died, Fate.DEAD_LETTERED, Fate.ACKED),
            Fate.MOVING,
            Fate.LETTER_EARLY,
            Fate.ACK_FORGOTTEN,
            Fate.FROZEN,
            Fate.IN_FLIGHT,
            Fate.RETRY,
        ],
        Fate.NOT_DELIVERED,
    )
    return np.where(done, of_done, of_pending).astype(np.int64)


def _of_delayed(block: _Block, knows: Knowledge) -> Numbers:
    cancelled, waiting = block.has(Kind.CANCELLED), block.has(Kind.WAITING)
    otherwise = Fate.DELAY_LOST if knows.has_delays else Fate.DELAYED
    return np.select([cancelled, waiting], [Fate.CANCELLED, Fate.DELAYED], otherwise).astype(np.int64)
