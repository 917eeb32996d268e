"""Which frames of a segment are of which lane, as runs of frames of one lane.

A frame is named by its place in the segment (0, 1, …), so runs are in offset order by construction: there is nothing
to sort and nothing that could be out of order.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from copy import copy

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from goqueue.model.message import HIDDEN, Priority
from goqueue.storage.log.index_file import LANE_ENTRY
from goqueue.wire.batch import Columns, Lanes, lanes_of

LANES = HIDDEN + 1
"""The lanes of priorities, and one for frames that no reader sees."""
NO_LANE = 255
"""The lane of the entry behind a sealed segment's last frame, and of what is before the first."""
ENDLESS = 1 << 62
_MAP_BYTES = 600
_RUN_BYTES = 9


def lane_column(columns: Columns) -> NDArray[np.uint8]:
    """The lane of every frame by the frames' headers. A priority that does not exist is damage and counts as normal."""
    priorities = columns["priority"]
    if (unknown := priorities >= HIDDEN).any():
        priorities = np.where(unknown, np.uint8(Priority.NORMAL), priorities)
    lanes = lanes_of(priorities, columns["flags"])
    return np.full(len(columns), lanes, np.uint8) if isinstance(lanes, int) else lanes


def closing_entry(count: int) -> NDArray[np.void]:
    """Ends the last run of a sealed segment, so that its file tells by itself how many frames each lane has."""
    return np.array([(count, NO_LANE)], LANE_ENTRY)


def sealed_entries(lanes: NDArray[np.uint8]) -> NDArray[np.void]:
    """All entries of a sealed segment whose frames have these lanes."""
    changes = LaneTally().changes(lanes, 0)
    # Not joined by numpy: it would give the result the byte order of the machine.
    entries = np.empty(len(changes) + 1, LANE_ENTRY)
    entries[:-1], entries[-1:] = changes, closing_entry(len(lanes))
    return entries


def are_sound(entries: NDArray[np.void]) -> bool:
    """Whether these can be all entries of a sealed segment."""
    places, lanes = entries["place"].astype(np.int64), entries["lane"]
    return (
        len(entries) > 0
        and places[0] == 0
        and bool((np.diff(places) > 0).all())
        and bool((lanes[:-1] < LANES).all())
        and lanes[-1] == NO_LANE
    )


class LaneTally:
    """How many frames of each lane there are, and what an index file holds up to now. Small: every segment has one."""

    __slots__ = ("checksum", "closed", "entries", "last", "run_start")

    def __init__(self) -> None:
        self.last = NO_LANE
        """The lane of the run that goes on, which began at ``run_start``."""
        self.run_start = 0
        self.closed = [0] * LANES
        """Frames of each lane in the runs before that one."""
        self.entries = 0
        self.checksum = 0

    @property
    def is_closed(self) -> bool:
        """Whether no frame can follow."""
        return self.entries > 0 and self.last == NO_LANE

    def changes(self, lanes: Lanes, first_place: int) -> NDArray[np.void]:
        """Entries for frames from ``first_place`` on: one where the lane is not that of the frame before."""
        if isinstance(lanes, int):
            return np.array([(first_place, lanes)] if lanes != self.last else [], LANE_ENTRY)
        places = np.flatnonzero(np.append(lanes[:1] != self.last, lanes[1:] != lanes[:-1]))
        entries = np.empty(len(places), LANE_ENTRY)
        entries["place"] = places + first_place
        entries["lane"] = lanes[places]
        return entries

    def take(self, entries: NDArray[np.void]) -> None:
        """Count entries that follow those before."""
        if not len(entries):
            return
        if len(entries) > 1:
            places, lanes = entries["place"].astype(np.int64), np.ascontiguousarray(entries["lane"])
            before = self.totals(int(places[0]))
            added = np.bincount(lanes[:-1], np.diff(places), LANES)
            self.closed = [count + int(more) for count, more in zip(before, added, strict=True)]
            self.last, self.run_start = int(lanes[-1]), int(places[-1])
        else:
            place, lane = entries.item()
            self.closed = self.totals(place)
            self.last, self.run_start = lane, place
        self.entries += len(entries)
        self.checksum = crc32c(entries.tobytes(), self.checksum)

    def totals(self, count: int) -> list[int]:
        """Frames of each lane among the first ``count``, which reach into the last run or to its beginning."""
        if self.last == NO_LANE:
            return self.closed
        totals = self.closed.copy()
        totals[self.last] += count - self.run_start
        return totals


class _Runs:
    """Of one lane: where its runs begin, and how many of its frames lie before each."""

    __slots__ = ("before", "starts")

    def __init__(self) -> None:
        # Plain arrays: they grow in place, and bisecting them makes no copy.
        self.starts = array("I")
        self.before = array("I")


_NONE: NDArray[np.int64] = np.empty(0, np.int64)


class LaneMap:
    """All runs of a segment by lane: counting and finding are bisections."""

    __slots__ = ("_runs", "_tally")

    def __init__(self) -> None:
        self._tally = LaneTally()
        self._runs: list[_Runs | None] = [None] * LANES

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        return _MAP_BYTES + _RUN_BYTES * self._tally.entries

    def take(self, entries: NDArray[np.void]) -> None:
        """Take in entries that follow those before."""
        if not len(entries):
            return
        if len(entries) > 1:
            self._take_many(entries)
        else:
            place, lane = entries.item()
            if lane != NO_LANE:
                runs = self._runs_of(lane)
                runs.starts.append(place)
                runs.before.append(self._tally.totals(place)[lane])
        self._tally.take(entries)

    def _take_many(self, entries: NDArray[np.void]) -> None:
        places, lanes = entries["place"].astype(np.int64), np.ascontiguousarray(entries["lane"])
        lengths = np.diff(places, append=places[-1])
        before = self._tally.totals(int(places[0]))
        for lane in np.flatnonzero(np.bincount(lanes[lanes != NO_LANE], minlength=LANES)).tolist():
            chosen = np.flatnonzero(lanes == lane)
            own = lengths[chosen]
            runs = self._runs_of(lane)
            runs.starts.frombytes(places[chosen].astype(np.uintc).tobytes())
            runs.before.frombytes((before[lane] + np.cumsum(own) - own).astype(np.uintc).tobytes())

    def cut(self, tally: LaneTally, place: int) -> None:
        """Only what lies before a place is left, which ``tally`` has counted."""
        self._tally = copy(tally)
        for lane, runs in enumerate(self._runs):
            at = 0 if runs is None else bisect_left(runs.starts, place)
            if runs is None or not at:
                self._runs[lane] = None
            else:
                del runs.starts[at:], runs.before[at:]

    def _runs_of(self, lane: int) -> _Runs:
        runs = self._runs[lane]
        if runs is None:
            runs = self._runs[lane] = _Runs()
        return runs

    def count(self, lane: int, first_place: int, end_place: int) -> int:
        """How many frames from ``first_place`` up to ``end_place`` are of the lane."""
        return max(0, self._below(lane, end_place) - self._below(lane, first_place))

    def next(self, lane: int, first_place: int, end_place: int) -> int | None:
        """The first place of the lane from ``first_place`` up to ``end_place``."""
        runs = self._runs[lane]
        if runs is None:
            return None
        starts = runs.starts
        at = bisect_right(starts, first_place)
        if at and first_place < self._run_end(runs, lane, at - 1):
            found = first_place
        elif at < len(starts):
            found = starts[at]
        else:
            return None
        return found if found < end_place else None

    def runs(
        self, lane: int, first_place: int, end_place: int, most: int, widest_gap: int = ENDLESS
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the lane's next frames lie, no more than ``most``, up to a gap of more than ``widest_gap`` frames:
        where runs of them begin, and where these end."""
        runs = self._runs[lane]
        if runs is None:
            return _NONE, _NONE
        at = max(0, bisect_right(runs.starts, first_place) - 1)
        passed = max(0, min(first_place, self._run_end(runs, lane, at)) - runs.starts[at])
        end = min(
            bisect_left(runs.before, runs.before[at] + passed + most, at + 1), bisect_left(runs.starts, end_place, at)
        )
        if end <= at:
            return _NONE, _NONE
        begins = np.frombuffer(runs.starts[at:end], np.uintc).astype(np.int64)
        ends = np.empty_like(begins)
        ends[:-1] = begins[:-1] + np.diff(np.frombuffer(runs.before[at:end], np.uintc).astype(np.int64))
        begins[0] += passed
        ends[-1] = min(self._run_end(runs, lane, end - 1), end_place)
        if begins[0] >= ends[0]:
            begins, ends = begins[1:], ends[1:]
        if not len(begins):
            return _NONE, _NONE
        ends[-1] -= max(0, int((ends - begins).sum()) - most)
        wide = begins[1:] - ends[:-1] > widest_gap
        if wide.any():
            last = int(wide.argmax()) + 1
            begins, ends = begins[:last], ends[:last]
        return begins, ends

    def first_other(self, lane: int, place: int) -> int:
        """``place``, or the end of the lane's run that it is in (beyond any place if that goes on)."""
        runs = self._runs[lane]
        at = bisect_right(runs.starts, place) - 1 if runs else -1
        return place if runs is None or at < 0 else max(place, self._run_end(runs, lane, at))

    def _below(self, lane: int, place: int) -> int:
        runs = self._runs[lane]
        at = bisect_left(runs.starts, place) - 1 if runs else -1
        if runs is None or at < 0:
            return 0
        return runs.before[at] + min(place, self._run_end(runs, lane, at)) - runs.starts[at]

    def _run_end(self, runs: _Runs, lane: int, at: int) -> int:
        behind = runs.before[at + 1] if at + 1 < len(runs.before) else self._total(lane)
        return runs.starts[at] + behind - runs.before[at]

    def _total(self, lane: int) -> int:
        """How many of the lane there are; no number is too large while its last run goes on."""
        return ENDLESS if lane == self._tally.last else self._tally.closed[lane]
