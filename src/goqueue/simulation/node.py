"""One simulated machine: a disk that outlives its broker, a clock, and the process that the broker runs in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import TypeVar

from goqueue.broker.broker import Broker
from goqueue.model.config import Config
from goqueue.simulation.disk import SimulatedDisk
from goqueue.simulation.ports import SimulatedClock, SimulatedRandomness
from goqueue.simulation.processes import Killed, Process
from goqueue.simulation.virtual_loop import SimulatedLoop

Result = TypeVar("Result")


class Node:
    """A broker that can be started, stopped, killed, and cut from its power; operations run in its process."""

    def __init__(self, name: str, config: Config, loop: SimulatedLoop, random: Random) -> None:
        self.name = name
        self.config = config
        self.loop = loop
        self.clock = SimulatedClock(loop)
        self.disk = SimulatedDisk()
        self.starts = 0
        self.calls_before = 0
        """Calls that earlier mounts of the disk have seen."""
        self._random = random
        self._randomness = SimulatedRandomness(random)
        self._process: Process | None = None
        self._broker: Broker | None = None
        self._up = asyncio.Event()

    @property
    def is_up(self) -> bool:
        return self._up.is_set()

    async def until_up(self) -> None:
        await self._up.wait()

    @property
    def broker(self) -> Broker:
        if self._broker is None:
            raise Killed(self.name)
        return self._broker

    @property
    def disk_calls(self) -> int:
        return self.calls_before + self.disk.calls

    async def start(self) -> None:
        self.starts += 1
        self.loop.network.restore_power(self.name)
        self._process = Process(f"{self.name}#{self.starts}", self.name)
        self._broker = Broker(self.config, files=self.disk, clock=self.clock, randomness=self._randomness)
        await self.loop.run_in(self._process, self._broker.start)
        self._up.set()

    async def run(self, operation: Callable[[Broker], Coroutine[object, object, Result]]) -> Result:
        """The result of an operation of the broker; ``Killed`` if its process ends before it has one."""
        if self._process is None:
            raise Killed(self.name)
        broker = self.broker
        return await self.loop.run_in(self._process, lambda: operation(broker))

    async def stop(self) -> None:
        """End the broker in good order."""
        self._up.clear()
        process, broker = self._process, self._broker
        if process is None or broker is None:
            return
        await self.loop.run_in(process, broker.close)
        self._end()
        self._mount(self.disk.remount())

    async def until_it_dies(self, calls: int, within_s: float) -> None:
        """Let the process die in the middle of what it does: at one of its next calls that change the disk, if there
        are as many in time. ``kill`` or ``cut_power`` must follow."""
        process, died = self._process, self.loop.create_future()

        def strike() -> None:
            if process is not None:
                process.is_dead = True
            if not died.done():
                died.set_result(None)

        self.disk.fail_at, self.disk.on_power_loss = self.disk.calls + calls, strike
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await died

    def kill(self) -> None:
        """End the process at once. All that it has written is there for the next one."""
        self._end()
        self._mount(self.disk.remount())

    def cut_power(self) -> None:
        """End the process, and lose some of what was not fsynced. Others hear nothing of that."""
        self.loop.network.lose_power(self.name)
        self._end()
        after = self.disk.crash(self._random)
        self.disk.dead = True
        after.quota = self.disk.quota
        self._mount(after)

    def _end(self) -> None:
        self._up.clear()
        process, self._process, self._broker = self._process, None, None
        if process is not None:
            self.disk.dead = True
            self.loop.kill(process)

    def _mount(self, disk: SimulatedDisk) -> None:
        self.calls_before += self.disk.calls
        self.disk = disk
