"""Worker: runs a handler over a queue with bounded concurrency, and settles each message by the handler's result."""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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


class Worker:
    """``take`` returns the next message, or ``None`` when no more are to be handled; ``settle`` settles messages."""

    def __init__(
        self,
        handler: Handler,
        concurrency: int,
        take: Callable[[], Awaitable[Any]],
        settle: Callable[[Order, Sequence[Any]], object],
    ) -> None:
        self._concurrency = check_concurrency(concurrency)
        if handler is None:
            raise InvalidConfiguration("handler is None; it must be a function")
        check_callable("handler", handler)
        self._handler = handler
        self.is_async = _is_async(handler)
        """Otherwise the handler runs in threads, which then settle messages."""
        self._take = take
        self._settle = settle
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, shutdown_timeout_s: float) -> None:
        """Handle messages until there are no more, and then finish those being handled."""
        if not self.is_async:
            self._pool = ThreadPoolExecutor(self._concurrency, thread_name_prefix="goqueue-worker")
        try:
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
        while (message := await self._take()) is not None:
            order = await self._handle(message)
            if order is not None and not message.settled:
                self._settle(order, [message])

    async def _handle(self, message: Any) -> Order | None:
        try:
            if self.is_async:
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
def stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
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
