"""Worker: runs a handler over a queue with bounded concurrency, and settles each message by the handler's result."""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from goqueue.client.consumer.handler_result import Reject, Retry, order_for_outcome, to_seconds
from goqueue.client.consumer.settler import Order
from goqueue.client.messages.tracing import in_context_of
from goqueue.model.errors import InvalidConfiguration, InvalidRequest
from goqueue.model.logging import get_logger

log = get_logger(__name__)

Handler = Callable[[Any], Awaitable[None] | None]
"""Takes a message. A coroutine function runs on the loop, any other function in a thread."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)
STOPPING = "stopping: what is in hand is finished"
_MAX_CONCURRENCY = 10_000


@dataclass(frozen=True, slots=True)
class WorkSource:
    """The operations of a consumer that a worker needs."""

    use_threads: Callable[[], None]
    """Called before ``start`` when handlers run in threads, which then settle messages."""
    start: Callable[[int], Awaitable[None]]
    """Joins the group; the argument is how many messages are handled at once."""
    is_stream: Callable[[], bool]
    """Whether the group's mode is ``stream``; known once started."""
    next: Callable[[], Awaitable[Any]]
    """The next message, or ``None`` when the consumer is closed or takes nothing more."""
    settle: Callable[[Order, Sequence[Any]], object]
    stop_taking: Callable[[], None]
    close: Callable[[], Awaitable[None]]


async def run_handlers(
    source: WorkSource, handler: Handler, concurrency: int, shutdown_timeout_s: float, *, signals: bool
) -> None:
    """Run until a signal or until the consumer is closed; then finish messages being handled and leave the group."""
    check_concurrency(concurrency)
    if handler is None:
        raise InvalidConfiguration("handler is None; it must be a function")
    check_callable("handler", handler)
    worker = _Worker(source, handler, concurrency)
    with _stopping_on_signals(source.stop_taking) if signals else nullcontext():
        try:
            await worker.run(shutdown_timeout_s)
        finally:
            await source.close()


def check_callable(name: str, value: object) -> None:
    """Check before joining: with a handler that is not callable every message would fail."""
    if value is not None and not callable(value):
        raise InvalidConfiguration(f"{name} is {value!r}; it must be a function")


def check_concurrency(concurrency: int) -> int:
    if type(concurrency) is not int:
        raise InvalidRequest(f"concurrency is {concurrency!r}; it must be a whole number")
    if not 1 <= concurrency <= _MAX_CONCURRENCY:
        raise InvalidRequest(f"concurrency is {concurrency}; 1 to {_MAX_CONCURRENCY} are allowed")
    return concurrency


class _Worker:
    def __init__(self, source: WorkSource, handler: Handler, concurrency: int) -> None:
        self._source = source
        self._handler = handler
        self._concurrency = concurrency
        self._is_async = _is_async(handler)
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, shutdown_timeout_s: float) -> None:
        source = self._source
        if not self._is_async:
            source.use_threads()
            self._pool = ThreadPoolExecutor(self._concurrency, thread_name_prefix="goqueue-worker")
        try:
            await source.start(self._concurrency)
            if source.is_stream():
                raise InvalidRequest("a worker handles messages of a queue in any order; iterate over a stream")
            await self._work(shutdown_timeout_s)
        finally:
            if self._pool is not None:
                # A hanging thread is not waited for; its message is delivered to another member.
                self._pool.shutdown(wait=False, cancel_futures=True)

    async def _work(self, shutdown_timeout_s: float) -> None:
        working = {asyncio.create_task(self._take_and_handle()) for _ in range(self._concurrency)}
        try:
            await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            # The first task ends when no more messages come; the others finish their current message.
            _, late = await asyncio.wait(working, timeout=shutdown_timeout_s)
            if late:
                log.warning("handlers did not end in time; their messages are given back", handlers=len(late))
        finally:
            for task in working:
                task.cancel()
            outcomes = await asyncio.gather(*working, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def _take_and_handle(self) -> None:
        while (message := await self._source.next()) is not None:
            order = await self._handle(message)
            if order is not None and not message.settled:
                self._source.settle(order, [message])

    async def _handle(self, message: Any) -> Order | None:
        try:
            if self._is_async:
                with in_context_of(message):
                    await self._handler(message)  # type: ignore[misc]
            else:
                await asyncio.get_running_loop().run_in_executor(self._pool, self._handle_in_thread, message)
        except Exception as error:
            order = order_for_outcome(error)
            _log_handler_error(message, error, order)
            return order
        return order_for_outcome(None)

    def _handle_in_thread(self, message: Any) -> None:
        with in_context_of(message):
            self._handler(message)


def _log_handler_error(message: Any, error: Exception, order: Order | None) -> None:
    """Log a handler's error. ``Retry`` and ``Reject`` are decisions of the handler, not failures."""
    position = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "deliveries": message.deliveries,
    }
    match error:
        case Retry():
            after = {} if error.after is None else {"after_s": to_seconds(error.after)}
            reason = {"reason": error.reason} if error.reason else {}
            log.info("handler asks for another delivery", **position, **after, **reason)
        case Reject():
            log.warning("handler rejects a message", **position, reason=error.reason or "none given")
        case _:
            log.warning("handler failed", exc_info=error, **position, error=order.reason if order else str(error))


def _is_async(handler: Handler) -> bool:
    """True also for an object with a coroutine ``__call__``."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


@contextmanager
def _stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """The first signal stops; a second one has its usual effect."""
    loop = asyncio.get_running_loop()
    taken: list[signal.Signals] = []

    def give_back() -> None:
        while taken:
            loop.remove_signal_handler(taken.pop())

    def stopped() -> None:
        give_back()
        stop()
        log.info(STOPPING)

    try:
        for each in SIGNALS:
            loop.add_signal_handler(each, stopped)
            taken.append(each)
    except (NotImplementedError, RuntimeError, ValueError):
        # Not in the main thread: the program itself has to stop the worker.
        pass
    try:
        yield
    finally:
        give_back()
