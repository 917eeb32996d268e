"""A hierarchical timer wheel: what is due when, for millions of entries.

Four levels of 256, 64, 64 and 64 buckets. A bucket of the first covers one tick of 10 ms, one of the next as much as
the whole level before it. Inserting is O(1): an entry goes to the bucket that its distance asks for, and further down
when the wheel gets to the beginning of that bucket. What lies beyond the last level (7.76 days) waits in the farthest
bucket and is put in again from there, so there is no maximum.

Entries are three numbers in flat arrays, 24 bytes each. Nothing is taken out before its time: whoever cancels must
remember it and drop the entry when it comes, or have ``keep`` throw out many at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

TICK_NS = 10_000_000

Entries = NDArray[np.int64]
"""Rows of due time (Unix nanoseconds), owner and item."""

_SHIFTS = (0, 8, 14, 20)
"""A bucket of a level covers two to the power of this many ticks."""
_SIZES = (256, 64, 64, 64)
_FIRST_SLOTS = (0, 256, 320, 384)
"""All buckets of all levels are in one list; here each level begins."""
_REACH = 1 << 26
_FIELDS = 3
_FARTHEST = np.array([1 << 8, 1 << 14, 1 << 20])
_SHIFT_OF = np.array(_SHIFTS)
_LAST_OF = np.array(_SIZES) - 1
_FIRST_SLOT_OF = np.array(_FIRST_SLOTS)


class TimerWheel:
    """Times are given; the wheel has no clock. An entry is due in the first tick that begins when its time has come.

    At any moment the buckets of a level stand for as many consecutive stretches of time as it has, from the first one
    that begins at ``_tick`` or later. So a bucket is never that of two stretches at once.
    """

    def __init__(self, now_ns: int) -> None:
        self._tick = now_ns // TICK_NS
        """The buckets of everything before this tick are empty."""
        self._buckets: list[array[int] | None] = [None] * sum(_SIZES)
        self._occupied = [0] * len(_SIZES)
        """By level: one bit for each bucket that holds something."""
        self._late: array[int] = array("q")
        """In no bucket: what is due before ``_tick``, because it was put in late or the clock went back a little."""
        self._late_tick = 0
        self.size = 0
        """How many entries there are."""

    def insert(self, due_ns: int, owner: int, item: int, now_ns: int) -> None:
        self._follow_clock(now_ns)
        self.size += 1
        # Upwards, so that its tick begins only when it is due.
        tick = -(-due_ns // TICK_NS)
        distance = tick - self._tick
        if distance < 0:
            self._late_tick = min(tick, self._late_tick) if self._late else tick
            self._late.extend((due_ns, owner, item))
            return
        if distance >= _REACH:
            distance = _REACH - 1
            tick = self._tick + distance
        level = 0 if distance < 1 << 8 else 1 if distance < 1 << 14 else 2 if distance < 1 << 20 else 3
        slot = _FIRST_SLOTS[level] + (tick >> _SHIFTS[level] & _SIZES[level] - 1)
        self._bucket(slot).extend((due_ns, owner, item))

    def insert_many(self, entries: Entries, now_ns: int) -> None:
        """The same for many at once."""
        self._follow_clock(now_ns)
        self.size += len(entries)
        self._place(entries)

    def advance(self, now_ns: int) -> Entries:
        """Take out everything that is due by now; in the order of due time, then of owner, then of item."""
        self._follow_clock(now_ns)
        until = now_ns // TICK_NS
        taken: list[array[int]] = []
        if self._late:
            taken.append(self._late)
            self._late = array("q")
        following = self._next_tick()
        if following is not None and following <= until:
            taken += self._take_until(until)
        self._tick = max(self._tick, until + 1)
        if not taken:
            return np.empty((0, _FIELDS), np.int64)
        rows = np.concatenate([np.frombuffer(bucket, np.int64) for bucket in taken]).reshape(-1, _FIELDS)
        due = rows[:, 0] <= until * TICK_NS
        if not due.all():
            # Most came in buckets of higher levels and go further down.
            self._place(rows[~due])
            rows = rows[due]
        self.size -= len(rows)
        return rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]

    def next_due_ns(self) -> int | None:
        """When to look again: never later than the tick of the earliest entry, maybe earlier to move some down."""
        following = self._next_tick()
        if self._late:
            following = self._late_tick if following is None else min(following, self._late_tick)
        return None if following is None else following * TICK_NS

    def keep(self, is_wanted: Callable[[Entries], NDArray[np.bool_]]) -> None:
        """Drop the entries that are not wanted. They are shown in parts, in no particular order."""
        for level, first in enumerate(_FIRST_SLOTS):
            for slot in range(first, first + _SIZES[level]):
                bucket = self._buckets[slot]
                if bucket is None:
                    continue
                kept = self._buckets[slot] = self._wanted(bucket, is_wanted) or None
                if kept is None:
                    self._occupied[level] &= ~(1 << slot - first)
        if self._late:
            self._late = self._wanted(self._late, is_wanted)

    def _wanted(self, bucket: array[int], is_wanted: Callable[[Entries], NDArray[np.bool_]]) -> array[int]:
        # A copy: an array that someone still looks into could not grow any more.
        rows = np.array(bucket, np.int64).reshape(-1, _FIELDS)
        wanted = is_wanted(rows)
        if wanted.all():
            return bucket
        kept = rows[wanted]
        self.size -= len(rows) - len(kept)
        return array("q", kept.tobytes())

    def _follow_clock(self, now_ns: int) -> None:
        tick = now_ns // TICK_NS
        if tick < self._tick - _SIZES[0]:
            # The clock went back. Else all that is put in until it is here again would be looked at in each tick.
            self._rebuild(tick)
        elif not self.size and tick > self._tick:
            self._tick = tick

    def _rebuild(self, tick: int) -> None:
        everything = [bucket for bucket in self._buckets if bucket is not None] + [self._late]
        rows = np.concatenate([np.frombuffer(bucket, np.int64) for bucket in everything]).reshape(-1, _FIELDS)
        self._buckets = [None] * sum(_SIZES)
        self._occupied = [0] * len(_SIZES)
        self._late = array("q")
        self._tick = tick
        self._place(rows)

    def _place(self, entries: Entries) -> None:
        """Put entries into the buckets that they belong to, seen from the tick where the wheel is."""
        ticks = -(-entries[:, 0] // TICK_NS)
        distances = ticks - self._tick
        late = distances < 0
        if late.any():
            earliest = int(ticks.min())
            self._late_tick = min(earliest, self._late_tick) if self._late else earliest
            self._late.frombytes(entries[late].tobytes())
            entries, distances = entries[~late], distances[~late]
        if not len(entries):
            return
        np.minimum(distances, _REACH - 1, out=distances)
        levels = np.searchsorted(_FARTHEST, distances, "right")
        places = (distances + self._tick) >> _SHIFT_OF[levels] & _LAST_OF[levels]
        slots = (_FIRST_SLOT_OF[levels] + places).astype(np.uint16)
        order = np.argsort(slots, kind="stable")
        slots = slots[order]
        starts = np.flatnonzero(np.diff(slots, prepend=np.uint16(0xFFFF)))
        edges = (starts * (8 * _FIELDS)).tolist()
        packed = memoryview(entries[order].tobytes())
        edges.append(len(packed))
        for number, slot in enumerate(slots[starts].tolist()):
            self._bucket(slot).frombytes(packed[edges[number] : edges[number + 1]])

    def _bucket(self, slot: int) -> array[int]:
        bucket = self._buckets[slot]
        if bucket is None:
            bucket = self._buckets[slot] = array("q")
            level = 0 if slot < _FIRST_SLOTS[1] else 1 + (slot - _FIRST_SLOTS[1]) // _SIZES[1]
            self._occupied[level] |= 1 << slot - _FIRST_SLOTS[level]
        return bucket

    def _next_tick(self) -> int | None:
        """Where the next bucket that holds something begins."""
        following = None
        for level, occupied in enumerate(self._occupied):
            if occupied:
                begins = self._next_stretch(level) << _SHIFTS[level]
                if following is None or begins < following:
                    following = begins
        return following

    def _next_stretch(self, level: int) -> int:
        """Which stretch of time the next bucket of a level stands for, counted from 1970. One must hold something."""
        occupied, size = self._occupied[level], _SIZES[level]
        first = -(-self._tick >> _SHIFTS[level])
        place = first & size - 1
        ahead = occupied >> place
        if ahead:
            return first + _lowest_bit(ahead)
        return first + size - place + _lowest_bit(occupied)

    def _take_until(self, until: int) -> list[array[int]]:
        """Empty all buckets that begin up to this tick, with whatever they hold."""
        taken: list[array[int]] = []
        for level, shift in enumerate(_SHIFTS):
            while self._occupied[level]:
                stretch = self._next_stretch(level)
                if stretch << shift > until:
                    break
                place = stretch & _SIZES[level] - 1
                bucket = self._buckets[_FIRST_SLOTS[level] + place]
                assert bucket is not None
                taken.append(bucket)
                self._buckets[_FIRST_SLOTS[level] + place] = None
                self._occupied[level] &= ~(1 << place)
        return taken


def _lowest_bit(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
