"""Latencies from publishing to a group's ack, computed from ranges of offsets of both events."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goqueue.spark.pipelines.analysis.offset_blocks import BLOCK, NEVER, Numbers, expand_ranges, paint, runs_where_same

_DIGITS = 4
"""Significant digits of latencies in percentiles, so that a group has tens of thousands of distinct values at most."""


class Ranges(NamedTuple):
    """Events of one block as columns. ``is_begin``: the messages became available; else a group acked them."""

    first: Numbers
    end: Numbers
    at: Numbers
    seq: Numbers
    is_begin: NDArray[np.bool_]
    group: NDArray[np.object_]

    def where(self, mask: NDArray[np.bool_] | Numbers) -> Ranges:
        return Ranges._make(column[mask] for column in self)


class Latencies(NamedTuple):
    """Runs of messages that were published together and acked together."""

    group: list[str]
    first: Numbers
    size: Numbers
    begun_at: Numbers
    latency_ns: Numbers


def latencies(ranges: Ranges, base: int) -> Latencies:
    """The latencies of the block that begins at offset ``base``.

    They are measured from the last publishing of an offset (after a crash another message may have got it) to the
    first ack after that. Messages without a publish or ack event have none.
    """
    ordered = ranges.where(np.argsort(ranges.seq, kind="stable"))
    begins = ordered.where(ordered.is_begin)
    begin_index = paint(begins.first, begins.end, base, np.arange(len(begins.first), dtype=np.int64))
    ends = ordered.where(~ordered.is_begin)
    found: list[tuple[str, Numbers, Numbers, Numbers, Numbers]] = []
    for group in sorted(set(ends.group.tolist())):
        here = ends.where(ends.group == group)
        done = _first_after(begin_index, begins.seq, here, base)
        offsets = np.flatnonzero(done != NEVER)
        starts, counts = runs_where_same(offsets, begin_index[offsets], done[offsets])
        begun_at = begins.at[begin_index[offsets[starts]]]
        # If the clock was set back meanwhile, the latency is 0, not negative.
        took = np.maximum(here.at[done[offsets[starts]]] - begun_at, 0)
        found.append((group, offsets[starts] + base, counts, begun_at, took))
    names = [group for group, first, *_ in found for _ in first]
    columns = zip(*(numbers for _, *numbers in found), strict=True)
    none = np.zeros(0, np.int64)
    return Latencies(names, *map(np.concatenate, columns)) if found else Latencies(names, none, none, none, none)


def _first_after(begin_index: Numbers, begin_seq: Numbers, ends: Ranges, base: int) -> Numbers:
    """The index of the first of ``ends`` after the publishing of each offset, ``NEVER`` if there is none."""
    found = np.full(BLOCK, NEVER, np.int64)
    # In reverse order, so that the first ack is written last and wins.
    offsets, which = expand_ranges(ends.first[::-1], ends.end[::-1], base)
    which = len(ends.first) - 1 - which
    is_known = begin_index[offsets] != NEVER
    offsets, which = offsets[is_known], which[is_known]
    is_after = ends.seq[which] > begin_seq[begin_index[offsets]]
    found[offsets[is_after]] = which[is_after]
    return found


def round_to_digits(numbers: Numbers) -> Numbers:
    """Round down to the leading digits, so that no percentile is above the maximum."""
    size = np.maximum(numbers, 1).astype(np.float64)
    step = np.maximum(10.0 ** (np.floor(np.log10(size)) - (_DIGITS - 1)), 1).astype(np.int64)
    return numbers // step * step
