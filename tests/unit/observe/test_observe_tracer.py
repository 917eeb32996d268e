"""Remembering events: bounds, sampling, and what is known while it is being written."""

from __future__ import annotations

import pytest

from goqueue.model.runs import Runs, offsets_in, size_of
from goqueue.observe import tracer as module
from goqueue.observe.trace_event import ACK, COMMITTED, FIRED, PUBLISH, TraceEvent, runs_of
from goqueue.observe.tracer import SAMPLE_BLOCK, Tracer


def event(number: int = 0, *, kind: str = PUBLISH, offsets: Runs | None = None, place: str = "t/0") -> TraceEvent:
    return TraceEvent(place, number, kind, [number, number + 1] if offsets is None else offsets)


def noted(tracer: Tracer, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        tracer.note(event(number))


def test_memory_holds_the_latest() -> None:
    tracer = Tracer(1.0, 100, keeps_pending=False)
    noted(tracer, 250)
    assert [each.at for each in tracer.recent] == list(range(150, 250))
    assert (tracer.events, tracer.pending) == (250, [])


def test_large_events_leave_room_for_fewer() -> None:
    tracer = Tracer(1.0, 100, keeps_pending=False)
    for number in range(100):
        tracer.note(event(number, offsets=list(range(0, 4_000, 2))))
    assert len(tracer.recent) < 10
    noted(tracer, 200, 100)
    assert len(tracer.recent) == 100
    tracer.note(event(300, offsets=list(range(100_000))))
    assert [each.at for each in tracer.recent] == [300]


def test_what_cannot_be_written_in_time_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PENDING", 5)
    tracer = Tracer(1.0, 100, keeps_pending=True)
    noted(tracer, 8)
    assert (len(tracer.pending), tracer.unwritten, tracer.events) == (5, 3, 8)
    assert tracer.take_pending().first == 0
    noted(tracer, 2, 8)
    assert (tracer.take_pending().first, tracer.unwritten) == (8, 3)


def test_what_waits_is_bounded_by_its_size_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PENDING", 10)
    tracer = Tracer(1.0, 100, keeps_pending=True)
    for number in range(4):
        tracer.note(event(number, offsets=list(range(2_000))))
    # A small one does not get in front of a large one that was not taken.
    tracer.note(event(4))
    assert ([each.at for each in tracer.pending], tracer.unwritten) == ([0], 4)


def test_what_memory_has_lost_before_it_was_written_is_still_known() -> None:
    tracer = Tracer(1.0, 100, keeps_pending=True)
    noted(tracer, 150)
    assert [each.at for each in tracer.in_memory().events] == list(range(150))
    taken = tracer.take_pending()
    assert (taken.first, len(taken.events)) == (0, 150)
    noted(tracer, 150, 150)
    known = tracer.in_memory()
    assert (known.first, [each.at for each in known.events]) == (0, list(range(300)))
    tracer.written()
    known = tracer.in_memory()
    assert (known.first, [each.at for each in known.events]) == (150, list(range(150, 300)))
    tracer.take_pending()
    tracer.written()
    known = tracer.in_memory()
    assert (known.first, [each.at for each in known.events]) == (200, list(range(200, 300)))


def test_nothing_is_sampled() -> None:
    tracer = Tracer(0.0, 100, keeps_pending=True)
    noted(tracer, 10)
    tracer.note(TraceEvent("t/0", 1, FIRED, [0, 1], to="t/0"))
    assert (tracer.is_on, tracer.events, list(tracer.recent)) == (False, 0, [])


@pytest.mark.parametrize("sampling", [0.1, 0.5, 0.9])
def test_about_the_share_that_is_wanted_is_sampled(sampling: float) -> None:
    tracer = Tracer(sampling, 10_000, keeps_pending=False)
    blocks = 2_000
    for first in range(0, blocks, 500):
        tracer.note(event(offsets=[first * SAMPLE_BLOCK, (first + 500) * SAMPLE_BLOCK]))
    share = sum(size_of(each.offsets) for each in tracer.recent) / (blocks * SAMPLE_BLOCK)
    assert abs(share - sampling) < 0.05


def test_of_a_message_all_events_are_kept_or_none() -> None:
    tracer = Tracer(0.4, 10_000, keeps_pending=False)
    end = 50 * SAMPLE_BLOCK
    for first in range(0, end, 700):
        tracer.note(event(1, offsets=[first, min(end, first + 700)]))
    tracer.note(event(2, kind=ACK, offsets=[number for offset in range(0, end, 3) for number in (offset, offset + 1)]))
    by_kind: dict[str, set[int]] = {PUBLISH: set(), ACK: set()}
    for each in tracer.recent:
        by_kind[each.event] |= set(offsets_in(runs_of(each.offsets)))
    assert by_kind[ACK] == {offset for offset in by_kind[PUBLISH] if offset % 3 == 0}
    assert 0 < len(by_kind[PUBLISH]) < end
    assert all(tracer.is_sampled("t/0", offset) for offset in by_kind[PUBLISH])


@pytest.mark.parametrize("in_order", [True, False])
def test_copies_of_sampled_messages_stay_theirs(in_order: bool) -> None:
    tracer = Tracer(0.5, 10_000, keeps_pending=False)
    originals = list(range(0, 20 * SAMPLE_BLOCK, 100))
    order = [] if in_order else [*originals[1::2], *originals[::2]]
    runs = [number for offset in originals for number in (offset, offset + 1)]
    tracer.note(TraceEvent("t/0", 1, FIRED, runs, to="t/0", first_copy=90_000, order=order))
    whole = dict(zip(order or originals, range(90_000, 90_000 + len(originals)), strict=True))
    kept = {offset: each.copy_of(offset) for each in tracer.recent for offset in offsets_in(runs_of(each.offsets))}
    assert kept == {offset: copy for offset, copy in whole.items() if tracer.is_sampled("t/0", offset)}
    assert 0 < len(kept) < len(whole)
    for each in tracer.recent:
        for offset in offsets_in(runs_of(each.offsets)):
            assert each.original_of(whole[offset]) == offset


@pytest.mark.parametrize("is_scattered", [False, True])
def test_an_event_of_very_many_is_kept_whole_at_little_cost(
    monkeypatch: pytest.MonkeyPatch, is_scattered: bool
) -> None:
    marked: list[int] = []
    monkeypatch.setattr(module, "_mark", lambda place, block: marked.append(block) or 0)
    tracer = Tracer(0.1, 10_000, keeps_pending=False)
    blocks = range(0, 5_000 * SAMPLE_BLOCK, SAMPLE_BLOCK)
    offsets = [edge for first in blocks for edge in (first, first + 1)] if is_scattered else [0, 1 << 30]
    tracer.note(event(kind=COMMITTED, offsets=offsets))
    assert (tracer.recent[-1].offsets, len(marked)) == (offsets, 0)
    tracer.note(event(kind=COMMITTED, offsets=[5, 1 << 20]))
    assert len(marked) == 1_024
