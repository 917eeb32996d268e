"""An event loop in a background thread, for the synchronous client."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from goqueue.client.connection.tasks import cancel
from goqueue.model.errors import ClientClosed

Result = TypeVar("Result")
Item = TypeVar("Item")
Inner = TypeVar("Inner")
Face = TypeVar("Face")
P = ParamSpec("P")


class LoopThread:
    """Runs coroutines for callers in any thread. Stopping it releases every waiting caller.

    In a child after a fork the object exists without its thread; there it counts as stopped.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        # Re-entrant: the garbage collector may close an abandoned reader in this thread in the middle of a submit.
        self._submit_lock = threading.RLock()
        self.exiting = False
        self._stopping: concurrent.futures.Future[None] | None = None
        # A daemon thread, so that a program that forgets to close still ends; ``atexit`` finishes the pending work.
        self._thread = threading.Thread(target=self._run_loop, name="goqueue-client", daemon=True)
        self._thread.start()

    @property
    def stopped(self) -> bool:
        return self._stopping is not None or self._is_forked()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def _is_forked(self) -> bool:
        return os.getpid() != self._pid

    def run(
        self,
        work: Coroutine[Any, Any, Result],
        meanwhile: Callable[[concurrent.futures.Future[Result]], None] = lambda _: None,
    ) -> Result:
        """Run ``meanwhile``, then wait for the result of ``work``, which is cancelled if the caller is interrupted."""
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
        """Run ``work`` without waiting, from any thread. Does nothing once the loop has stopped."""
        self._submit(work)

    def _submit(self, work: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result] | None:
        # Checked before the lock is taken: in a forked child, a thread that is gone may hold the lock for ever.
        if not self._is_forked():
            with self._submit_lock:
                if self._stopping is None:
                    return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        return None

    def _closed(self) -> ClientClosed:
        if self._is_forked():
            return ClientClosed("made before a fork; make a client in the child")
        if self.exiting and threading.current_thread().daemon:
            # The interpreter is exiting and does not wait for daemon threads; an error in one would only be noise.
            threading.Event().wait()
        return ClientClosed("the client is closed")

    def items_of(self, pages: AsyncGenerator[list[Item], None]) -> Generator[Item, None, None]:
        """The items of all pages, each page requested when the one before is used up."""

        async def next_page() -> list[Item] | None:
            return await anext(pages, None)

        while (page := self.run(next_page())) is not None:
            yield from page

    def stop(self, last: Coroutine[Any, Any, None]) -> None:
        """Run ``last``, cancel all other work, and end the thread. A second caller waits for the first."""
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
        """The same as ``stop`` without waiting."""
        self._refuse_own_thread(last)
        if self._is_forked():
            last.close()
            return
        with self._submit_lock:
            if self._stopping is None:
                self._stopping = asyncio.run_coroutine_threadsafe(self._shut_down(last), self._loop)
            else:
                last.close()

    async def _shut_down(self, last: Coroutine[Any, Any, None]) -> None:
        try:
            await last
        finally:
            # Includes gRPC's own tasks, which end shortly after their channel.
            await cancel(*(asyncio.all_tasks() - {asyncio.current_task()}))
            await self._loop.shutdown_asyncgens()
            self._loop.call_soon(self._loop.stop)

    def _run_loop(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def _refuse_own_thread(self, work: Coroutine[Any, Any, object]) -> None:
        if self.is_current:
            work.close()
            raise RuntimeError("the synchronous client cannot be used from its own callbacks; use AsyncClient there")


class BlockingFace(Generic[Inner]):
    """A synchronous object: an asynchronous one, and the thread in which it runs."""

    def __init__(self, inner: Inner, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread


def made_on_loop(
    make: Callable[Concatenate[Any, P], Inner], face_of: Callable[[Inner, LoopThread], Face]
) -> Callable[Concatenate[Any, P], Face]:
    """A method that makes an asynchronous object, as a method of a ``BlockingFace`` that makes a synchronous one."""

    @functools.wraps(make)
    def call(face: Any, /, *args: P.args, **kwargs: P.kwargs) -> Face:
        async def made() -> Inner:
            return make(face._inner, *args, **kwargs)

        return face_of(face._thread.run(made()), face._thread)

    return call


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Any, P], Result]:
    """A method of an asynchronous object as a method of its ``BlockingFace``, with the same signature."""

    @functools.wraps(method)
    def call(face: Any, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        result: Result = face._thread.run(method(face._inner, *args, **kwargs))
        return result

    return call
