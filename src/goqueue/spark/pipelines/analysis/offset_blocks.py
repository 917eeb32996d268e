"""Ranges of offsets, joined without taking them apart one by one.

What happened to messages is told of ranges, and ranges of two kinds seldom have the same borders. So they are cut at
the borders of blocks of neighbouring offsets, Spark brings together what is about the same block, and there numpy
paints the ranges onto arrays that are one block long. However long a range is, no more than a block of it is ever
in memory at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

BLOCK_BITS = 16
BLOCK = 1 << BLOCK_BITS
MOST_OFFSETS = 1 << 34
"""A range that claims to be longer comes from a damaged line: no partition has so many messages at once."""
NEVER = -1


def cut_into_blocks(first: Numbers, end: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Ranges as parts that lie in one block each: which range a part is of, its block, its first offset and its end."""
    low = first >> BLOCK_BITS
    counts = ((end - 1) >> BLOCK_BITS) - low + 1
    which = np.repeat(np.arange(len(first), dtype=np.int64), counts)
    before = np.cumsum(counts) - counts
    block = low[which] + np.arange(len(which), dtype=np.int64) - before[which]
    starts = block << BLOCK_BITS
    return which, block, np.maximum(first[which], starts), np.minimum(end[which], starts + BLOCK)


def places_in(first: Numbers, end: Numbers, base: int) -> tuple[Numbers, Numbers]:
    """Each offset of some ranges, counted from ``base``, and which range it is of; in the order of the ranges."""
    counts = end - first
    which = np.repeat(np.arange(len(first), dtype=np.int64), counts)
    before = np.cumsum(counts) - counts
    return first[which] - base + np.arange(len(which), dtype=np.int64) - before[which], which


def painted(first: Numbers, end: Numbers, base: int, values: Numbers) -> Numbers:
    """One block: at each offset the value of the last range that covers it, ``NEVER`` where none does."""
    found = np.full(BLOCK, NEVER, np.int64)
    places, which = places_in(first, end, base)
    found[places] = values[which]
    return found


def covered(first: Numbers, end: Numbers, base: int) -> NDArray[np.bool_]:
    """One block: which offsets any of the ranges covers."""
    edges = np.zeros(BLOCK + 1, np.int64)
    np.add.at(edges, first - base, 1)
    np.subtract.at(edges, end - base, 1)
    return np.cumsum(edges[:-1]) > 0


def runs_where_same(places: Numbers, *columns: Numbers) -> tuple[Numbers, Numbers]:
    """Ascending places as runs of neighbours that have the same value in every column: where runs begin, how long."""
    if not len(places):
        return places, places
    is_new = np.diff(places) != 1
    for column in columns:
        is_new |= np.diff(column) != 0
    starts = np.concatenate(([0], np.flatnonzero(is_new) + 1)).astype(np.int64)
    return starts, np.diff(np.append(starts, len(places)))
