"""The loop under the simulation: virtual time, executors without threads, processes that can be killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from random import Random
from typing import Any

import pytest

from goqueue.simulation.processes import Killed, Process
from goqueue.simulation.virtual_loop import Deadlock, SimulatedLoop, Stuck


def run(work: Callable[[SimulatedLoop], Coroutine[Any, Any, Any]], seed: int = 1) -> Any:
    loop = SimulatedLoop(Random(seed))
    try:
        return loop.run_until_complete(work(loop))
    finally:
        loop.close()


def test_an_hour_passes_at_once() -> None:
    async def wait(loop: SimulatedLoop) -> float:
        await asyncio.sleep(3_600)
        return loop.time()

    assert run(wait) == 3_600


def test_waits_end_in_the_order_of_their_times() -> None:
    async def wait(loop: SimulatedLoop) -> list[int]:
        ended: list[int] = []

        async def one(seconds: int) -> None:
            await asyncio.sleep(seconds)
            ended.append(seconds)

        await asyncio.gather(*[one(seconds) for seconds in (3, 1, 2)])
        return ended

    assert run(wait) == [1, 2, 3]


def test_work_for_a_thread_is_done_on_the_loop_a_random_time_later() -> None:
    async def work(loop: SimulatedLoop) -> tuple[str, float]:
        return await asyncio.to_thread(lambda: "done"), loop.time()

    first, again, other = run(work, 1), run(work, 1), run(work, 2)
    assert first == again
    assert first[0] == other[0] == "done"
    assert 0 < first[1] != other[1] > 0


def test_an_error_of_a_thread_reaches_who_waits_for_it() -> None:
    async def work(loop: SimulatedLoop) -> None:
        await asyncio.to_thread(int, "x")

    with pytest.raises(ValueError, match="invalid literal"):
        run(work)


def test_a_wait_that_nothing_can_end_is_an_error() -> None:
    async def wait(loop: SimulatedLoop) -> None:
        await loop.create_future()

    with pytest.raises(Deadlock):
        run(wait)


def test_a_loop_that_turns_without_time_passing_is_an_error() -> None:
    async def turn(loop: SimulatedLoop) -> None:
        for _ in count():
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="without any time passing"):
        run(turn)


def test_a_run_without_an_end_is_an_error() -> None:
    async def go_on(loop: SimulatedLoop) -> None:
        for _ in count():
            await asyncio.sleep(100)

    with pytest.raises(Stuck, match="of virtual time"):
        run(go_on)


def test_a_killed_process_does_nothing_more_and_its_callers_are_told() -> None:
    async def kill(loop: SimulatedLoop) -> list[str]:
        said: list[str] = []
        tasks: list[asyncio.Future[None]] = []

        async def serve() -> None:
            asyncio.get_running_loop().call_later(2, said.append, "a timer")
            tasks.append(asyncio.ensure_future(later()))
            try:
                await asyncio.sleep(2)
                said.append("the operation")
            finally:
                asyncio.get_running_loop().call_soon(said.append, "what finally schedules")

        async def later() -> None:
            await asyncio.to_thread(said.append, "a thread")
            said.append("a task")

        process = Process("broker")
        answer = loop.run_in(process, serve)
        await asyncio.sleep(0)
        loop.kill(process)
        with pytest.raises(Killed):
            await answer
        with pytest.raises(Killed):
            await loop.run_in(process, serve)
        await asyncio.sleep(10)
        return said

    assert run(kill) == []


def test_who_is_outside_of_a_killed_process_goes_on() -> None:
    async def kill(loop: SimulatedLoop) -> list[str]:
        said: list[str] = []
        process = Process("broker")
        done = asyncio.Event()

        async def wait() -> None:
            await done.wait()
            said.append("outside")

        waiting = asyncio.ensure_future(wait())
        assert await loop.run_in(process, lambda: asyncio.sleep(1, "answer")) == "answer"
        loop.kill(process)
        done.set()
        await waiting
        return said

    assert run(kill) == ["outside"]
