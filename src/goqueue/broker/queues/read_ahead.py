"""Messages of a lane that were read and looked at before a poll asks for them.

A poll takes a few messages from each lane. Finding, reading and checking them costs almost as much for ten as for some
hundreds, so it is done for some hundreds and kept for the polls that follow. Only what needs no second look is kept:
whole frames that every group sees and that no time of their own makes void.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.read import find_damaged_frames
from goqueue.model.bounded_cache import BoundedCache
from goqueue.wire.batch import FrameRun
from goqueue.wire.internal_headers import FOR_GROUP, TTL

_SPECIAL = re.compile(f"{FOR_GROUP}|{TTL}".encode())
"""Wherever it stands in a frame: a value that looks like it costs a closer look, no more."""
_MESSAGES = 2_000
_LANE_BYTES = 256 << 10
_MOST_BYTES = 32 << 20
"""What all groups may keep together; the lane that was served longest ago is evicted."""

Place = tuple[str, int]
"""Of a queue and a lane."""


class Ahead:
    """What comes next in a lane, as long as its cursor is at ``cursor``."""

    __slots__ = ("_at", "_ends", "_run", "_starts", "cursor", "offsets")

    def __init__(self, run: FrameRun, offsets: NDArray[np.int64], cursor: int) -> None:
        self._run = run
        self._starts = run.positions.tolist()
        self._ends = run.ends().tolist()
        self._at = 0
        self.offsets = offsets
        self.cursor = cursor

    @property
    def next_offset(self) -> int:
        return int(self.offsets[self._at])

    @property
    def size(self) -> int:
        return len(self._run.frames)

    def fits(self, cursor: int) -> bool:
        """Whether it goes on where a lane is: up to its next message a lane may be taken along by others."""
        return self._at < len(self.offsets) and self.cursor <= cursor <= self.next_offset

    def size_of(self, count: int) -> int:
        """How many bytes the next ``count`` messages have, or as many as there are."""
        return int(self._ends[min(self._at + count, len(self._ends)) - 1] - self._starts[self._at])

    def first(self, most: int, max_bytes: int) -> tuple[FrameRun, NDArray[np.int64]]:
        """The next frames and their offsets: at least one, else no more than the bounds."""
        at = self._at
        end = min(at + most, len(self.offsets))
        low = self._starts[at]
        while end > at + 1 and self._ends[end - 1] - low > max_bytes:
            end -= 1
        return self._run.part(at, end), self.offsets[at:end]

    def following(self, count: int) -> int | None:
        """The offset behind so many, if it is known."""
        at = self._at + count
        return int(self.offsets[at]) if at < len(self.offsets) else None

    def taken(self, count: int, cursor: int) -> bool:
        """So many were delivered, and the lane's cursor is there now; whether any are left."""
        self._at += count
        self.cursor = cursor
        return self._at < len(self.offsets)


class ReadAhead:
    def __init__(self) -> None:
        self._kept: BoundedCache[Place, Ahead] = BoundedCache(_MOST_BYTES)
        self.drop = self._kept.drop

    def get(self, place: Place, cursor: int) -> Ahead | None:
        found = self._kept.peek(place)
        if found is None or found.fits(cursor):
            return found
        # The lane went on without this, or was set back.
        self.drop(place)
        return None

    async def read(self, partition: Partition, place: Place, cursor: int) -> Ahead | None:
        """Read on from the lane's cursor; ``None`` if what comes next has to be looked at more closely."""
        run, _ = await partition.read_lane(place[1], cursor, _LANE_BYTES, _MESSAGES)
        if run is None:
            return None
        columns = run.columns()
        unsound = find_damaged_frames(partition, run, columns)
        simple = min([_first_special(run), *unsound])
        if not simple:
            return None
        run = run.part(0, simple)
        found = Ahead(run, columns["offset"][:simple].astype(np.int64), cursor)
        self._kept.put(place, found, found.size)
        return found

    def taken(self, place: Place, ahead: Ahead | None, count: int, cursor: int) -> None:
        """So many of it were delivered, and the lane's cursor is there now."""
        if ahead is None:
            return
        is_left = ahead.taken(count, cursor)
        if self._kept.get(place) is ahead and not is_left:
            self.drop(place)


def _first_special(run: FrameRun) -> int:
    """The place of the first frame that not every group sees, or not for ever; their number if there is none."""
    found = _SPECIAL.search(run.frames)
    return len(run) if found is None else int(np.searchsorted(run.positions, found.start(), side="right")) - 1
