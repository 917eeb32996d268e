"""The timer wheel against a plain set: years of virtual time, a clock that jumps, entries that come and are dropped."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from goqueue.delivery.wheel import TICK_NS, Entries, TimerWheel

SECOND = 10**9
DAY = 86_400 * SECOND
YEAR = 365 * DAY
# One turn of each level, and a tick or so around them.
TURNS = [256 * TICK_NS << shift for shift in (0, 6, 12, 18)]
spans = st.one_of(
    st.integers(0, 2 * TICK_NS),
    st.integers(0, 3 * SECOND),
    st.integers(0, 3 * DAY),
    st.integers(0, 12 * YEAR),
    st.builds(lambda turn, off: turn + off, st.sampled_from(TURNS), st.integers(-2 * TICK_NS, 2 * TICK_NS)),
)
delays = st.one_of(spans, spans, spans.map(lambda span: -span))


def due_tick(due_ns: int) -> int:
    return -(-due_ns // TICK_NS)


class WheelMachine(RuleBasedStateMachine):
    @initialize(now_ns=st.integers(50 * YEAR, 51 * YEAR), aligned=st.booleans())
    def begin(self, now_ns: int, aligned: bool) -> None:
        self.now_ns = now_ns - now_ns % (TICK_NS << 20) if aligned else now_ns
        self.wheel = TimerWheel(self.now_ns)
        self.waiting: set[tuple[int, int, int]] = set()
        self.made = 0

    def _new(self, delay_ns: int, owner: int) -> tuple[int, int, int]:
        self.made += 1
        entry = (self.now_ns + delay_ns, owner, self.made)
        self.waiting.add(entry)
        return entry

    @rule(delay_ns=delays, owner=st.integers(0, 3))
    def insert(self, delay_ns: int, owner: int) -> None:
        self.wheel.insert(*self._new(delay_ns, owner), self.now_ns)

    @rule(chosen=st.lists(delays, max_size=40))
    def insert_many(self, chosen: list[int]) -> None:
        entries = [self._new(delay_ns, number % 4) for number, delay_ns in enumerate(chosen)]
        self.wheel.insert_many(np.array(entries, np.int64).reshape(-1, 3), self.now_ns)

    @rule(passes_ns=spans)
    def let_time_pass(self, passes_ns: int) -> None:
        self.now_ns += passes_ns

    @rule(back_ns=spans)
    def set_the_clock_back(self, back_ns: int) -> None:
        self.now_ns = max(0, self.now_ns - back_ns)

    @rule()
    def advance(self) -> None:
        self._drain()

    @rule(steps=st.integers(1, 8))
    def sleep_until_something_is_due(self, steps: int) -> None:
        for _ in range(steps):
            following = self.wheel.next_due_ns()
            if following is None:
                return
            self.now_ns = max(self.now_ns, following)
            came = self._drain()
            again = self.wheel.next_due_ns()
            assert came or again is None or again > following, "it would wake again and again for nothing"

    @rule(divisor=st.integers(1, 4))
    def keep(self, divisor: int) -> None:
        shown: list[tuple[int, ...]] = []

        def is_wanted(entries: Entries) -> np.ndarray:
            shown.extend(map(tuple, entries.tolist()))
            return entries[:, 2] % divisor != 0

        self.wheel.keep(is_wanted)
        assert sorted(shown) == sorted(self.waiting)
        self.waiting = {entry for entry in self.waiting if entry[2] % divisor}

    def _drain(self) -> int:
        came = [tuple(row) for row in self.wheel.advance(self.now_ns).tolist()]
        assert all(due_ns <= self.now_ns for due_ns, _, _ in came)
        now = self.now_ns // TICK_NS
        assert came == sorted(entry for entry in self.waiting if due_tick(entry[0]) <= now)
        self.waiting.difference_update(came)
        return len(came)

    @invariant()
    def counts_and_knows_when_to_look_again(self) -> None:
        assert self.wheel.size == len(self.waiting)
        following = self.wheel.next_due_ns()
        if self.waiting:
            assert following is not None
            assert following <= due_tick(min(self.waiting)[0]) * TICK_NS
            assert following % TICK_NS == 0
        else:
            assert following is None

    def teardown(self) -> None:
        if hasattr(self, "wheel"):
            self.now_ns += 40 * YEAR
            self._drain()
            assert not self.wheel.size


TestWheelAgainstASet = WheelMachine.TestCase
TestWheelAgainstASet.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
