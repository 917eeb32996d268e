"""Pending delays against a plain dict, and what a dump may be."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from goqueue.delivery import delay_index as module
from goqueue.delivery.delay_index import PendingDelays
from goqueue.model.errors import CorruptData

dues = st.integers(0, 12) | st.integers(0, 2**63 - 1)
near = st.integers(-2, 60)


def numbers(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


class PendingMachine(RuleBasedStateMachine):
    @initialize(few=st.sampled_from([0, 3, 10_000]))
    def begin(self, few: int) -> None:
        self.changed = patch.multiple(module, _FEW_DONE=few, _SEARCH=4)
        self.changed.start()
        self.pending = PendingDelays()
        self.plain: dict[int, int] = {}
        self.end = 0

    def teardown(self) -> None:
        if hasattr(self, "changed"):
            self.changed.stop()

    @rule(skip=st.integers(0, 3), due_ns=dues)
    def add(self, skip: int, due_ns: int) -> None:
        offset = self.end + skip
        self.end = offset + 1
        self.pending.add(offset, due_ns)
        self.plain[offset] = due_ns

    @rule(steps=st.lists(st.tuples(st.integers(1, 3), dues), max_size=30))
    def add_many(self, steps: list[tuple[int, int]]) -> None:
        offsets = []
        for step, due_ns in steps:
            offsets.append(self.end + step - 1)
            self.end += step
            self.plain[offsets[-1]] = due_ns
        self.pending.add_many(numbers(offsets), numbers([due_ns for _, due_ns in steps]))

    @rule(offset=near)
    def remove(self, offset: int) -> None:
        assert self.pending.remove(offset) == (self.plain.pop(offset, None) is not None)

    @rule(offsets=st.lists(near, max_size=40))
    def remove_many(self, offsets: list[int]) -> None:
        self.pending.remove_many(numbers(offsets))
        for offset in offsets:
            self.plain.pop(offset, None)

    @rule(offset=near, due_ns=dues)
    def reschedule(self, offset: int, due_ns: int) -> None:
        assert self.pending.reschedule(offset, due_ns) == (offset in self.plain)
        if offset in self.plain:
            self.plain[offset] = due_ns

    @rule(end=near)
    def cut(self, end: int) -> None:
        self.pending.cut(end)
        self.plain = {offset: due_ns for offset, due_ns in self.plain.items() if offset < end}
        self.end = min(self.end, max(end, 0))

    @rule(as_of=st.integers(0, 2**62))
    def restart(self, as_of: int) -> None:
        known, self.pending = PendingDelays.load(self.pending.dump(as_of))
        assert known == as_of

    @rule(low=near, span=st.integers(-1, 40))
    def look_between(self, low: int, span: int) -> None:
        high = low + span
        assert self.pending.any_between(low, high) == any(low <= offset < high for offset in self.plain)

    @rule(most=st.integers(0, 30), after=st.none() | st.tuples(dues, near))
    def list_the_earliest(self, most: int, after: tuple[int, int] | None) -> None:
        expected = sorted((due_ns, offset) for offset, due_ns in self.plain.items())
        expected = [entry for entry in expected if after is None or entry > after][:most]
        assert self.pending.earliest(most, after) == expected

    @rule(asked=st.lists(st.tuples(near, dues), max_size=10))
    def ask_what_is_due(self, asked: list[tuple[int, int]]) -> None:
        asked += [(offset, self.plain.get(offset, -1)) for offset, _ in asked]
        answer = self.pending.is_due(numbers([each for each, _ in asked]), numbers([due_ns for _, due_ns in asked]))
        assert answer.tolist() == [self.plain.get(offset) == due_ns for offset, due_ns in asked]

    @invariant()
    def knows_the_same(self) -> None:
        assert len(self.pending) == len(self.plain)
        assert self.pending.first() == min(self.plain, default=None)
        assert dict(zip(*(column.tolist() for column in self.pending.entries()), strict=True)) == self.plain
        for offset in range(-1, self.end + 1):
            assert self.pending.due(offset) == self.plain.get(offset)


TestPendingAgainstADict = PendingMachine.TestCase
TestPendingAgainstADict.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_what_is_done_is_cleared_away_when_it_is_the_greater_part() -> None:
    pending = PendingDelays()
    pending.add_many(np.arange(10_000), np.arange(10_000))
    pending.remove_many(np.arange(5_000))
    assert len(pending._offsets) == 10_000
    assert pending.remove(9_999)
    assert len(pending._offsets) == len(pending) == 4_999
    assert pending.first() == 5_000


def test_the_next_page_goes_on_among_many_that_are_due_at_the_same_time() -> None:
    pending = PendingDelays()
    pending.add_many(np.arange(1_000), np.full(1_000, 7))
    page = pending.earliest(10)
    assert page == [(7, offset) for offset in range(10)]
    assert pending.earliest(2, page[-1]) == [(7, 10), (7, 11)]


@pytest.mark.parametrize(("offset", "due_ns"), [(4, 0), (5, 0), (6, -1)])
def test_offsets_ascend_and_due_times_are_not_negative(offset: int, due_ns: int) -> None:
    pending = PendingDelays()
    pending.add(5, 9)
    with pytest.raises(ValueError, match=f"{offset}"):
        pending.add(offset, due_ns)
    with pytest.raises(ValueError, match=f"{offset}"):
        pending.add_many(numbers([offset]), numbers([due_ns]))
    assert len(pending) == 1


@pytest.mark.parametrize("offsets", [[1, 1], [2, 1]])
def test_many_must_ascend_among_themselves(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="ascend"):
        PendingDelays().add_many(numbers(offsets), numbers([0, 0]))


def test_a_due_time_before_1970_is_refused() -> None:
    pending = PendingDelays()
    pending.add(5, 9)
    with pytest.raises(ValueError, match="before 1970"):
        pending.reschedule(5, -1)
    assert pending.due(5) == 9


def dumped() -> bytes:
    pending = PendingDelays()
    pending.add_many(numbers([3, 8]), numbers([50, 40]))
    return pending.dump(77)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "begin with"),
        (dumped()[:-1], "do not take"),
        (dumped() + b"\0", "do not take"),
        (b"\2" + dumped()[1:], "version 2"),
        (dumped()[:20] + dumped()[28:36] * 2 + dumped()[36:], "out of order"),
        (dumped()[:-1] + b"\xff", "out of order"),
    ],
)
def test_what_is_no_dump_is_corrupt(data: bytes, text: str) -> None:
    with pytest.raises(CorruptData, match=text):
        PendingDelays.load(data)
