from __future__ import annotations

import asyncio

import pytest
from behaviour.clock import MS, ManualClock
from doubles.loop import on_a_loop

from goqueue.broker.alarm import Alarm


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.rung: list[str] = []
        self.alarm = Alarm(self.clock.now_ns, self.rung.extend)

    def at(self, milliseconds: int) -> int:
        return self.clock.now_ns() + milliseconds * MS


@on_a_loop
async def test_it_rings_once_for_each_key_at_its_earliest_time() -> None:
    bench = Bench()
    bench.alarm.set("a", bench.at(20))
    bench.alarm.set("a", bench.at(10))
    bench.alarm.set("a", bench.at(30))
    bench.alarm.set("b", bench.at(15))
    bench.alarm.set("c", None)
    bench.clock.advance_ms(9)
    bench.alarm.ring()
    assert bench.rung == []
    bench.clock.advance_ms(6)
    bench.alarm.ring()
    assert bench.rung == ["a", "b"]
    bench.clock.advance_ms(100)
    bench.alarm.ring()
    assert bench.rung == ["a", "b"]
    bench.alarm.stop()


@on_a_loop
async def test_it_rings_by_itself() -> None:
    bench = Bench()
    rung = asyncio.Event()
    alarm = Alarm(bench.clock.now_ns, lambda _: rung.set())
    alarm.set("a", bench.clock.now_ns())
    async with asyncio.timeout(5):
        await rung.wait()
    alarm.stop()


@on_a_loop
async def test_it_goes_on_after_someone_failed_to_answer() -> None:
    bench = Bench()

    def fail(_: list[str]) -> None:
        raise RuntimeError("not now")

    alarm = Alarm(bench.clock.now_ns, fail)
    alarm.set("a", bench.at(0))
    alarm.set("b", bench.at(10))
    with pytest.raises(RuntimeError):
        alarm.ring()
    assert alarm._timer is not None
    alarm.stop()


@on_a_loop
async def test_times_that_are_set_over_and_over_do_not_pile_up() -> None:
    bench = Bench()
    for number in range(20_000, 0, -1):
        bench.alarm.set("a", bench.at(number))
    assert len(bench.alarm._heap) < 2_000
    bench.alarm.stop()


@on_a_loop
async def test_after_a_stop_nothing_rings_whatever_is_asked_for() -> None:
    bench = Bench()
    bench.alarm.stop()
    bench.alarm.set("a", bench.at(0))
    bench.alarm.ring()
    assert bench.rung == [] and bench.alarm._timer is None
