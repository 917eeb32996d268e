"""The map of a segment's lanes does what a list of lanes does."""

from __future__ import annotations

import sys
from itertools import pairwise

import numpy as np
from doubles.lane_messages import ALL_LANES
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from goqueue.model.message import HIDDEN, Priority
from goqueue.storage.files.files import OsFiles
from goqueue.storage.log.index_file import LANE_ENTRY
from goqueue.storage.log.lane_index import LaneMap, LaneTally, are_sound, closing_entry, lane_column, sealed_entries
from goqueue.storage.log.open_files import OpenFiles
from goqueue.wire.batch import HEADER_COLUMNS, Lanes, lanes_of

lane_lists = st.lists(st.sampled_from([2, 2, 2, 0, 1, 3, 4, 5]), min_size=1, max_size=12)


def as_lanes(lanes: list[int]) -> Lanes:
    """As a batch has them."""
    if len(set(lanes)) == 1:
        return lanes[0]
    return np.array(lanes, np.uint8)


@settings(deadline=None)
@given(st.lists(lane_lists, max_size=12), st.booleans(), st.data())
def test_a_map_counts_and_finds_as_a_list_does(batches: list[list[int]], closed: bool, data: st.DataObject) -> None:
    model: list[int] = []
    built = LaneMap()
    tally = LaneTally()
    entries = np.empty(0, LANE_ENTRY)
    for batch in batches:
        entries = np.append(entries, add(built, tally, as_lanes(batch), len(model)))
        model += batch
    assert len(entries) == sum(place == 0 or model[place] != model[place - 1] for place in range(len(model)))
    if closed:
        tally.take(closing_entry(len(model)))
        built.take(closing_entry(len(model)))
        assert are_sound(np.append(entries, closing_entry(len(model))))
    assert tally.totals(len(model)) == [model.count(lane) for lane in ALL_LANES]
    for _ in range(8):
        first = data.draw(st.integers(0, len(model)))
        end = data.draw(st.integers(0, len(model)))
        most = data.draw(st.integers(0, 10))
        gap = data.draw(st.integers(0, 5))
        lane = data.draw(st.sampled_from(ALL_LANES))
        wanted = [place for place in range(first, end) if model[place] == lane]
        assert built.count(lane, first, end) == len(wanted)
        assert built.next(lane, first, end) == (wanted[0] if wanted else None)
        runs = pairs_of(*built.runs(lane, first, end, most))
        assert [place for start, until in runs for place in range(start, until)] == wanted[:most]
        assert all(until < start for (_, until), (start, _) in pairwise(runs))
        near = pairs_of(*built.runs(lane, first, end, most, gap))
        assert near == runs[: len(near)]
        assert all(start - until <= gap for (_, until), (start, _) in pairwise(near))
        assert len(near) == len(runs) or runs[len(near)][0] - near[-1][1] > gap
        others = [place for place in range(first, len(model)) if model[place] != lane]
        assert min(built.first_other(lane, first), len(model)) == (others[0] if others else len(model))


def add(built: LaneMap, tally: LaneTally, lanes: Lanes, first_place: int) -> NDArray[np.void]:
    """Frames that follow those before; returns what the index file grows by."""
    changes = tally.changes(lanes, first_place)
    tally.take(changes)
    built.take(changes)
    return changes


def pairs_of(begins: NDArray[np.int64], ends: NDArray[np.int64]) -> list[tuple[int, int]]:
    return list(zip(begins.tolist(), ends.tolist(), strict=True))


@given(st.lists(lane_lists, min_size=1, max_size=12))
def test_a_tally_goes_on_from_any_entry(batches: list[list[int]]) -> None:
    whole, in_steps = LaneTally(), LaneTally()
    count = 0
    for batch in batches:
        in_steps.take(in_steps.changes(as_lanes(batch), count))
        count += len(batch)
    lanes = np.array([lane for batch in batches for lane in batch], np.uint8)
    whole.take(whole.changes(lanes, 0))
    assert (whole.entries, whole.checksum, whole.last) == (in_steps.entries, in_steps.checksum, in_steps.last)
    assert whole.totals(count) == in_steps.totals(count)
    assert not whole.is_closed
    whole.take(closing_entry(count))
    assert whole.is_closed
    assert whole.totals(0) == in_steps.totals(count)


@settings(deadline=None)
@given(lane_lists, st.integers(1, 12))
def test_a_map_that_is_cut_is_that_of_the_frames_that_are_left(lanes: list[int], place: int) -> None:
    cut, left = LaneMap(), LaneMap()
    add(cut, LaneTally(), np.array(lanes, np.uint8), 0)
    tally = LaneTally()
    add(left, tally, np.array(lanes[:place], np.uint8), 0)
    cut.cut(tally, place)
    for lane in ALL_LANES:
        assert [each.tolist() for each in cut.runs(lane, 0, 99, 99)] == [
            each.tolist() for each in left.runs(lane, 0, 99, 99)
        ]
    assert cut.size_bytes == left.size_bytes


def test_entries_that_no_segment_could_have_are_not_sound() -> None:
    right = sealed_entries(np.array([2, 2, 1, 5], np.uint8))
    assert are_sound(right)
    assert are_sound(sealed_entries(np.array([], np.uint8)))
    assert not are_sound(right[:0])
    assert not are_sound(right[:-1])
    assert not are_sound(right[1:])
    assert not are_sound(right[[0, 2, 1, 3]])
    strange = right.copy()
    strange["lane"][1] = HIDDEN + 1
    assert not are_sound(strange)


def test_a_priority_that_does_not_exist_counts_as_normal() -> None:
    columns = np.zeros(3, HEADER_COLUMNS)
    columns["priority"] = [0, 9, 200]
    assert lane_column(columns).tolist() == [0, Priority.NORMAL, Priority.NORMAL]
    assert lanes_of(columns["priority"][:1], columns["flags"][:1]) == 0


def test_a_segment_of_one_lane_takes_a_few_hundred_bytes() -> None:
    built = LaneMap()
    tally = LaneTally()
    for place in range(0, 10_000, 100):
        add(built, tally, Priority.NORMAL.value, place)
    runs = [each for each in built._runs if each is not None]
    assert len(runs) == 1
    parts = [built, built._runs, built._tally, built._tally.closed, runs[0], runs[0].starts, runs[0].before]
    assert sum(map(sys.getsizeof, parts)) <= built.size_bytes < 1_000


class _Holder:
    def __init__(self) -> None:
        self.has_map = True

    def forget_map(self) -> None:
        self.has_map = False


def test_maps_are_dropped_when_together_they_are_too_large() -> None:
    files = OpenFiles(OsFiles(), 30, max_lane_bytes=1_000)
    one, two, three = _Holder(), _Holder(), _Holder()
    files.lanes_kept(one, 400)
    files.lanes_kept(two, 400)
    files.lanes_used(one)
    files.lanes_kept(three, 400)
    assert [one.has_map, two.has_map, three.has_map] == [True, False, True]
    assert files.lane_bytes == 800
    files.lanes_kept(three, 1_001)
    assert [one.has_map, three.has_map] == [False, False]
    assert files.lane_bytes == 0
    files.lanes_kept(one, 10)
    files.lanes_dropped(one)
    files.lanes_dropped(one)
    assert files.lane_bytes == 0
