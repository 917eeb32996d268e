"""How long messages took from publishing until a group had acked them, from ranges of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goqueue.spark.pipelines.analysis.offset_blocks import BLOCK, NEVER, Numbers, painted, places_in, runs_where_same

_DIGITS = 4
"""To so many digits are latencies told apart in percentiles: a group has a few ten thousand of them, not millions."""


class Ranges(NamedTuple):
    """Events of one block, a row each. ``is_begin``: from then on the message could be had; else a group was done."""

    first: Numbers
    end: Numbers
    at: Numbers
    seq: Numbers
    is_begin: NDArray[np.bool_]
    group: NDArray[np.object_]

    def where(self, mask: NDArray[np.bool_] | Numbers) -> Ranges:
        return Ranges._make(column[mask] for column in self)


class Latencies(NamedTuple):
    """Runs of messages that began together and were acked together."""

    group: list[str]
    first: Numbers
    size: Numbers
    begun_at: Numbers
    latency_ns: Numbers


def latencies(ranges: Ranges, base: int) -> Latencies:
    """Of one block from offset ``base`` on.

    The last publishing of an offset counts (a crash may have given it to another message), and the first ack after
    that. What was not published within these events, or not acked, has none.
    """
    ordered = ranges.where(np.argsort(ranges.seq, kind="stable"))
    begins = ordered.where(ordered.is_begin)
    begun = painted(begins.first, begins.end, base, np.arange(len(begins.first), dtype=np.int64))
    ends = ordered.where(~ordered.is_begin)
    found: list[tuple[str, Numbers, Numbers, Numbers, Numbers]] = []
    for group in sorted(set(ends.group.tolist())):
        here = ends.where(ends.group == group)
        done = _first_after(begun, begins.seq, here, base)
        places = np.flatnonzero(done != NEVER)
        starts, counts = runs_where_same(places, begun[places], done[places])
        begun_at = begins.at[begun[places[starts]]]
        # A clock that was set back meanwhile makes nothing faster than at once.
        took = np.maximum(here.at[done[places[starts]]] - begun_at, 0)
        found.append((group, places[starts] + base, counts, begun_at, took))
    return Latencies(
        group=[each[0] for each in found for _ in range(len(each[1]))],
        first=_joined([each[1] for each in found]),
        size=_joined([each[2] for each in found]),
        begun_at=_joined([each[3] for each in found]),
        latency_ns=_joined([each[4] for each in found]),
    )


def _first_after(begun: Numbers, begin_seq: Numbers, ends: Ranges, base: int) -> Numbers:
    """At each offset the first of ``ends`` that came after its publishing."""
    found = np.full(BLOCK, NEVER, np.int64)
    # The other way round, so that the first is written last.
    places, which = places_in(ends.first[::-1], ends.end[::-1], base)
    which = len(ends.first) - 1 - which
    is_known = begun[places] != NEVER
    places, which = places[is_known], which[is_known]
    is_after = ends.seq[which] > begin_seq[begun[places]]
    found[places[is_after]] = which[is_after]
    return found


def rounded(numbers: Numbers) -> Numbers:
    """Down to their first digits, so that no percentile is above the maximum."""
    size = np.maximum(numbers, 1).astype(np.float64)
    step = np.maximum(10.0 ** (np.floor(np.log10(size)) - (_DIGITS - 1)), 1).astype(np.int64)
    return numbers // step * step


def _joined(parts: Sequence[Numbers]) -> Numbers:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
