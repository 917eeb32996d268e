"""An event loop on virtual time, without threads and sockets, that can kill what runs in one process.

Time passes only while nothing is left to do, and then at once. Work for executors runs on the loop, a random virtual
time after it was handed over. Everything else happens in the order in which it was scheduled, as on a real loop.

A *process* is everything that was scheduled within its context: tasks, timers and callbacks. To kill it is to never
run any of these again, as ``kill -9`` does: no ``finally`` and no ``except`` of it has an effect on what goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from random import Random
from typing import Any, TypeVar

from goqueue.simulation.network.network import Listener, Network
from goqueue.simulation.processes import Killed, Process, process_of, runs_in_a_dead_process

Result = TypeVar("Result")

_FAST_S, _USUAL_S, _SLOW_S = 0.0005, 0.005, 0.08
_PRUNE_AT = 2_000
_MOST_ROUNDS = 200_000


class Deadlock(AssertionError):
    """Something waits, and nothing is scheduled that could end the wait."""


class Stuck(AssertionError):
    """Something goes on and on."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """All randomness is drawn from ``random``: the same seed schedules everything in the same way."""

    def __init__(self, random: Random, longest_s: float = 36_000.0) -> None:
        self._now_s = 0.0
        self._longest_s = longest_s
        self._random = random
        self.slowness = 1.0
        """By which factor executors take longer than usual: a slow disk."""
        super().__init__()
        self._selector = _LeapingSelector(self)
        self._clock_resolution = 1e-9
        self.set_task_factory(_make_task)  # type: ignore[arg-type]
        self.network = Network(self, Random(random.getrandbits(64)))

    # Time

    def time(self) -> float:
        return self._now_s

    def leap(self, seconds: float) -> None:
        self._now_s += seconds
        if self._now_s > self._longest_s:
            raise Stuck(f"no end after {self._longest_s} s of virtual time")

    def _process_events(self, event_list: list[object]) -> None:
        """There are no sockets."""

    def _write_to_self(self) -> None:
        """There is no thread that could wake the loop."""

    # Executors

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        done: asyncio.Future[Any] = self.create_future()
        self.call_later(self._executor_delay_s(), _run_inline, done, func, args)
        return done

    def _executor_delay_s(self) -> float:
        kind = self._random.random()
        longest_s = _FAST_S if kind < 0.7 else _USUAL_S if kind < 0.95 else _SLOW_S
        return self._random.random() * longest_s * self.slowness

    # Connections

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        **options: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """``host`` is the name of a simulated one."""
        _refuse(options)
        return await self.network.connect(protocol_factory, host or "", port or 0)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        **options: Any,
    ) -> Listener:
        """Listens at the host of the process that asks, whatever ``host`` says. Port 0: some that is free."""
        _refuse(options)
        return self.network.listen(protocol_factory, port or 0)

    def close(self) -> None:
        self.network.close()
        super().close()

    # Processes

    def run_in(self, process: Process, work: Callable[[], Coroutine[Any, Any, Result]]) -> asyncio.Future[Result]:
        """Start ``work`` in a process. The result is a future of the caller's, which fails with ``Killed`` if the
        process is killed meanwhile."""
        done: asyncio.Future[Result] = self.create_future()
        if process.is_dead:
            done.set_exception(Killed(process.name))
            return done
        process.callers[done] = None
        task = self.create_task(_started(work), context=process.context.copy())
        task.add_done_callback(lambda ended: _hand_over(ended, done, process), context=copy_context())
        return done

    def kill(self, process: Process) -> None:
        """Run nothing of a process from now on."""
        process.is_dead = True
        self.network.end_process(process)
        for handle in (*self._ready, *self._scheduled):  # type: ignore[attr-defined]
            if runs_in_a_dead_process(handle._context):
                handle.cancel()
        callers, process.callers = process.callers, {}
        for done in callers:
            if not done.done():
                done.set_exception(Killed(process.name))
        tasks, process.tasks = process.tasks, []
        for task in tasks:
            if not task.done():
                _bury(task, process)

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        handle = super().call_soon(callback, *args, context=context)
        if runs_in_a_dead_process(context):
            handle.cancel()
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        if runs_in_a_dead_process(context):
            handle.cancel()
        return handle


def _refuse(options: dict[str, Any]) -> None:
    if wanted := sorted(name for name, value in options.items() if value):
        raise ValueError(f"connections are not simulated with {', '.join(wanted)}")


async def _started(work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    return await work()


def _hand_over(ended: asyncio.Task[Result], done: asyncio.Future[Result], process: Process) -> None:
    process.callers.pop(done, None)
    problem = None if ended.cancelled() else ended.exception()
    if done.done():
        return
    if process.is_dead:
        # It died in the middle of this: what was to be answered is not known to anyone.
        done.set_exception(Killed(process.name))
    elif ended.cancelled():
        done.set_exception(asyncio.CancelledError())
    elif problem is not None:
        done.set_exception(problem)
    else:
        done.set_result(ended.result())


def _run_inline(done: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """A thread that has begun cannot be cancelled: the work is done also if the result is not wanted any more."""
    try:
        result = func(*args)
    except BaseException as error:
        if not done.cancelled():
            done.set_exception(error)
            # Who waits for it may have been killed, and never looks.
            done.exception()
    else:
        if not done.cancelled():
            done.set_result(result)


def _make_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], context: Context | None = None
) -> asyncio.Task[Any]:
    task = asyncio.Task(coroutine, loop=loop, context=context)
    process = process_of(context)
    if process is not None and process.is_dead:
        # Made by what a callback of a killed task does: it never starts.
        _bury(task, process)
    elif process is not None:
        if len(process.tasks) > _PRUNE_AT:
            process.tasks = [each for each in process.tasks if not each.done()]
        process.tasks.append(task)
    return task


def _bury(task: asyncio.Task[Any], process: Process) -> None:
    """Let go of what a task holds. What its ``finally`` clauses do meets a dead disk, and schedules nothing."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    if coroutine is not None:
        with suppress(BaseException):
            process.context.copy().run(coroutine.close)


class _LeapingSelector:
    """Instead of waiting for so long, it says that so long has passed."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._rounds_at_this_instant = 0

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise Deadlock("a wait can never end: nothing is scheduled any more")
        if timeout > 0:
            self._rounds_at_this_instant = 0
            self._loop.leap(timeout)
        elif (rounds := self._rounds_at_this_instant + 1) > _MOST_ROUNDS:
            raise Stuck(f"{rounds} rounds of the loop without any time passing")
        else:
            self._rounds_at_this_instant = rounds
        return []
