"""Acked offsets against a plain set."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.delivery import acked_offsets as module
from goqueue.delivery.acked_offsets import AckedDump, AckedOffsets
from goqueue.model.runs import add_run, offsets_in, to_bits, to_runs

Step = tuple[str, Any, int]
WINDOW = 1_000_000
MOST_BYTES = 128 << 10


class Plain:
    """The same, with a set of integers."""

    def __init__(self, prefix: int) -> None:
        self.prefix = prefix
        self.above: set[int] = set()

    def add(self, first: int, end: int) -> None:
        self.above.update(range(max(first, self.prefix), end))
        self._settle()

    def add_bits(self, first: int, bits: int) -> None:
        self.above |= {first + place for place in range(bits.bit_length()) if bits >> place & 1}
        self.above = {each for each in self.above if each >= self.prefix}
        self._settle()

    def add_others(self, first: int, end: int, runs: list[int]) -> None:
        self.above |= set(range(max(first, self.prefix), end)) - set(offsets_in(runs))
        self._settle()

    def reset(self, prefix: int) -> None:
        self.prefix, self.above = prefix, set()

    def cut(self, end: int) -> None:
        self.prefix = min(self.prefix, end)
        self.above = {each for each in self.above if self.prefix <= each < end}

    def _settle(self) -> None:
        while self.prefix in self.above:
            self.above.remove(self.prefix)
            self.prefix += 1

    def gaps(self, until: int) -> list[int]:
        return [each for each in range(self.prefix, until) if each not in self.above]


def flat(runs: list[tuple[int, int]]) -> list[int]:
    return [offset for first, end in runs for offset in range(first, end)]


def check(acked: AckedOffsets, plain: Plain, around: int) -> None:
    assert acked.prefix == plain.prefix
    assert acked.above == len(plain.above)
    assert acked.end == max(plain.above, default=plain.prefix - 1) + 1
    assert flat(list(acked.runs())) == sorted(plain.above)
    for offset in {around - 1, around, around + 1, plain.prefix, plain.prefix - 1, acked.end - 1, acked.end}:
        assert (offset in acked) == (offset < plain.prefix or offset in plain.above)


def every_so_many(first: int, count: int, step: int, width: int) -> list[int]:
    """Runs of a width, in steps; those that would touch are one."""
    runs: list[int] = []
    for place in range(count):
        add_run(runs, first + place * step, first + place * step + min(width, step))
    return runs


shapes = st.one_of(
    st.builds(every_so_many, st.integers(0, 3_000), st.integers(1, 60), st.integers(1, 40), st.integers(1, 20)),
    st.lists(st.integers(0, 3_200), min_size=1, max_size=40).map(lambda chosen: to_runs(sorted(set(chosen)))),
)
"""Few runs and many, narrow and wide, so that each way of adding them is taken."""

steps = st.lists(
    st.one_of(
        st.tuples(st.just("bits"), shapes, st.just(0)),
        st.tuples(st.just("others"), shapes, st.integers(0, 150)),
        st.tuples(st.just("add"), st.integers(0, 3_000), st.integers(0, 200)),
        st.tuples(st.just("comb"), st.integers(0, 3_000), st.integers(1, 400)),
        st.tuples(st.just("cut"), st.integers(0, 3_200), st.just(0)),
        st.tuples(st.just("reset"), st.integers(0, 3_200), st.just(0)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    max_size=30,
)


@pytest.mark.parametrize("few_runs", [2, 40, 2_048])
@pytest.mark.parametrize("wide", [False, True], ids=["near", "far apart"])
@given(start=st.integers(0, 50), script=steps)
@settings(max_examples=60, deadline=None)
def test_acked_offsets_are_a_set_of_offsets(few_runs: int, wide: bool, start: int, script: list[Step]) -> None:
    """With few runs allowed the bitmap comes early, so that every switch is met."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_FEW_RUNS", few_runs)
        if wide:
            # The window is a wide one soon, and what comes at once as well.
            patched.setattr(module, "_SMALL_BYTES", 128)
            patched.setattr(module, "_GROW_BYTES", 64)
            patched.setattr(module, "_WIDE", 500)
        acked, plain = AckedOffsets(start), Plain(start)
        for what, at, size in script:
            if what == "bits":
                first = at[0]
                bits = to_bits(at, first, at[-1] - first)
                acked.add_bits(first, bits)
                plain.add_bits(first, bits)
                at = first
            elif what == "others":
                first, end = max(0, at[0] - size), at[-1] + size
                acked.add_others(first, end, at)
                plain.add_others(first, end, at)
                at = end
            elif what == "add":
                acked.add(at, at + size)
                plain.add(at, at + size)
            elif what == "comb":
                for each in range(at, at + 2 * size, 2):
                    acked.add(each, each + 1)
                    plain.add(each, each + 1)
            elif what == "cut":
                acked.cut(at)
                plain.cut(at)
            elif what == "reset":
                acked.reset(at)
                plain.reset(at)
            else:
                packed = msgspec.json.encode(acked.dump())
                acked = AckedOffsets.load(msgspec.json.decode(packed, type=AckedDump))
            check(acked, plain, at)
        assert flat(list(acked.gaps(3_500))) == plain.gaps(3_500)
        for since in (0, plain.prefix, plain.prefix + 3, 1_000, 5_000):
            assert acked.above_from(since) == sum(each >= since for each in plain.above)


def held_bytes(acked: AckedOffsets) -> int:
    """Everything it keeps in memory."""
    held = [getattr(acked, name) for name in AckedOffsets.__slots__]
    return sys.getsizeof(acked) + sum(sys.getsizeof(each) for each in held)


def at_random() -> Iterable[int]:
    chosen = list(range(1, WINDOW, 3))
    Random(7).shuffle(chosen)
    return chosen


PATTERNS: dict[str, Callable[[], Iterable[int]]] = {
    "every second": lambda: range(1, WINDOW, 2),
    "every second from behind": lambda: range(WINDOW - 1, 0, -2),
    "every eighth": lambda: range(1, WINDOW, 8),
    "every 500th": lambda: range(1, WINDOW, 500),
    "at random": at_random,
    "two far apart": lambda: (1, WINDOW - 1),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_any_pattern_of_acks_over_a_million_costs_at_most_128_kb(name: str) -> None:
    begin = 12_345_677
    acked = AckedOffsets(begin)
    most = 0
    for place, offset in enumerate(PATTERNS[name]()):
        acked.add(begin + offset, begin + offset + 1)
        if place % 1_000 == 0:
            most = max(most, held_bytes(acked))
    assert max(most, held_bytes(acked)) <= MOST_BYTES


SPAN = 1_024
EVERY_FIFTH = to_bits(every_so_many(0, SPAN // 5, 5, 1), 0, SPAN)


@pytest.mark.parametrize("order", ["forwards", "backwards", "at random"])
@pytest.mark.parametrize("bits", [EVERY_FIFTH, (1 << SPAN) - 1 ^ EVERY_FIFTH, 1 << SPAN - 1 | 1], ids=["a", "b", "c"])
def test_leases_that_are_acked_bit_by_bit_over_a_million_cost_at_most_128_kb(order: str, bits: int) -> None:
    begin = 12_345_677
    acked = AckedOffsets(begin)
    places = list(range(1, WINDOW - SPAN, SPAN))
    if order == "backwards":
        places.reverse()
    elif order == "at random":
        Random(7).shuffle(places)
    most = 0
    for place in places:
        acked.add_bits(begin + place, bits)
        most = max(most, held_bytes(acked))
    assert most <= MOST_BYTES and acked.above == len(places) * bits.bit_count()


@pytest.mark.parametrize("lanes", [2, 400])
def test_a_lane_that_shares_a_million_offsets_with_others_costs_at_most_128_kb(lanes: int) -> None:
    """What others have counts as done, the lane's own is in flight."""
    acked = AckedOffsets()
    most = 0
    for first in range(0, WINDOW, 4_000):
        acked.add_others(first, first + 4_000, every_so_many(first, 4_000 // lanes, lanes, 1))
        most = max(most, held_bytes(acked))
    assert most <= MOST_BYTES
    assert acked.prefix == 0 and acked.above == WINDOW - WINDOW // lanes
    own = to_bits(every_so_many(0, 2_000 // lanes, lanes, 1), 0, 2_000)
    for first in range(0, WINDOW, 2_000):
        acked.add_bits(first, own)
    assert acked.prefix == WINDOW and not acked.above


def test_what_is_excepted_from_a_far_larger_range_costs_what_its_runs_cost() -> None:
    acked = AckedOffsets()
    acked.add_others(0, 10**12, every_so_many(10**6, 2_000, 10**8, 1))
    assert acked.prefix == 10**6 and acked.end == 10**12 and acked.above == 10**12 - 10**6 - 2_000
    assert held_bytes(acked) <= MOST_BYTES


def test_a_window_that_moves_on_costs_no_more_than_one_that_stands() -> None:
    """The prefix follows at the distance of a million, so that the bitmap is trimmed again and again."""
    acked = AckedOffsets()
    most = 0
    acked.add(1, WINDOW // 2)
    for each in range(WINDOW // 2, WINDOW, 2):
        acked.add(each, each + 1)
    for at in range(0, 300_000, 3_000):
        acked.add(at, at + 3_000)
        for each in range(WINDOW + at, WINDOW + at + 3_000, 2):
            acked.add(each, each + 1)
        most = max(most, held_bytes(acked))
    assert most <= MOST_BYTES


def test_a_window_far_wider_than_a_million_costs_what_its_runs_cost() -> None:
    acked = AckedOffsets()
    for each in range(5_000):
        acked.add(1 + each * 100_000, 2 + each * 100_000)
    assert acked.above == 5_000
    assert held_bytes(acked) < 200_000
    assert 4_999 * 100_000 + 1 in acked and 4_999 * 100_000 not in acked


def test_a_bitmap_goes_back_to_runs_when_its_window_becomes_too_wide() -> None:
    acked = AckedOffsets()
    for each in range(1, 10_000, 2):
        acked.add(each, each + 1)
    acked.add(1 << 40, (1 << 40) + 1)
    assert held_bytes(acked) < 200_000
    assert acked.above == 5_001
    assert 9_999 in acked and 1 << 40 in acked and 10_000 not in acked
