"""Which offsets are done: all below a prefix, and some above it.

Above the prefix they are sorted runs while these are few, and a bitmap when they are many: a million offsets in any
pattern take at most 128 KB.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import msgspec
import numpy as np

from goqueue.model.runs import Runs, bits_to_runs, pairs, run_count, to_bits

_FEW_RUNS = 2_048
"""So many stay runs in any case: they take little, and less than a bitmap of a wide window."""
_RUN_BYTES = 16
_SMALL_BYTES = 126 << 10
"""A bitmap up to this size (a window of a million) is taken for granted; a larger one must be less than its runs."""
_GROW_BYTES = 1_024
_MANY_RUNS = 8
"""More at once are better put into a bitmap."""
_WIDE = 1 << 16
_NOT_FULL = re.compile(rb"[^\xff]")


class AckedDump(msgspec.Struct, frozen=True, omit_defaults=True):
    """As it goes into a snapshot: runs, or a bitmap from ``bits_from`` on."""

    prefix: int
    runs: list[int] = []
    bits_from: int = 0
    bits: bytes = b""


class AckedOffsets:
    """Grows by ``add``; shrinks only by ``reset`` and ``cut``."""

    __slots__ = ("_bits", "_bits_from", "_ends", "_starts", "above", "end", "prefix")

    def __init__(self, prefix: int = 0) -> None:
        self.prefix = prefix
        """Everything below is done."""
        self.end = prefix
        """Nothing from here on is done."""
        self.above = 0
        """How many are done above the prefix."""
        self._starts = array("q")
        self._ends = array("q")
        self._bits: bytearray | None = None
        self._bits_from = 0

    def __contains__(self, offset: int) -> bool:
        if offset < self.prefix:
            return True
        if offset >= self.end:
            return False
        if self._bits is not None:
            place = offset - self._bits_from
            return bool(self._bits[place >> 3] >> (place & 7) & 1)
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def add(self, first: int, end: int) -> None:
        """The offsets from ``first`` to before ``end`` are done."""
        first = max(first, self.prefix)
        if first >= end:
            return
        if first == self.prefix and end >= self.end:
            self.reset(end)
            return
        self.end = max(self.end, end)
        if self._bits is not None and not self._fits(end):
            self._to_runs()
        if self._bits is None:
            self._add_run(first, end)
        else:
            self._add_bits(self._bits, first, end)

    def add_bits(self, first: int, bits: int) -> None:
        """Bit ``n`` stands for ``first + n``."""
        if not bits & (bits + 1):
            self.add(first, first + bits.bit_length())
            return
        end = first + bits.bit_length()
        if self._bits is None and run_count(bits) > _MANY_RUNS and self._bitmap_bytes(end) <= _SMALL_BYTES:
            self.end = max(self.end, end)
            self._to_bits()
        if self._bits is None or not self._fits(end):
            for low, high in pairs(bits_to_runs(first, bits)):
                self.add(low, high)
            return
        if first < self.prefix:
            bits, first = bits >> (self.prefix - first), self.prefix
        self.end = max(self.end, end)
        bitmap = self._room(self._bits, end)
        self.above += _merge(bitmap, first - self._bits_from, bits)
        if bits & 1 and first == self.prefix:
            self._advance(bitmap)

    def add_others(self, first: int, end: int, runs: Runs) -> None:
        """Everything from ``first`` to before ``end`` is done, ``runs`` excepted."""
        if len(runs) > 2 * _MANY_RUNS and runs[-1] - runs[0] <= _WIDE:
            low, high = runs[0], runs[-1]
            self.add(first, low)
            width = high - low
            self.add_bits(low, ((1 << width) - 1) & ~to_bits(runs, low, width))
            first = high
        else:
            for low, high in pairs(runs):
                self.add(first, low)
                first = high
        self.add(first, end)

    # As runs

    def _add_run(self, first: int, end: int) -> None:
        starts, ends = self._starts, self._ends
        low = bisect_left(ends, first)
        high = bisect_right(starts, end)
        replaced = sum(ends[low:high]) - sum(starts[low:high])
        if low < high:
            first, end = min(first, starts[low]), max(end, ends[high - 1])
        if first == self.prefix:
            self.prefix = end
            self.above -= replaced
            del starts[:high], ends[:high]
            return
        self.above += end - first - replaced
        starts[low:high] = array("q", (first,))
        ends[low:high] = array("q", (end,))
        if len(starts) > _FEW_RUNS and self._bitmap_bytes(self.end) <= max(_SMALL_BYTES, _RUN_BYTES * len(starts)):
            self._to_bits()

    def _bitmap_bytes(self, end: int) -> int:
        return -(-(end - (self.prefix & ~7)) // (8 * _GROW_BYTES)) * _GROW_BYTES

    def _to_bits(self) -> None:
        runs = list(self.runs())
        self._starts, self._ends = array("q"), array("q")
        self._bits_from = self.prefix & ~7
        bits = self._bits = bytearray(self._bitmap_bytes(self.end))
        self._set(bits, self._bits_from, self.prefix)
        for first, end in runs:
            self._set(bits, first, end)

    # As a bitmap

    def _fits(self, end: int) -> bool:
        """Whether a bitmap up to ``end`` is worth its size."""
        bits = self._bits or b""
        size = self._bitmap_bytes(end)
        if size <= max(_SMALL_BYTES, len(bits)):
            return True
        whole = int.from_bytes(bits, "little")
        # Half of what would make a bitmap of them, lest it go back and forth.
        return 2 * _RUN_BYTES * (whole & ~(whole << 1)).bit_count() >= size

    def _to_runs(self) -> None:
        runs = list(self.runs())
        self._bits = None
        self._starts = array("q", [first for first, _ in runs])
        self._ends = array("q", [end for _, end in runs])

    def _add_bits(self, bits: bytearray, first: int, end: int) -> None:
        bits = self._room(bits, end)
        self.above += self._set(bits, first, end)
        if first == self.prefix:
            self._advance(bits)

    def _room(self, bits: bytearray, end: int) -> bytearray:
        """The bitmap, with room up to ``end``."""
        wanted = (end - self._bits_from + 7) >> 3
        if wanted <= len(bits):
            return bits
        # By hand, and one piece at a time: a bytearray that grows by itself takes an eighth more than it needs.
        # A large one may.
        step = max(_GROW_BYTES, len(bits) >> 3 if len(bits) > _SMALL_BYTES else 0)
        grown = bytearray(-(-wanted // step) * step)
        grown[: len(bits)] = bits
        self._bits = grown
        return grown

    def _advance(self, bits: bytearray) -> None:
        """The prefix goes on as far as it can."""
        before = self.prefix
        found = _NOT_FULL.search(bits)
        # There is a gap: were there none, ``add`` had reset everything.
        full = len(bits) if found is None else found.start()
        byte = 0 if found is None else bits[full]
        self.prefix = self._bits_from + full * 8 + (~byte & (byte + 1)).bit_length() - 1
        self.above -= self.prefix - before
        if not self.above:
            self.reset(self.prefix)
        elif full >= _GROW_BYTES:
            used = (self.end - self._bits_from + 7) >> 3
            self._bits = bits[full:used]
            self._bits_from += full * 8

    def _set(self, bits: bytearray, first: int, end: int) -> int:
        """Set bits; return how many were not set before."""
        return _merge(bits, first - self._bits_from, (1 << (end - first)) - 1)

    # Looking through

    def gaps(self, until: int) -> Iterator[tuple[int, int]]:
        """The runs below ``until`` that are not done."""
        at = self.prefix
        for first, end in self.runs():
            if first >= until:
                break
            yield at, first
            at = end
        if at < until:
            yield at, until

    def runs(self) -> Iterator[tuple[int, int]]:
        """What is done above the prefix."""
        if self._bits is None:
            yield from zip(self._starts, self._ends, strict=True)
            return
        every = np.unpackbits(np.frombuffer(bytes(self._bits), np.uint8), bitorder="little")
        every[: self.prefix - self._bits_from] = 0
        edges = np.flatnonzero(np.diff(every, prepend=np.uint8(0), append=np.uint8(0))) + self._bits_from
        yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)

    def bits(self, first: int, span: int) -> int:
        """Which of ``span`` offsets from ``first`` on are done; bit ``n`` stands for ``first + n``."""
        found = (1 << max(0, min(span, self.prefix - first))) - 1
        if self._bits is not None:
            low = max(0, first - self._bits_from)
            part = self._bits[low >> 3 : (low + span + 7) >> 3]
            within = int.from_bytes(part, "little") >> (low & 7)
            found |= within << max(0, self._bits_from - first)
        elif self.above:
            at = max(0, bisect_right(self._starts, first) - 1)
            end = bisect_left(self._starts, first + span)
            edges = [edge for run in zip(self._starts[at:end], self._ends[at:end], strict=True) for edge in run]
            found |= to_bits(edges, first, span)
        return found & ((1 << span) - 1)

    def above_from(self, offset: int) -> int:
        """How many are done above the prefix, at ``offset`` or later."""
        if offset <= self.prefix:
            return self.above
        return sum(end - max(first, offset) for first, end in self.runs() if end > offset)

    # Going back

    def reset(self, prefix: int) -> None:
        """Everything below ``prefix`` is done, and nothing else."""
        self.prefix = self.end = prefix
        self.above = 0
        self._starts, self._ends, self._bits = array("q"), array("q"), None

    def cut(self, end: int) -> None:
        """Forget what lies at ``end`` or later."""
        kept = [(first, min(last, end)) for first, last in self.runs() if first < end]
        self.reset(min(self.prefix, end))
        for first, last in kept:
            self.add(first, last)

    # Snapshots

    def dump(self) -> AckedDump:
        if self._bits is not None:
            return AckedDump(self.prefix, [], self._bits_from, bytes(self._bits))
        return AckedDump(self.prefix, [edge for run in self.runs() for edge in run])

    @classmethod
    def load(cls, dump: AckedDump) -> AckedOffsets:
        acked = cls(dump.prefix)
        if dump.bits:
            acked._bits, acked._bits_from = bytearray(dump.bits), dump.bits_from
            whole = int.from_bytes(dump.bits, "little")
            acked.above = whole.bit_count() - (dump.prefix - dump.bits_from)
            acked.end = dump.bits_from + whole.bit_length()
        elif dump.runs:
            acked._starts, acked._ends = array("q", dump.runs[::2]), array("q", dump.runs[1::2])
            acked.above = sum(acked._ends) - sum(acked._starts)
            acked.end = dump.runs[-1]
        return acked


def _merge(bitmap: bytearray, place: int, bits: int) -> int:
    """Set bits from ``place`` on; return how many were not set before."""
    low_byte, end_byte = place >> 3, (place + bits.bit_length() + 7) >> 3
    before = int.from_bytes(bitmap[low_byte:end_byte], "little")
    after = before | bits << (place & 7)
    bitmap[low_byte:end_byte] = after.to_bytes(end_byte - low_byte, "little")
    return after.bit_count() - before.bit_count()
