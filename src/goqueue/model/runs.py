"""Sets of offsets in two compact forms: flat lists of half-open runs for journals, bits of an integer for arithmetic.

A few runs are converted one by one, many at once with numpy: in a log with mixed lanes, the offsets of one lane have a
gap after almost every message.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Runs = list[int]
"""``[5, 8, 10, 11]`` holds 5, 6, 7 and 10."""

Offsets = Runs | str
"""Runs, or, if they are many, the first offset and the bits from there on in hexadecimal: ``"5:27"``."""

_MANY_EDGES = 48
_FEW_EDGES = 8
_BITS_FOR_AN_EDGE = 32


def pairs(runs: Runs) -> Iterator[tuple[int, int]]:
    return zip(runs[::2], runs[1::2], strict=True)


def offsets_in(runs: Runs) -> Iterator[int]:
    return (offset for first, end in pairs(runs) for offset in range(first, end))


def size_of(runs: Offsets) -> int:
    if isinstance(runs, str):
        return unpacked(runs)[1].bit_count()
    return sum(runs[1::2]) - sum(runs[::2])


def to_runs(offsets: Iterable[int]) -> Runs:
    """Runs of ascending offsets."""
    runs: Runs = []
    for offset in offsets:
        if runs and runs[-1] == offset:
            runs[-1] = offset + 1
        else:
            runs += (offset, offset + 1)
    return runs


def ascending_to_runs(offsets: Sequence[int]) -> Runs:
    """``to_runs`` for many offsets."""
    if len(offsets) <= _MANY_EDGES:
        return to_runs(offsets)
    every = np.asarray(offsets, np.int64)
    breaks = np.flatnonzero(np.diff(every) != 1)
    edges = np.empty(2 * len(breaks) + 2, np.int64)
    edges[0], edges[-1] = every[0], every[-1] + 1
    edges[1:-1:2], edges[2::2] = every[breaks] + 1, every[breaks + 1]
    return edges.tolist()


def run_count(bits: int) -> int:
    return (bits & ~(bits << 1)).bit_count()


def to_bits(runs: Runs, first: int, span: int) -> int:
    """The bits of runs: bit ``n`` stands for ``first + n``. Offsets outside of ``first`` and ``span`` are left out."""
    if len(runs) > _MANY_EDGES:
        return _many_to_bits(runs, first, span)
    bits = 0
    for start, end in pairs(runs):
        low, high = max(0, start - first), min(span, end - first)
        if low < high:
            bits |= ((1 << (high - low)) - 1) << low
    return bits


def _many_to_bits(runs: Runs, first: int, span: int) -> int:
    # The runs at the borders one by one, so that all others are completely inside.
    low = bisect_right(runs, first)
    high = bisect_left(runs, first + span)
    low, high = low + low % 2, high - high % 2
    bits = 0
    for border in {low - 2, high} if high >= low else {low - 2}:
        if 0 <= border < len(runs):
            bits |= to_bits(runs[border : border + 2], first, span)
    if high <= low:
        return bits
    edges = np.array(runs[low:high], np.int64) - first
    steps = np.zeros(span + 1, np.int8)
    steps[edges[::2]] = 1
    steps[edges[1::2]] -= 1
    inside = np.packbits(np.add.accumulate(steps, dtype=np.int8).view(np.bool_), bitorder="little")
    return bits | int.from_bytes(inside.tobytes(), "little")


def offset_bits(offsets: NDArray[np.int64]) -> int:
    """Bits of ascending offsets; bit 0 stands for the first of them."""
    places = offsets - offsets[0]
    marks = np.zeros(int(places[-1]) + 1, np.bool_)
    marks[places] = True
    return int.from_bytes(np.packbits(marks, bitorder="little").tobytes(), "little")


def packed(first: int, bits: int) -> Offsets:
    """The shorter of the two forms."""
    edges = 2 * run_count(bits)
    if edges <= _FEW_EDGES or bits.bit_length() > _BITS_FOR_AN_EDGE * edges:
        return bits_to_runs(first, bits)
    return f"{first}:{bits:x}"


def unpacked(offsets: str) -> tuple[int, int]:
    """The first offset, and the bits from there on."""
    first, _, digits = offsets.partition(":")
    return int(first), int(digits, 16)


def bits_of(offsets: Offsets, first: int, span: int) -> int:
    """``to_bits`` for either form."""
    if not isinstance(offsets, str):
        return to_bits(offsets, first, span)
    base, bits = unpacked(offsets)
    return moved_bits(bits, base - first) & ((1 << span) - 1)


def moved_bits(bits: int, by: int) -> int:
    """The bits of the same offsets if bit 0 stands for an offset that is lower by ``by``; lower offsets are lost."""
    return bits << by if by >= 0 else bits >> -by


def bits_to_runs(first: int, bits: int) -> Runs:
    if 2 * run_count(bits) > _MANY_EDGES:
        return _many_bits_to_runs(first, bits)
    runs: Runs = []
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        first += zeros
        ones = (~bits & (bits + 1)).bit_length() - 1
        runs += (first, first + ones)
        bits >>= ones
        first += ones
    return runs


def _many_bits_to_runs(first: int, bits: int) -> Runs:
    # One byte more than needed, so that the last run has an end.
    packed = bits.to_bytes(bits.bit_length() // 8 + 2, "little")
    every = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")
    edges = np.flatnonzero(every[1:] != every[:-1]) + (first + 1)
    return [first, *edges.tolist()] if bits & 1 else edges.tolist()


def lowest(bits: int, count: int) -> int:
    """The ``count`` lowest of the bits that are set."""
    if bits.bit_count() <= count:
        return bits
    width = bisect_left(range(bits.bit_length()), count, key=lambda each: (bits & ((1 << each) - 1)).bit_count())
    return bits & ((1 << width) - 1)


def add_run(runs: Runs, first: int, end: int) -> None:
    """Append a run, merged with the last one if they touch."""
    if first >= end:
        return
    if runs and runs[-1] == first:
        runs[-1] = end
    else:
        runs += (first, end)


def below(runs: Runs, limit: int) -> Runs:
    """The part of the runs below ``limit``."""
    kept: Runs = []
    for first, end in pairs(runs):
        add_run(kept, first, min(end, limit))
    return kept
