"""An event loop in a thread of its own, for callers who have none."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from goqueue.model.errors import ClientClosed

Result = TypeVar("Result")


class LoopThread:
    """Takes coroutines from any thread. Nobody who waits here is left waiting when it stops.

    A process that forks keeps it; its child has the object and not the thread, so there it counts as stopped.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        # Taken again by the same thread if the collector closes an abandoned reader in the middle of a submit.
        self._submitting = threading.RLock()
        self.exiting = False
        self._stopping: concurrent.futures.Future[None] | None = None
        # A daemon, so that a program that forgets to close still ends; ``atexit`` finishes what is left.
        self._thread = threading.Thread(target=self._work, name="goqueue-client", daemon=True)
        self._thread.start()

    @property
    def stopped(self) -> bool:
        return self._stopping is not None or self._is_forked()

    @property
    def is_current(self) -> bool:
        """Whether whoever asks is on it."""
        return threading.current_thread() is self._thread

    def _is_forked(self) -> bool:
        return os.getpid() != self._pid

    def run(
        self,
        work: Coroutine[Any, Any, Result],
        meanwhile: Callable[[concurrent.futures.Future[Result]], None] = lambda _: None,
    ) -> Result:
        """Wait for the result, and do ``meanwhile`` first. If the caller is interrupted, so is the work."""
        self._refuse_own_thread(work)
        future = self._submit(work)
        if future is None:
            raise self._closed()
        try:
            meanwhile(future)
            return future.result()
        except concurrent.futures.CancelledError:
            raise self._closed() from None
        except BaseException:
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        """Have it done without waiting, from any thread. Nothing if the loop has stopped: that ended all work."""
        self._submit(work)

    def _submit(self, work: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result] | None:
        # Asked before the lock: in a child, a thread that is not there may hold it for ever.
        if not self._is_forked():
            with self._submitting:
                if self._stopping is None:
                    return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        return None

    def _closed(self) -> ClientClosed:
        if self._is_forked():
            return ClientClosed("made before a fork; make a client in the child")
        if self.exiting and threading.current_thread().daemon:
            # The program is ending and asks its daemons nothing; an error in one would only be noise.
            threading.Event().wait()
        return ClientClosed("the client is closed")

    def stop(self, last: Coroutine[Any, Any, None]) -> None:
        """Do ``last``, cancel whatever else still runs, and end the thread. The second to ask waits for the first."""
        self.begin_stop(last)
        if self._stopping is None:
            return
        try:
            self._stopping.result()
        except BaseException:
            self._stopping.cancel()
            raise
        finally:
            self._thread.join()

    def begin_stop(self, last: Coroutine[Any, Any, None]) -> None:
        """What ``stop`` does, without waiting for it."""
        self._refuse_own_thread(last)
        if self._is_forked():
            last.close()
            return
        with self._submitting:
            if self._stopping is None:
                self._stopping = asyncio.run_coroutine_threadsafe(self._wind_up(last), self._loop)
            else:
                last.close()

    async def _wind_up(self, last: Coroutine[Any, Any, None]) -> None:
        try:
            await last
        finally:
            # Also gRPC's own tasks, which end a moment after the channel that they belong to.
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self._loop.shutdown_asyncgens()
            self._loop.call_soon(self._loop.stop)

    def _work(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def _refuse_own_thread(self, work: Coroutine[Any, Any, object]) -> None:
        if self.is_current:
            work.close()
            raise RuntimeError("the synchronous client cannot be used from its own callbacks; use AsyncClient there")
