"""A broker inside the test's process, on an event loop in a thread of its own; with a real socket if asked to."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from signal import Signals
from typing import Any, TypeVar

import uvicorn.server
import uvloop

from goqueue.api.server import HttpServer, bind
from goqueue.broker.broker import Broker
from goqueue.model.clock import Clock
from goqueue.model.config import Config, HttpConfig, LimitsConfig, StorageConfig, TraceConfig
from goqueue.storage.files.files import Files

T = TypeVar("T")
PATIENCE_S = 60.0


class _QuickAsyncio:
    """``asyncio`` as uvicorn sees it here, whose pauses are a tenth as long.

    A server that is told to stop notices at its next look, and looks ten times a second: with hundreds of brokers that
    would be minutes. Brokers in a process of their own stop in uvicorn's time.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / 10)


uvicorn.server.asyncio = _QuickAsyncio()  # type: ignore[assignment]


def config_for(
    path: Path,
    *,
    storage: dict[str, Any] | None = None,
    http: dict[str, Any] | None = None,
    limits: dict[str, Any] | None = None,
    trace: dict[str, Any] | None = None,
) -> Config:
    """Defaults, on ``path`` and a free port."""
    return Config(
        storage=replace(StorageConfig(path=str(path), min_free_bytes=0), **(storage or {})),
        http=replace(HttpConfig(port=0), **(http or {})),
        limits=replace(LimitsConfig(), **(limits or {})),
        trace=replace(TraceConfig(), **(trace or {})),
    )


class LoopThread:
    """An event loop that others can hand coroutines to."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.submit(work).result(PATIENCE_S)

    def close(self) -> None:
        self.run(_end_threads())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()


async def _end_threads() -> None:
    await asyncio.get_running_loop().shutdown_default_executor()


class Host:
    """Starts a broker, and a server in front of it; ``stop`` ends both in the order of ``goqueue serve``."""

    def __init__(
        self, config: Config, *, http: bool = False, files: Files | None = None, clock: Clock | None = None
    ) -> None:
        self.config = config
        self._http = http
        self._files = files
        self._clock = clock
        self.start()

    def start(self) -> None:
        self.thread = LoopThread()
        self.broker = Broker(self.config, files=self._files, clock=self._clock)
        try:
            self.thread.run(self.broker.start())
        except BaseException:
            self.thread.close()
            raise
        if self._http:
            self._listener: socket.socket = bind(self.config.http)
            self.port: int = self._listener.getsockname()[1]
            self.server = HttpServer(self.broker, self.config.http)
            # Not ``serve``, which wants the process's signals.
            self._serving = self.thread.submit(self.server._serve([self._listener]))
            self._sweeping = self.thread.submit(self.server._sweep())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def begin_stop(self) -> None:
        """What SIGTERM does."""
        if self._http:
            self.thread.run(_call(lambda: self.server._stop(Signals.SIGTERM)))
        else:
            self.thread.run(_call(self.broker.stop_accepting))

    def stop(self) -> None:
        if self._http:
            self.begin_stop()
            self._serving.result(PATIENCE_S)
            self._sweeping.cancel()
            self._listener.close()
        self.thread.run(self.broker.close())
        self.thread.close()

    def waiting_readers(self, topic: str, partition: int) -> int:
        return len(self.broker.topic(topic).partition(partition)._waiters)


async def _call(function: Any) -> None:
    function()
