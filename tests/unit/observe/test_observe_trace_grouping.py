"""Stretches of messages with the same story, against looking at each message."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.runs import Offsets, offsets_in, to_runs
from goqueue.observe import trace_grouping
from goqueue.observe.trace_event import ACK, CONSUME, CUT, DLQ, PUBLISH, TraceEvent, runs_of
from goqueue.observe.trace_grouping import Atlas, since_copied, since_published, survey

LAST = 40


@st.composite
def events(draw: st.DrawFn) -> TraceEvent:
    offsets = draw(st.sets(st.integers(0, LAST), min_size=1))
    form: Offsets = to_runs(sorted(offsets))
    if draw(st.booleans()):
        first = min(offsets)
        form = f"{first}:{sum(1 << (each - first) for each in offsets):x}"
    kind = draw(st.sampled_from([PUBLISH, CONSUME, ACK, CUT]))
    return TraceEvent(draw(st.sampled_from(["t/0", "u/3"])), draw(st.integers(0, 5)), kind, form)


def one_by_one(noted: list[TraceEvent], place: str, offset: int) -> tuple[TraceEvent, ...]:
    mine = [each for each in noted if each.place == place and offset in set(offsets_in(runs_of(each.offsets)))]
    # As they were noted, whatever the clock said.
    return since_published(tuple(mine))


@given(st.lists(events(), max_size=12))
def test_every_message_has_met_what_its_stretch_has_met(noted: list[TraceEvent]) -> None:
    atlas = survey(reversed(noted))
    assert atlas.is_complete
    for place in ("t/0", "u/3"):
        for offset in range(LAST + 3):
            assert atlas.events_at(place, offset) == one_by_one(noted, place, offset)
        there = atlas.stretches.get(place, [])
        assert all(each.first < each.end and each.events for each in there)
        assert all(one.end <= other.first for one, other in pairwise(there))


def test_nothing_is_known_of_other_places() -> None:
    assert Atlas().events_at("t/0", 1) == ()
    assert survey([TraceEvent("t/0", 1, PUBLISH, [5, 6])]).events_at("t/0", 4) == ()


def test_only_what_happened_since_it_was_published_counts() -> None:
    first, done, again = (TraceEvent("t/0", at, kind, [0, 10]) for at, kind in enumerate((PUBLISH, ACK, PUBLISH)))
    assert since_published((first, done, again)) == (again,)
    assert since_published((first, done)) == (first, done)
    assert since_published((done,)) == (done,)
    assert since_published(()) == ()


def test_what_a_crash_took_is_no_part_of_what_lies_there_now() -> None:
    old, done, cut, cut_too, new = (
        TraceEvent("t/0", at, kind, [0, 10]) for at, kind in enumerate((PUBLISH, ACK, CUT, CUT, CONSUME))
    )
    assert since_published((old, done, cut, cut_too)) == (old, done, cut, cut_too)
    assert since_published((old, done, cut, cut_too, new)) == (new,)
    assert since_copied((old, done, cut, cut_too, new)) == (new,)
    assert since_copied((old, done, cut)) == ()
    assert since_copied((old,)) == ()
    assert since_copied((new, done)) == (new, done)


def test_too_many_borders_leave_out_the_oldest() -> None:
    noted = [TraceEvent("t/0", at, PUBLISH, [at * 10, at * 10 + 5]) for at in range(50)]
    atlas = survey(reversed(noted), 20)
    assert not atlas.is_complete
    assert [each.first for each in atlas.stretches["t/0"]] == list(range(400, 500, 10))


def test_messages_of_which_copies_were_made_count_one_by_one() -> None:
    noted = [TraceEvent("t/0", at, DLQ, [at * 10, at * 10 + 10], to="d/0", first_copy=at * 10) for at in range(10)]
    assert len(survey(reversed(noted), 36).stretches["t/0"]) == 3


def test_many_events_of_many_stretches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_grouping, "MOST_MET", 1_000)
    wide = [TraceEvent("t/0", at, CONSUME, [0, 1_000]) for at in range(50)]
    narrow = [TraceEvent("t/0", 99, ACK, [number for offset in range(0, 1_000, 2) for number in (offset, offset + 1)])]
    atlas = survey(reversed(wide + narrow))
    assert not atlas.is_complete
    # The highest offsets are the latest messages.
    assert atlas.stretches["t/0"][-1].end == 1_000
    assert sum(len(each.events) for each in atlas.stretches["t/0"]) <= 1_000


def test_of_very_many_events_the_first_and_the_latest_are_told() -> None:
    noted = [TraceEvent("t/0", 0, PUBLISH, [0, 9])]
    noted += [TraceEvent("t/0", at, CONSUME, [0, 9]) for at in range(1, 3 * trace_grouping.MOST_OF_ONE)]
    (stretch,) = survey(reversed(noted)).stretches["t/0"]
    assert len(stretch.events) == trace_grouping.MOST_OF_ONE
    assert (stretch.events[0], stretch.events[-1]) == (noted[0], noted[-1])


def test_where_copies_were_put_is_known() -> None:
    noted = [
        TraceEvent("t/0", 1, DLQ, [4, 6], to="t.dlq/0", first_copy=10),
        TraceEvent("t/0", 2, DLQ, [0, 1], to="t.dlq/0", first_copy=3),
    ]
    atlas = survey(reversed(noted))
    assert [offset for offset in range(15) if atlas.is_copy("t.dlq/0", offset)] == [3, 10, 11]
    assert not atlas.is_copy("t/0", 4)
