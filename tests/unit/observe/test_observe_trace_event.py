"""Events: which messages they cover, and which copies are of which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.runs import Offsets, offsets_in, packed, to_runs
from goqueue.observe.trace_event import (
    DLQ,
    TraceEvent,
    covers,
    extent,
    joined,
    place_name,
    runs_of,
    split_place,
)
from goqueue.observe.tracer import weight


def in_bits(offsets: set[int]) -> str:
    """In the packed form, however few there are."""
    first = min(offsets)
    return f"{first}:{sum(1 << (each - first) for each in offsets):x}"


sets = st.sets(st.integers(0, 300), min_size=1)


@given(sets, st.integers(0, 310), st.booleans())
def test_an_event_covers_its_offsets_in_either_form(offsets: set[int], offset: int, is_packed: bool) -> None:
    form: Offsets = in_bits(offsets) if is_packed else to_runs(sorted(offsets))
    assert covers(form, offset) is (offset in offsets)
    assert extent(form) == (min(offsets), max(offsets) + 1)
    assert runs_of(form) == to_runs(sorted(offsets))


@given(st.lists(sets, min_size=1, max_size=4))
def test_parts_are_joined(parts: list[set[int]]) -> None:
    apart = [part - set().union(*parts[:number]) for number, part in enumerate(parts)]
    forms: list[Offsets] = [
        in_bits(part) if number % 2 else to_runs(sorted(part)) for number, part in enumerate(apart) if part
    ]
    assert list(offsets_in(runs_of(joined(forms)))) == sorted(set().union(*parts))


def test_many_gaps_take_little_memory() -> None:
    alternating = joined([[number, number + 1] for number in range(0, 20_000, 2)])
    assert isinstance(alternating, str)
    event = TraceEvent("t/0", 1, "ack", alternating)
    assert weight(event) < 6_000


def test_few_messages_far_apart_take_what_they_take_and_not_what_lies_between() -> None:
    far_apart = [[number << 55, (number << 55) + 1] for number in range(100)]
    assert joined(far_apart) == [edge for run in far_apart for edge in run]


@given(sets.flatmap(lambda some: st.permutations(sorted(some))), st.integers(0, 1_000), st.booleans(), st.booleans())
def test_copies_and_their_originals_find_each_other(
    originals: list[int], first_copy: int, keeps_order: bool, is_packed: bool
) -> None:
    order = originals if keeps_order else []
    expected = originals if keeps_order else sorted(originals)
    runs: Offsets = in_bits(set(originals)) if is_packed else to_runs(sorted(originals))
    event = TraceEvent("t/0", 1, DLQ, runs, to="t.dlq/0", first_copy=first_copy, order=order)
    for number, original in enumerate(expected):
        assert event.copy_of(original) == first_copy + number
        assert event.original_of(first_copy + number) == original
    assert event.original_of(first_copy - 1) is None
    assert event.original_of(first_copy + len(expected)) is None


@pytest.mark.parametrize(("topic", "partition"), [("orders", 0), ("a.b-c_d", 4_095)])
def test_a_place_is_a_topic_and_a_number(topic: str, partition: int) -> None:
    assert split_place(place_name(topic, partition)) == (topic, partition)


def test_packed_offsets_are_what_the_queue_writes() -> None:
    assert covers(packed(7, 0b1010101010101010101), 7)
