"""Sets of offsets in two small forms: flat lists of half-open runs for journals, bits of an integer for arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Runs = list[int]
"""``[5, 8, 10, 11]`` holds 5, 6, 7 and 10."""


def pairs(runs: Runs) -> Iterator[tuple[int, int]]:
    return zip(runs[::2], runs[1::2], strict=True)


def offsets_in(runs: Runs) -> Iterator[int]:
    return (offset for first, end in pairs(runs) for offset in range(first, end))


def size_of(runs: Runs) -> int:
    return sum(runs[1::2]) - sum(runs[::2])


def to_runs(offsets: Iterable[int]) -> Runs:
    """``offsets`` ascend."""
    runs: Runs = []
    for offset in offsets:
        if runs and runs[-1] == offset:
            runs[-1] = offset + 1
        else:
            runs += (offset, offset + 1)
    return runs


def to_bits(runs: Runs, first: int, span: int) -> int:
    """Bit ``n`` stands for ``first + n``. What lies outside of ``first`` and ``span`` is left out, however far."""
    bits = 0
    for start, end in pairs(runs):
        low, high = max(0, start - first), min(span, end - first)
        if low < high:
            bits |= ((1 << (high - low)) - 1) << low
    return bits


def bits_to_runs(first: int, bits: int) -> Runs:
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


def lowest(bits: int, count: int) -> int:
    """The ``count`` lowest of the bits that are set."""
    if bits.bit_count() <= count:
        return bits
    low, high = 0, bits.bit_length()
    while low < high:
        middle = (low + high) // 2
        if (bits & ((1 << middle) - 1)).bit_count() < count:
            low = middle + 1
        else:
            high = middle
    return bits & ((1 << low) - 1)


def add_run(runs: Runs, first: int, end: int) -> None:
    """Put a run behind the others, joined to the last if they touch."""
    if first >= end:
        return
    if runs and runs[-1] == first:
        runs[-1] = end
    else:
        runs += (first, end)


def below(runs: Runs, limit: int) -> Runs:
    """What of the runs lies below ``limit``."""
    kept: Runs = []
    for first, end in pairs(runs):
        add_run(kept, first, min(end, limit))
    return kept
