"""Joins of offset ranges without expanding them to single rows.

Events are recorded for ranges of offsets, and ranges of different events seldom have the same borders. So they are cut
at the borders of fixed-size blocks of offsets, Spark groups them by block, and numpy expands them into arrays of one
block's length. However long a range is, at most one block of it is in memory at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

BLOCK_BITS = 16
BLOCK = 1 << BLOCK_BITS
MAX_RANGE_OFFSETS = 1 << 34
"""Longer ranges come from damaged lines: no event covers so many messages."""
NEVER = -1


def cut_into_blocks(first: Numbers, end: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Cut ranges at block borders. Returns for each part: the index of its range, its block, first offset and end."""
    low = first >> BLOCK_BITS
    counts = ((end - 1) >> BLOCK_BITS) - low + 1
    which = np.repeat(np.arange(len(first), dtype=np.int64), counts)
    before = np.cumsum(counts) - counts
    block = low[which] + np.arange(len(which), dtype=np.int64) - before[which]
    starts = block << BLOCK_BITS
    return which, block, np.maximum(first[which], starts), np.minimum(end[which], starts + BLOCK)


def expand_ranges(first: Numbers, end: Numbers, base: int) -> tuple[Numbers, Numbers]:
    """Every offset of the ranges, relative to ``base``, and the index of its range; in the order of the ranges."""
    counts = end - first
    which = np.repeat(np.arange(len(first), dtype=np.int64), counts)
    before = np.cumsum(counts) - counts
    return first[which] - base + np.arange(len(which), dtype=np.int64) - before[which], which


def paint(first: Numbers, end: Numbers, base: int, values: Numbers) -> Numbers:
    """An array of one block: at each offset the value of the last range that covers it, ``NEVER`` where none does."""
    found = np.full(BLOCK, NEVER, np.int64)
    offsets, which = expand_ranges(first, end, base)
    found[offsets] = values[which]
    return found


def covered_mask(first: Numbers, end: Numbers, base: int) -> NDArray[np.bool_]:
    """A mask of one block: the offsets that any of the ranges covers."""
    edges = np.zeros(BLOCK + 1, np.int64)
    np.add.at(edges, first - base, 1)
    np.subtract.at(edges, end - base, 1)
    return np.cumsum(edges[:-1]) > 0


def runs_where_same(offsets: Numbers, *columns: Numbers) -> tuple[Numbers, Numbers]:
    """Runs of consecutive ascending offsets with equal values in every column: their start indices and lengths."""
    if not len(offsets):
        return offsets, offsets
    is_new = np.diff(offsets) != 1
    for column in columns:
        is_new |= np.diff(column) != 0
    starts = np.concatenate(([0], np.flatnonzero(is_new) + 1)).astype(np.int64)
    return starts, np.diff(np.append(starts, len(offsets)))
