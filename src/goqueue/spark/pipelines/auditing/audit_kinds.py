"""The words of an audit: kinds of evidence, fates, and how both are told.

Evidence is ranges of offsets, each with a kind: what the log, a group's journal, traces and dead letters say.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from goqueue.spark.pipelines.analysis.offset_blocks import BLOCK_BITS, Numbers, cut_into_blocks

ANY_LANE = -1
LANES = 5
AT_LAST = 1 << 62
"""The order of what is known to be true at the end, whatever was reset before."""


class Kind(IntEnum):
    """Of evidence."""

    MESSAGE = 0
    """In the log, committed, and for this group."""
    OTHERS = 1
    """In the log, and redriven for another group."""
    PUBLISHED = 2
    COPIED = 3
    """It is a copy of another record, and came there by an event of that."""
    CONSUMED = 4
    ACKED = 5
    COMMITTED = 6
    """By a group that reads a stream, and need not have polled for it."""
    VOIDED = 7
    """The group was set back: what it did before does not count."""
    EXPIRED = 8
    DISCARDED = 9
    SKIPPED = 10
    DIED = 11
    LETTER = 12
    """A dead letter of this group is there that came from this offset."""
    DONE = 13
    """For the group, by its own journal, when the audit began. The only kind that is about one lane."""
    DONE_LATER = 14
    """The same when everything else had been read."""
    IN_FLIGHT = 15
    RETRY = 16
    FROZEN = 17
    MOVING = 18
    BEFORE = 19
    """The group began behind it."""
    LOST = 20
    DELAYED = 21
    FIRED = 22
    CANCELLED = 23
    WAITING = 24
    """The broker says that it is delayed still."""
    ABORTED = 25
    REPLACED = 26
    """The message that lay there is gone, with its topic or by a crash: what is there now is another."""


class Fate(IntEnum):
    """From ``NEVER_DELIVERED`` on: not accounted for."""

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


TOLD = {
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
"""The name of each fate, and what it means."""


class Knowledge(NamedTuple):
    """How much the evidence covers."""

    has_runs: bool
    """Whether the group's whole state is known, or only up to where everything is done."""
    has_letters: bool
    """Whether every dead letter that ever came is there still."""
    has_delays: bool
    """Whether the broker was asked what is delayed."""
    is_whole: bool
    """Whether what was published stays in the log until retention removes it."""


class Evidence(NamedTuple):
    """Of one block, a row each; ``seq`` tells the order of what happened."""

    kind: Numbers
    lane: Numbers
    seq: Numbers
    first: Numbers
    end: Numbers

    def of(self, *kinds: Kind) -> Evidence:
        mask = np.isin(self.kind, kinds)
        return Evidence(*(column[mask] for column in self))


def rows_of(kind: Kind, runs: list[tuple[int, int, int]], seq: int = 0) -> list[tuple[int, int, int, int, int, int]]:
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


def base_of(block: int) -> int:
    """The first offset of a block."""
    return block << BLOCK_BITS
