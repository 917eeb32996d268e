from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from goqueue.delivery.in_flight_batch import SPAN, InFlightBatch
from goqueue.model.runs import add_run, below, bits_to_runs, lowest, pairs, size_of, to_bits, to_runs

offsets = st.sets(st.integers(0, 1_023)).map(sorted)


def every(runs: list[int]) -> list[int]:
    return [offset for first, end in pairs(runs) for offset in range(first, end)]


@given(offsets)
def test_runs_hold_what_they_were_made_of(chosen: list[int]) -> None:
    runs = to_runs(chosen)
    assert every(runs) == chosen
    assert size_of(runs) == len(chosen)
    assert all(low < high for low, high in pairwise(runs))


@given(offsets, st.integers(0, 1 << 40))
def test_bits_and_runs_are_two_forms_of_one_thing(chosen: list[int], first: int) -> None:
    runs = to_runs(first + each for each in chosen)
    bits = to_bits(runs, first, SPAN)
    assert bits.bit_count() == len(chosen)
    assert bits_to_runs(first, bits) == runs


@given(offsets, st.integers(-100, 1_100), st.integers(0, 1_100))
def test_bits_leave_out_what_lies_outside(chosen: list[int], first: int, span: int) -> None:
    bits = to_bits(to_runs(chosen), first, span)
    assert every(bits_to_runs(first, bits)) == [each for each in chosen if first <= each < first + span]


def test_a_run_of_any_length_costs_no_more_than_the_span() -> None:
    assert to_bits([0, 1 << 62], 5, 8) == 0xFF
    assert to_bits([1 << 61, 1 << 62], 5, 8) == 0


@given(offsets, st.integers(0, 1_100))
def test_the_lowest_bits(chosen: list[int], count: int) -> None:
    bits = to_bits(to_runs(chosen), 0, SPAN)
    assert every(bits_to_runs(0, lowest(bits, count))) == chosen[:count]


@given(offsets, st.integers(0, 1_100))
def test_what_lies_below_a_limit(chosen: list[int], limit: int) -> None:
    assert every(below(to_runs(chosen), limit)) == [each for each in chosen if each < limit]


def test_runs_that_touch_are_joined_and_empty_ones_left_out() -> None:
    runs: list[int] = []
    for first, end in ((1, 3), (3, 5), (5, 5), (7, 8)):
        add_run(runs, first, end)
    assert runs == [1, 5, 7, 8]


@given(offsets, st.lists(st.tuples(st.integers(-50, 1_200), st.integers(1, 300)), max_size=6))
def test_a_batch_finds_its_own_among_runs_in_any_order(chosen: list[int], spans: list[tuple[int, int]]) -> None:
    bits = to_bits(to_runs(100 + each for each in chosen), 100, SPAN)
    batch = InFlightBatch(1, 100, bits, bits, 1, None, 0)
    runs = [edge for first, size in spans for edge in (first, first + size)]
    asked = set(every(runs))
    assert every(bits_to_runs(100, batch.among(runs))) == [100 + each for each in chosen if 100 + each in asked]
