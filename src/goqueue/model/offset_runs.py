"""A large set of offsets that form runs, such as the aborted records of a log.

A run takes 16 bytes, whatever its length. Most runs are added at the end, so sorted arrays with bisection are fast.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_LITTLE = np.dtype("<i8")


class OffsetRuns:
    """Disjoint half-open runs in ascending order. Runs that touch are merged."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        self._starts = array("q")
        self._ends = array("q")
        for first, end in runs:
            self.add(first, end)

    def __len__(self) -> int:
        """The number of runs."""
        return len(self._starts)

    def __contains__(self, offset: int) -> bool:
        return self.end_of(offset) != offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetRuns) and self._starts == other._starts and self._ends == other._ends

    __hash__ = None  # type: ignore[assignment]

    def runs(self) -> list[tuple[int, int]]:
        return list(zip(self._starts, self._ends, strict=True))

    def add(self, first: int, end: int) -> None:
        if first >= end:
            return
        low, high = bisect_left(self._ends, first), bisect_right(self._starts, end)
        if low < high:
            first, end = min(first, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high] = array("q", (first,))
        self._ends[low:high] = array("q", (end,))

    def end_of(self, offset: int) -> int:
        """The end of the run that an offset is in; the offset itself if it is in none."""
        at = bisect_right(self._starts, offset) - 1
        return max(offset, self._ends[at]) if at >= 0 else offset

    def any_between(self, low: int, high: int) -> bool:
        at = bisect_right(self._ends, low)
        return low < high and at < len(self._starts) and self._starts[at] < high

    def count(self, low: int, high: int) -> int:
        """How many offsets from ``low`` to before ``high`` are in the set."""
        first, end = bisect_right(self._ends, low), bisect_left(self._starts, high)
        if first >= end or low >= high:
            return 0
        starts, ends = self._slice(first, end)
        return int((np.minimum(ends, high) - np.maximum(starts, low)).sum())

    def mask(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Which of these ascending offsets are in the set; ``None`` if none is."""
        if not len(offsets) or not self.any_between(int(offsets[0]), int(offsets[-1]) + 1):
            return None
        first = bisect_right(self._ends, int(offsets[0]))
        starts, ends = self._slice(first, bisect_right(self._starts, int(offsets[-1])))
        at = np.searchsorted(starts, offsets, side="right") - 1
        inside: NDArray[np.bool_] = (at >= 0) & (offsets < ends[np.maximum(at, 0)])
        return inside

    def mask_between(self, low: int, high: int) -> NDArray[np.bool_]:
        """Which of the offsets from ``low`` to before ``high`` are in the set."""
        first, end = bisect_right(self._ends, low), bisect_left(self._starts, high)
        starts, ends = self._slice(first, end)
        edges = np.zeros(high - low + 1, np.int8)
        edges[np.maximum(starts - low, 0)] += 1
        edges[np.minimum(ends - low, high - low)] -= 1
        return np.cumsum(edges[:-1], dtype=np.int8).view(np.bool_)

    def without(self, low: int, high: int) -> OffsetRuns:
        """A copy without the offsets from ``low`` to before ``high``: a reader may still use this set."""
        first, end = bisect_right(self._ends, low), bisect_left(self._starts, high)
        if first >= end or low >= high:
            return self
        left: list[tuple[int, int]] = []
        if self._starts[first] < low:
            left.append((self._starts[first], low))
        if self._ends[end - 1] > high:
            left.append((high, self._ends[end - 1]))
        made = OffsetRuns()
        made._starts = self._starts[:first] + array("q", [start for start, _ in left]) + self._starts[end:]
        made._ends = self._ends[:first] + array("q", [stop for _, stop in left]) + self._ends[end:]
        return made

    def _slice(self, first: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return np.frombuffer(self._starts[first:end], np.int64), np.frombuffer(self._ends[first:end], np.int64)

    def dump(self) -> bytes:
        starts, ends = self._slice(0, len(self))
        return np.concatenate((starts, ends)).astype(_LITTLE).tobytes()

    @classmethod
    def load(cls, payload: bytes) -> OffsetRuns:
        """Raises ``ValueError`` for what ``dump`` could not have made."""
        edges = np.frombuffer(payload, _LITTLE).astype(np.int64)
        if len(edges) % 2:
            raise ValueError("an odd number of edges")
        starts, ends = edges[: len(edges) // 2], edges[len(edges) // 2 :]
        if (starts >= ends).any() or (starts[1:] <= ends[:-1]).any():
            raise ValueError("runs that are empty or not in order")
        made = cls()
        made._starts, made._ends = array("q", starts.tobytes()), array("q", ends.tobytes())
        return made
