from __future__ import annotations

import asyncio

import pytest
from behaviour.clock import MS, ManualClock
from doubles.loop import on_a_loop

from goqueue.broker.runtime import timer_service as clockwork_module
from goqueue.broker.runtime.named_timers import NamedTimers
from goqueue.broker.runtime.timer_service import TimerService


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.clockwork = TimerService(self.clock)
        self.rung: list[str] = []
        self.alarm = NamedTimers(self.clockwork, self.rung.extend)

    def at(self, milliseconds: int) -> int:
        return self.clock.now_ns() + milliseconds * MS

    def pass_time(self, milliseconds: int) -> None:
        self.clock.advance_ms(milliseconds)
        self.clockwork.ring()


@on_a_loop
async def test_it_rings_once_for_each_name_at_its_earliest_time() -> None:
    bench = Bench()
    bench.alarm.set("a", bench.at(200))
    bench.alarm.set("a", bench.at(100))
    bench.alarm.set("a", bench.at(300))
    bench.alarm.set("b", bench.at(150))
    bench.alarm.set("c", None)
    bench.pass_time(90)
    assert bench.rung == []
    bench.pass_time(10)
    assert bench.rung == ["a"]
    bench.pass_time(50)
    assert bench.rung == ["a", "b"]
    bench.pass_time(1_000)
    assert bench.rung == ["a", "b"]
    bench.clockwork.stop()


@on_a_loop
async def test_a_name_that_has_rung_can_be_set_again() -> None:
    bench = Bench()
    for _ in range(3):
        bench.alarm.set("a", bench.at(10))
        bench.pass_time(20)
    assert bench.rung == ["a", "a", "a"]
    bench.clockwork.stop()


@on_a_loop
async def test_whoever_is_rung_for_may_set_the_same_name_at_once() -> None:
    bench = Bench()
    rung: list[str] = []

    def ring(names: list[str]) -> None:
        rung.extend(names)
        alarm.set(names[0], bench.at(100))

    alarm = NamedTimers(bench.clockwork, ring)
    alarm.set("a", bench.at(0))
    bench.pass_time(10)
    bench.pass_time(50)
    assert rung == ["a"]
    bench.pass_time(50)
    assert rung == ["a", "a"]
    bench.clockwork.stop()


@on_a_loop
async def test_alarms_share_a_clockwork_and_not_their_names() -> None:
    bench = Bench()
    others: list[str] = []
    other = NamedTimers(bench.clockwork, others.extend)
    bench.alarm.set("a", bench.at(10))
    other.set("a", bench.at(500))
    other.set("b", bench.at(10))
    bench.pass_time(100)
    assert (bench.rung, others) == (["a"], ["b"])
    bench.pass_time(1_000)
    assert (bench.rung, others) == (["a"], ["b", "a"])
    bench.clockwork.stop()


@on_a_loop
async def test_it_rings_by_itself() -> None:
    clock = ManualClock()
    clockwork = TimerService(clock)
    rung = asyncio.Event()
    alarm = NamedTimers(clockwork, lambda _: rung.set())
    alarm.set("a", clock.now_ns())
    async with asyncio.timeout(60):
        await rung.wait()
    clockwork.stop()


@on_a_loop
async def test_it_goes_on_after_someone_failed_to_answer() -> None:
    bench = Bench()
    asked: list[str] = []

    def fail(names: list[str]) -> None:
        asked.extend(names)
        raise RuntimeError("not now")

    alarm = NamedTimers(bench.clockwork, fail)
    alarm.set("a", bench.at(0))
    alarm.set("b", bench.at(10))
    bench.alarm.set("c", bench.at(0))
    bench.pass_time(0)
    assert asked == ["a"] and bench.rung == ["c"]
    alarm.set("a", bench.at(20))
    bench.pass_time(50)
    assert asked == ["a", "b", "a"]
    bench.clockwork.stop()


@on_a_loop
async def test_times_that_are_set_over_and_over_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clockwork_module, "_STALE_ALLOWED", 500)
    bench = Bench()
    bench.clockwork._most = 500
    bench.alarm.set("b", bench.at(70_000))
    for number in range(6_000, 0, -1):
        bench.alarm.set("a", bench.at(10 * number))
    assert bench.clockwork._wheel.size < 1_100 and len(bench.alarm._keys) == 2
    bench.pass_time(10)
    assert bench.rung == ["a"]
    bench.pass_time(100_000)
    assert bench.rung == ["a", "b"]
    bench.clockwork.stop()


@on_a_loop
async def test_after_a_stop_nothing_rings_whatever_is_asked_for() -> None:
    bench = Bench()
    bench.clockwork.stop()
    bench.alarm.set("a", bench.at(0))
    bench.pass_time(10)
    assert bench.rung == [] and bench.clockwork._timer is None
