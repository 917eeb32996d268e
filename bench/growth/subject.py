"""The broker that is measured: a process of its own, and a client in this one."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from bench.broker_process import BrokerProcess, broker_process
from bench.scratch import scratch_folder
from goqueue.client.async_client import AsyncClient

_Answer = TypeVar("_Answer")
SAMPLES = 25
"""Of what takes milliseconds."""
RESTARTS = 5
_MEMORY_SAMPLES = 5
_BETWEEN_MEMORY_S = 0.05
_WARM_UP = 3
_UNDER_WAY = 4
_CONNECT_MS = 60_000


class Subject:
    """A broker over one folder, which can be started again, and a client of it."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._process: AbstractContextManager[BrokerProcess]
        self.broker: BrokerProcess
        self.client: AsyncClient

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.run(self.client.close())
        finally:
            self._runner.close()
            self._process.__exit__(kind, error, at)

    def _start(self) -> None:
        self._process = broker_process(self._data, "--set", "topic.fsync=interval")
        self.broker = self._process.__enter__()
        self.client = self.run(self._connect())

    async def _connect(self) -> AsyncClient:
        return AsyncClient(self.broker.address, connect_timeout_ms=_CONNECT_MS, request_timeout_ms=_CONNECT_MS)

    def run(self, work: Coroutine[Any, Any, _Answer]) -> _Answer:
        return self._runner.run(work)

    def times(self, work: Callable[[], Awaitable[object]], samples: int = SAMPLES) -> list[float]:
        """Seconds of each of ``samples`` times that ``work`` was done, one behind the other."""
        return self.run(timed(work, samples))

    def restart_times(self, times: int = RESTARTS) -> list[float]:
        """Seconds from asking the broker to stop until it is ready again."""
        self.run(self.client.close())
        found = []
        for _ in range(times):
            began = time.perf_counter()
            self._process.__exit__(None, None, None)
            stopped = time.perf_counter() - began
            self._process = broker_process(self._data, "--set", "topic.fsync=interval")
            self.broker = self._process.__enter__()
            found.append(stopped + self.broker.ready_after_s)
        self.client = self.run(self._connect())
        return found

    def memory(self) -> list[float]:
        """What the broker has resident, in bytes, a few times."""
        found = []
        for _ in range(_MEMORY_SAMPLES):
            time.sleep(_BETWEEN_MEMORY_S)
            found.append(float(_resident_bytes(self.broker.process.pid)))
        return found


@contextmanager
def subject() -> Iterator[Subject]:
    """Over a fresh folder."""
    with scratch_folder() as folder, Subject(folder / "data") as found:
        yield found


async def timed(work: Callable[[], Awaitable[object]], samples: int) -> list[float]:
    """The first few times do not count: connections open, caches fill."""
    for _ in range(min(_WARM_UP, samples)):
        await work()
    # What came before is not the work's to collect.
    gc.collect()
    gc.freeze()
    found = []
    for _ in range(samples):
        began = time.perf_counter()
        await work()
        found.append(time.perf_counter() - began)
    return found


async def send_all(client: AsyncClient, topic: str, batches: Iterator[Sequence[Any]]) -> None:
    """Publish all of it, a few batches under way at a time."""
    async with client.producer(acks="leader") as producer:

        async def write() -> None:
            for batch in batches:
                await producer.send_many(topic, batch)

        await asyncio.gather(*(write() for _ in range(_UNDER_WAY)))


def _resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1_024
    raise RuntimeError(f"/proc/{pid}/status has no VmRSS")
