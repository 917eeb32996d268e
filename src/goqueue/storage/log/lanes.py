"""Counting and finding the messages of a lane in a log, without reading what lies between them.

Ranges are ``[offset, limit)``. What lies below the log's start does not count, and ``limit`` may lie beyond the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from goqueue.model.logging import get_logger
from goqueue.model.message import HIDDEN
from goqueue.model.runs import Runs, add_run
from goqueue.storage.log.frame_slice import Slice
from goqueue.storage.log.index_file import read_positions
from goqueue.storage.log.lane_index import LaneMap, lane_column
from goqueue.storage.log.log import Log
from goqueue.storage.log.segment import Segment
from goqueue.wire.batch import FrameRun, select_frames
from goqueue.wire.frame import HEADER_SIZE

Places = NDArray[np.int64]

_WIDEST_GAP = 128 << 10
"""Bytes of log between two messages of a lane that are cheaper to read along than to read around."""
_MOST_PASSED_OVER = 1 << 20
"""Bytes that one read may take along in all."""
_REBUILD_BYTES = 4 << 20

log_lines = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LaneSlice:
    """Where the next messages of a lane lie. ``load`` may be called in a thread."""

    slice: Slice
    places: Places | None
    """Which frames of the slice are the lane's; ``None`` if all are."""
    next_offset: int
    """The offset just behind the last of them."""

    def __len__(self) -> int:
        return len(self.slice.positions if self.places is None else self.places)

    @property
    def size(self) -> int:
        """How many bytes are read for them."""
        return self.slice.size

    def load(self) -> FrameRun:
        """The lane's frames and no others."""
        run = self.slice.load()
        return run if self.places is None else select_frames(run, self.places)


def totals_in(segment: Segment) -> list[int]:
    """How many frames of each lane a segment has. Costs no more than the one index file."""
    if not segment.lanes.load(segment.size):
        rebuild(segment)
    return segment.lanes.totals(segment.count)


def map_of(segment: Segment) -> LaneMap:
    """Where the frames of each lane are. It may be evicted from memory after this call, so callers do not keep it."""
    segment.load_indexes()
    totals_in(segment)
    found = segment.lanes.map(segment.files().lanes, segment.count)
    return rebuild(segment) if found is None else found


def rebuild(segment: Segment) -> LaneMap:
    """Write a segment's index of lanes anew, by the headers of its frames."""
    log_lines.warning("index of lanes missing or damaged, rebuilding it from the log", segment=str(segment.log_path))
    segment.load_indexes()
    lanes = np.empty(segment.count, np.uint8)
    place = 0
    while place < segment.count:
        columns = segment.locate(place, _REBUILD_BYTES, segment.count, segment.count).load().columns()
        lanes[place : place + len(columns)] = lane_column(columns)
        place += len(columns)
    return segment.lanes.rebuild(segment.files().lanes, lanes, segment.size if segment.sealed else None)


def count(log: Log, lane: int, offset: int, limit: int) -> int:
    """How many messages of the lane there are."""
    found = 0
    for segment in _segments(log, offset, limit):
        if _is_whole(log, segment, offset, limit):
            found += totals_in(segment)[lane]
        elif totals_in(segment)[lane]:
            found += map_of(segment).count(lane, *_places(log, segment, offset, limit))
    return found


def counts(log: Log, offsets: Sequence[int], limit: int, most: int) -> list[int]:
    """How many messages each lane has from its own offset on; ``most`` stands for more."""
    found = [0] * len(offsets)
    for segment in _segments(log, min(offsets), limit):
        totals = totals_in(segment)
        is_whole = min(segment.below, log.end_offset) <= limit
        for lane, offset in enumerate(offsets):
            if not totals[lane] or found[lane] >= most or offset >= segment.below:
                continue
            offset = max(offset, log.start_offset)
            if offset <= segment.base and is_whole:
                found[lane] += totals[lane]
            else:
                # First the map: how many frames a sealed segment has is not known before its indexes are loaded.
                lane_map = map_of(segment)
                end_place = segment.count if is_whole else segment.place_of(limit)
                found[lane] += lane_map.count(lane, segment.place_of(offset), end_place)
    return [min(count, most) for count in found]


def visible(log: Log, offset: int, limit: int) -> int:
    """How many messages there are that a reader sees."""
    found = 0
    for segment in _segments(log, offset, limit):
        totals = totals_in(segment)
        if _is_whole(log, segment, offset, limit):
            found += sum(totals) - totals[HIDDEN]
        else:
            first, end = _places(log, segment, offset, limit)
            found += max(0, end - first)
            if totals[HIDDEN]:
                found -= map_of(segment).count(HIDDEN, first, end)
    return found


def first(log: Log, lane: int, offset: int, limit: int) -> int | None:
    """The offset of the first message of the lane."""
    for segment in _segments(log, offset, limit):
        if totals_in(segment)[lane]:
            place = map_of(segment).next(lane, *_places(log, segment, offset, limit))
            if place is not None:
                return segment.offset_of(place)
    return None


def runs(log: Log, lane: int, offset: int, limit: int) -> Runs:
    """All messages of the lane, as flat half-open runs of offsets."""
    found: Runs = []
    for segment in _segments(log, offset, limit):
        if totals_in(segment)[lane]:
            begins, ends = map_of(segment).runs(lane, *_places(log, segment, offset, limit), most=limit - offset)
            for place in _places_of_runs(begins, ends - begins).tolist():
                at = segment.offset_of(place)
                add_run(found, at, at + 1)
    return found


def next_visible(log: Log, offset: int, limit: int) -> int:
    """The offset of the first message that a reader sees; ``limit`` if there is none."""
    if max(log.special_end, log.active.base, log.start_offset) <= offset < log.end_offset:
        return min(offset, limit)
    for segment in _segments(log, offset, limit):
        place, end = _places(log, segment, offset, limit)
        if place < end and totals_in(segment)[HIDDEN]:
            place = map_of(segment).first_other(HIDDEN, place)
        if place < end:
            return segment.offset_of(place)
    return limit


def locate(log: Log, lane: int, offset: int, max_bytes: int, max_messages: int, limit: int) -> LaneSlice | None:
    """Where the next messages of the lane lie: at least one, else no more than the bounds, all from one segment.

    Those that lie close together are read at once. Behind a wide gap the caller has to ask again.
    """
    most = max(1, min(max_messages, max_bytes // HEADER_SIZE))
    for segment in _segments(log, offset, limit):
        if totals_in(segment)[lane]:
            places = _places(log, segment, offset, limit)
            begins, ends = map_of(segment).runs(lane, *places, most, _WIDEST_GAP // HEADER_SIZE)
            if len(begins):
                return _cluster(segment, begins, ends, max_bytes)
    return None


def _segments(log: Log, offset: int, limit: int) -> Iterator[Segment]:
    """Those that may hold something in the range."""
    limit = min(limit, log.end_offset)
    for at in range(log.segment_at(max(offset, log.start_offset)), len(log.segments)):
        if log.segments[at].base >= limit:
            return
        yield log.segments[at]


def _is_whole(log: Log, segment: Segment, offset: int, limit: int) -> bool:
    """Whether all of a segment is in the range."""
    return max(offset, log.start_offset) <= segment.base and min(segment.below, log.end_offset) <= limit


def _places(log: Log, segment: Segment, offset: int, limit: int) -> tuple[int, int]:
    """The places of a segment that are in the range."""
    first_place = segment.place_of(max(offset, log.start_offset))
    return first_place, segment.count if min(segment.below, log.end_offset) <= limit else segment.place_of(limit)


def _cluster(segment: Segment, begins: Places, ends: Places, max_bytes: int) -> LaneSlice:
    """As many of the runs' frames as may be read at once."""
    begin = int(begins[0])
    if len(begins) == 1:
        end = int(ends[0])
        only = segment.locate(begin, max_bytes, end - begin, end)
        return LaneSlice(only, None, segment.offset_of(begin + len(only.positions) - 1) + 1)
    files = segment.files()
    # More places between them than so many frames can be passed over: what follows is not even looked at.
    near = np.cumsum(begins[1:] - ends[:-1]) <= _MOST_PASSED_OVER // HEADER_SIZE
    last = int(np.count_nonzero(near))
    begins, ends = begins[: last + 1] - begin, ends[: last + 1] - begin
    count_read = int(ends[-1]) + 1
    positions = read_positions(files.positions, begin, min(count_read, segment.count - begin)).astype(np.int64)
    if len(positions) < count_read:
        positions = np.append(positions, segment.size)
    gaps = positions[begins[1:]] - positions[ends[:-1]]
    near = (gaps < _WIDEST_GAP) & (np.cumsum(gaps) <= _MOST_PASSED_OVER)
    last = len(near) if near.all() else int(near.argmin())
    begins, ends = begins[: last + 1], ends[: last + 1]
    places = _places_of_runs(begins, ends - begins)
    sizes = np.cumsum(positions[places + 1] - positions[places])
    places = places[: max(1, int(np.searchsorted(sizes, max_bytes, side="right")))]
    behind = int(places[-1]) + 1
    next_offset = segment.offset_of(begin + behind - 1) + 1
    found = segment.slice_at(begin, positions[: behind + 1], next_offset)
    return LaneSlice(found, places if len(places) < behind else None, next_offset)


def _places_of_runs(begins: Places, lengths: Places) -> Places:
    """Every place of runs that begin at ``begins``."""
    skipped = begins - (np.cumsum(lengths) - lengths)
    places: Places = np.arange(int(lengths.sum())) + np.repeat(skipped, lengths)
    return places
