"""One timer for everything that happens at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from behaviour.clock import MS, ManualClock
from doubles.group_timers import Timers
from numpy.typing import NDArray

from goqueue.broker.runtime import timer_service as clockwork_module
from goqueue.broker.runtime.timer_service import Owner, TimerService
from goqueue.delivery.wheel import Entries, TimerWheel


class Someone:
    """An owner who keeps those that are wanted, and writes down what came."""

    def __init__(self, clockwork: TimerService) -> None:
        self.rung: list[int] = []
        self.wanted: set[int] | None = None
        self.number = clockwork.register(Owner(self.ring, self.wants, self.live))

    def ring(self, due: Entries) -> None:
        self.rung += due[:, 2].tolist()

    def wants(self, entries: Entries) -> NDArray[np.bool_]:
        return np.array([self.wanted is None or item in self.wanted for item in entries[:, 2].tolist()], np.bool_)

    def live(self) -> int:
        return 0 if self.wanted is None else len(self.wanted)


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = Timers()
        self.clockwork = TimerService(self.clock)
        self.someone = Someone(self.clockwork)

    def at(self, milliseconds: int) -> int:
        return self.clock.now_ns() + milliseconds * MS

    def set(self, milliseconds: int, item: int, whose: Someone | None = None) -> None:
        self.clockwork.set(self.at(milliseconds), (whose or self.someone).number, item)

    def pass_time(self, milliseconds: int, drift_ms: int = 0) -> None:
        """Let timers fire as they come; the wall clock goes along, and jumps by so much at the beginning."""
        self.clock.advance_ms(drift_ms)
        end_s = self.timers.now_s + milliseconds / 1_000
        while self.timers.waits_s and self.timers.now_s + self.timers.waits_s[0] <= end_s + 1e-9:
            self.clock.advance_ms(round(self.timers.waits_s[0] * 1_000))
            self.timers.fire_next()
        self.clock.advance_ms(round((end_s - self.timers.now_s) * 1_000))
        self.timers.now_s = end_s


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench()
    made.timers.install(monkeypatch)
    return made


def test_nothing_is_looked_at_while_nothing_waits(bench: Bench) -> None:
    assert bench.timers.waits_s == []
    bench.set(30, 1)
    bench.pass_time(100)
    assert bench.someone.rung == [1]
    assert bench.timers.waits_s == [], "it goes on looking although nothing waits"


def test_what_is_due_soon_comes_in_its_tick_and_never_early(bench: Bench) -> None:
    bench.set(25, 1)
    bench.pass_time(20)
    assert bench.someone.rung == []
    bench.pass_time(10)
    assert bench.someone.rung == [1]


def test_a_timer_is_set_for_whole_milliseconds_and_one_that_comes_early_is_set_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loops count in milliseconds: one that is asked for less comes at once, again and again until it is time."""
    looks: list[int] = []
    advance = TimerWheel.advance

    def noted(wheel: TimerWheel, now_ns: int) -> Entries:
        looks.append(now_ns)
        return advance(wheel, now_ns)

    monkeypatch.setattr(TimerWheel, "advance", noted)
    bench.clock.advance_to_tick()
    bench.set(10, 1)
    bench.clock._now_ns += 9 * MS + MS // 2
    bench.timers.fire_next()
    assert (bench.someone.rung, looks) == ([], []), "half a millisecond early"
    assert bench.timers.waits_s == pytest.approx([0.001])
    bench.clock._now_ns += MS // 2
    bench.timers.fire_next()
    assert (bench.someone.rung, len(looks)) == ([1], 1)
    assert bench.timers.waits_s == []


def test_one_timer_is_set_for_whatever_comes_first(bench: Bench) -> None:
    for milliseconds in (900, 500, 700, 100, 300):
        bench.set(milliseconds, milliseconds)
    assert bench.timers.waits_s == pytest.approx([0.1], abs=0.011)
    bench.pass_time(1_000)
    assert bench.someone.rung == [100, 300, 500, 700, 900]


def test_the_clock_is_looked_at_once_a_second_while_something_waits(bench: Bench) -> None:
    bench.set(3_600_000, 1)
    assert bench.timers.waits_s == [1.0]
    bench.pass_time(10_000)
    assert bench.timers.fired == 10 and bench.timers.waits_s == pytest.approx([1.0])


def test_a_clock_that_jumps_ahead_is_noticed_within_a_second(bench: Bench) -> None:
    bench.set(3_600_000, 1)
    bench.pass_time(1_000, drift_ms=3_600_000)
    assert bench.someone.rung == [1]


def test_a_clock_that_jumps_back_puts_off_what_waits_and_loses_nothing(bench: Bench) -> None:
    bench.set(50, 1)
    bench.pass_time(1_000, drift_ms=-60_000)
    assert bench.someone.rung == []
    bench.set(10, 2)
    bench.pass_time(1_000)
    assert bench.someone.rung == [2]
    bench.pass_time(60_000)
    assert bench.someone.rung == [2, 1]


def test_what_is_past_already_comes_at_once(bench: Bench) -> None:
    bench.set(-5_000, 1)
    assert bench.timers.waits_s == [0.0]
    bench.pass_time(0)
    assert bench.someone.rung == [1]


def test_an_owner_who_fails_takes_nothing_from_the_others(bench: Bench) -> None:
    first, last = bench.someone, Someone(bench.clockwork)

    def fail(_: Entries) -> None:
        raise RuntimeError("not now")

    failing = bench.clockwork.register(Owner(fail, first.wants, first.live))
    third = Someone(bench.clockwork)
    bench.clockwork.set(bench.at(10), failing, 0)
    for item, whose in enumerate((first, last, third)):
        bench.set(10, item, whose)
    bench.set(500, 7, last)
    bench.pass_time(100)
    assert (first.rung, last.rung, third.rung) == ([0], [1], [2])
    bench.pass_time(1_000)
    assert last.rung == [1, 7]


def test_what_an_owner_sets_while_it_is_rung_for_comes_as_well(bench: Bench) -> None:
    rung: list[int] = []

    def ring(due: Entries) -> None:
        rung.extend(due[:, 2].tolist())
        if len(rung) < 3:
            bench.clockwork.set(bench.at(0), number, len(rung))

    number = bench.clockwork.register(Owner(ring, bench.someone.wants, bench.someone.live))
    bench.clockwork.set(bench.at(0), number, 0)
    bench.pass_time(100)
    assert rung == [0, 1, 2] and bench.timers.waits_s == []


def test_times_of_one_who_has_gone_are_nobodys(bench: Bench) -> None:
    other = Someone(bench.clockwork)
    bench.set(10, 1)
    bench.set(10, 2, other)
    bench.clockwork.unregister(bench.someone.number)
    newcomer = Someone(bench.clockwork)
    bench.pass_time(100)
    assert (bench.someone.rung, other.rung, newcomer.rung) == ([], [2], [])
    bench.clockwork.unregister(bench.someone.number)


@pytest.mark.parametrize("at_once", [False, True])
def test_entries_of_no_use_any_more_are_thrown_out_and_the_others_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    monkeypatch.setattr(clockwork_module, "_STALE_ALLOWED", 100)
    bench.clockwork._most = 100
    other = Someone(bench.clockwork)
    bench.set(2_000_000, -1, other)
    other.wanted = {-1}
    most = 0
    for item in range(5_000):
        bench.someone.wanted = {item}
        if at_once:
            row = np.array([[bench.at(1_000_000 - item), bench.someone.number, item]], np.int64)
            bench.clockwork.set_many(row)
        else:
            bench.set(1_000_000 - item, item)
        most = max(most, bench.clockwork._wheel.size)
    assert most <= 2 * 2 + 2 * 100 + 1
    bench.clock.advance_ms(3_000_000)
    bench.clockwork.ring()
    assert 4_999 in bench.someone.rung and other.rung == [-1]


def test_entries_that_are_all_wanted_are_not_looked_through_again_and_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clockwork_module, "_STALE_ALLOWED", 100)
    bench.clockwork._most = 100
    looked: list[int] = []
    asked: Callable[[Entries], NDArray[np.bool_]] = bench.someone.wants
    bench.someone.wanted = set()

    def wants(entries: Entries) -> NDArray[np.bool_]:
        looked.append(len(entries))
        return asked(entries)

    number = bench.clockwork.register(Owner(bench.someone.ring, wants, bench.someone.live))
    for item in range(2_000):
        bench.someone.wanted.add(item)
        bench.clockwork.set(bench.at(10_000), number, item)
    assert not looked
    bench.clock.advance_ms(20_000)
    bench.clockwork.ring()
    assert len(bench.someone.rung) == 2_000


def test_after_a_stop_nothing_comes_whatever_is_asked_for(bench: Bench) -> None:
    bench.set(10, 1)
    bench.clockwork.stop()
    assert bench.timers.waits_s == []
    bench.set(0, 2)
    bench.clockwork.set_many(np.array([[bench.at(0), bench.someone.number, 3]], np.int64))
    assert bench.timers.waits_s == []
    bench.clockwork.stop()
