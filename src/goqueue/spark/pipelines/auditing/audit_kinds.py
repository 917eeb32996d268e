"""Types of an audit: kinds of evidence, the fates of messages, and their descriptions.

Evidence is ranges of offsets, each with a kind, from the log, a group's journal, traces and dead letters.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from goqueue.spark.pipelines.analysis.offset_blocks import Numbers, cut_into_blocks

ANY_LANE = -1
LANES = 5
AFTER_ALL_EVENTS = 1 << 62
"""Sequence number of evidence that holds at the end, whatever was reset before."""


class Kind(IntEnum):
    """Kinds of evidence."""

    MESSAGE = 0
    """In the log, committed, and for this group."""
    OTHERS = 1
    """In the log, and redriven for another group."""
    PUBLISHED = 2
    COPIED = 3
    """A copy of another record, written by an event of that record."""
    CONSUMED = 4
    ACKED = 5
    COMMITTED = 6
    """Offset committed by a group in stream mode, which need not have polled the message."""
    VOIDED = 7
    """The group was reset to an earlier offset: its earlier events do not count."""
    EXPIRED = 8
    DISCARDED = 9
    SKIPPED = 10
    DIED = 11
    LETTER = 12
    """There is a dead letter of this group from this offset."""
    DONE = 13
    """Done by the group's journal when the audit began. The only kind of evidence per lane."""
    DONE_LATER = 14
    """Done by the group's journal after all other evidence was read."""
    IN_FLIGHT = 15
    RETRY = 16
    FROZEN = 17
    MOVING = 18
    BEFORE = 19
    """Before the offset where the group started."""
    LOST = 20
    DELAYED = 21
    FIRED = 22
    CANCELLED = 23
    WAITING = 24
    """Still delayed according to the broker."""
    ABORTED = 25
    REPLACED = 26
    """The earlier message at this offset is gone, with its topic or by a crash; another one has the offset now."""


class Fate(IntEnum):
    """The fate of a message. Values from ``NEVER_DELIVERED`` on are not accounted for."""

    ACKED = 0
    SETTLED = 1
    DEAD_LETTERED = 2
    EXPIRED = 3
    DISCARDED = 4
    SKIPPED = 5
    IN_FLIGHT = 6
    RETRY = 7
    FROZEN = 8
    MOVING = 9
    NOT_DELIVERED = 10
    OPEN = 11
    DELAYED = 12
    CANCELLED = 13
    BEFORE = 14
    OTHERS = 15
    NEVER_DELIVERED = 16
    NEVER_ACKED = 17
    ACKED_UNSEEN = 18
    ACK_FORGOTTEN = 19
    LETTER_MISSING = 20
    LETTER_EARLY = 21
    LOST = 22
    DELAY_LOST = 23
    GONE = 24


FATE_TEXTS = {
    Fate.ACKED: ("acked", "delivered and acked, or committed by a stream"),
    Fate.SETTLED: ("settled", "the group is done with it; no trace is kept that could prove or deny it"),
    Fate.DEAD_LETTERED: ("dead-lettered", "given up; its dead letter is there"),
    Fate.EXPIRED: ("expired", "its time to live was over before anyone got it"),
    Fate.DISCARDED: ("discarded", "a dead letter that was given up: there are no dead letters of dead letters"),
    Fate.SKIPPED: ("skipped", "the group was set to a later offset by hand"),
    Fate.IN_FLIGHT: ("in flight", "pending: a member has it"),
    Fate.RETRY: ("waiting for a retry", "pending: given back, to be delivered again"),
    Fate.FROZEN: ("acked in an open transaction", "pending: done when it is committed"),
    Fate.MOVING: ("on its way to the dead letters", "pending"),
    Fate.NOT_DELIVERED: ("not delivered yet", "pending"),
    Fate.OPEN: ("beyond the committed offset", "pending, or done out of order"),
    Fate.DELAYED: ("delayed", "nobody sees it before its time"),
    Fate.CANCELLED: ("cancelled", "delayed, and taken back before its time"),
    Fate.BEFORE: ("before the group", "the group began behind it"),
    Fate.OTHERS: ("for another group", "redriven for a group that is not this one"),
    Fate.NEVER_DELIVERED: ("unaccounted", "the group is past it, but it was neither delivered nor given up"),
    Fate.NEVER_ACKED: ("unaccounted", "the group is past it, but it was delivered and never acked"),
    Fate.ACKED_UNSEEN: ("unaccounted", "acked without having been delivered"),
    Fate.ACK_FORGOTTEN: ("unaccounted", "acked, but the group does not know: it will be delivered again"),
    Fate.LETTER_MISSING: ("unaccounted", "it became a dead letter, but none is there"),
    Fate.LETTER_EARLY: ("unaccounted", "its dead letter is there, but the group is not done with it"),
    Fate.LOST: ("unaccounted", "it left the log before the group was done with it"),
    Fate.DELAY_LOST: ("unaccounted", "delayed, and it neither waits nor came nor was cancelled"),
    Fate.GONE: ("unaccounted", "it was published and is not in the log"),
}
"""The name of each fate, and its meaning."""


class Knowledge(NamedTuple):
    """The completeness of the evidence."""

    has_runs: bool
    """Whether the group's full state is known, not only its committed offsets."""
    has_letters: bool
    """Whether all dead letters ever written are still there."""
    has_delays: bool
    """Whether the broker has listed the delayed messages."""
    is_whole: bool
    """Whether published messages stay in the log until retention removes them (no compaction)."""


class Evidence(NamedTuple):
    """Evidence of one block as columns; ``seq`` is the order of events."""

    kind: Numbers
    lane: Numbers
    seq: Numbers
    first: Numbers
    end: Numbers

    def of(self, *kinds: Kind) -> Evidence:
        mask = np.isin(self.kind, kinds)
        return Evidence(*(column[mask] for column in self))


def whole_range(partition: int, kind: Kind, first: int, end: int) -> list[tuple[int, int, int, int, int, int, int]]:
    """One range of a partition, whatever the lane, as rows of evidence with the partition in front."""
    return [(partition, *row) for row in evidence_rows(kind, [(ANY_LANE, first, end)])]


def evidence_rows(
    kind: Kind, runs: list[tuple[int, int, int]], seq: int = 0
) -> list[tuple[int, int, int, int, int, int]]:
    """Runs of (lane, first, end) as rows of evidence, cut at blocks: block, kind, lane, seq, first, end."""
    kept = [run for run in runs if run[1] < run[2]]
    if not kept:
        return []
    lane, first, end = (np.array(column, np.int64) for column in zip(*kept, strict=True))
    which, block, low, high = cut_into_blocks(first, end)
    return [
        (*each[:1], int(kind), *each[1:2], seq, *each[2:])
        for each in zip(block.tolist(), lane[which].tolist(), low.tolist(), high.tolist(), strict=True)
    ]
