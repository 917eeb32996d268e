"""Consuming without an event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Self

from goqueue.client.connection.instants import Span
from goqueue.client.connection.loop_thread import LoopThread
from goqueue.client.consumer.consumer import AsyncConsumer
from goqueue.client.consumer.delivery import ReceivedMessage, claims_of
from goqueue.client.consumer.handler_result import to_nack, to_reject
from goqueue.client.consumer.reader import Record
from goqueue.client.consumer.rebalance import OnPartitions
from goqueue.client.consumer.settler import ACK, Order
from goqueue.client.consumer.stream_source import TopicPartition
from goqueue.client.consumer.worker import SIGNALS, STOPPING, Handler
from goqueue.model.logging import get_logger

log = get_logger(__name__)


class Consumer:
    """Made by ``Client.consumer``: blocks where ``AsyncConsumer`` awaits. May be shared by threads.

    What is said about messages leaves at once; ``.result()`` of the future waits until the broker has kept it.
    """

    def __init__(self, consumer: AsyncConsumer, thread: LoopThread) -> None:
        self._consumer = consumer
        self._thread = thread
        self._intake = consumer._intake

    def __enter__(self) -> Self:
        self._thread.run(self._consumer.start())
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._consumer._all_finished = kind is None
        self.close()

    def close(self) -> None:
        """Wait until what was settled is kept, commit what is finished, and leave: the rest is given back.

        With an ``instance_id`` it is not left: whoever comes with the same one within the session timeout goes on.
        """
        if not self._thread.stopped:
            self._thread.run(self._consumer.close())

    @property
    def group(self) -> str:
        return self._consumer.group

    @property
    def member_id(self) -> str:
        """Who this is in the group; empty before it has joined."""
        return self._consumer.member_id

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that messages come from."""
        return self._consumer.assignment

    # Taking

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        # Without a change of threads, as long as there is something.
        for record in self._intake.records:
            self._intake.last = record
            return record
        record = self._thread.run(self._consumer._next())
        if record is None:
            raise StopIteration
        return record

    def poll(self, max_messages: int = 100, timeout: Span | None = None) -> list[Any]:
        """The next messages, as many as are there; waits for the first. None if the time is up, or at the end."""
        return self._thread.run(self._consumer.poll(max_messages, timeout))

    def batches(self, max_messages: int = 100) -> Generator[list[Any], None, None]:
        """``poll`` again and again, until the consumer is closed."""
        while self._consumer._closing is None and (batch := self.poll(max_messages)):
            yield batch

    def run(
        self, handler: Handler, *, concurrency: int = 16, shutdown_timeout: Span = 30.0, signals: bool = True
    ) -> None:
        """Handle messages until SIGTERM or SIGINT, or until ``close``; see ``Client.worker``."""
        with _stopping_on_signals(self.stop_taking) if signals else nullcontext():
            self._thread.run(
                self._consumer.run(handler, concurrency=concurrency, shutdown_timeout=shutdown_timeout, signals=False)
            )

    def stop_taking(self) -> None:
        """Iteration ends. What was not handed out is given back at once, the rest can be settled until ``close``."""
        self._thread.start(self._stop_taking())

    async def _stop_taking(self) -> None:
        self._consumer.stop_taking()
        log.info(STOPPING)

    # Settling

    def ack(self, messages: Iterable[ReceivedMessage]) -> concurrent.futures.Future[None]:
        """All of them in one request. If some were lost the future says so, and those messages do (``lost``)."""
        return self._settle(ACK, messages)

    def nack(
        self, messages: Iterable[ReceivedMessage], delay: Span | None = None, reason: str = ""
    ) -> concurrent.futures.Future[None]:
        return self._settle(to_nack(delay, reason), messages)

    def reject(self, messages: Iterable[ReceivedMessage], reason: str = "") -> concurrent.futures.Future[None]:
        return self._settle(to_reject(reason), messages)

    def _settle(self, order: Order, messages: Iterable[ReceivedMessage]) -> concurrent.futures.Future[None]:
        claims = claims_of(messages)
        side = self._consumer._queue_side
        if claims and side is not None:
            settled: Any = side.hand.settle(order, claims)
            return settled  # type: ignore[no-any-return]
        done: concurrent.futures.Future[None] = concurrent.futures.Future()
        done.set_result(None)
        return done

    def commit(self, record: Record | None = None) -> None:
        """Of a stream: everything that was handed out is done; or everything up to ``record``, in its partition."""
        self._thread.run(self._consumer.commit(record))

    def rewind(self) -> None:
        """Of a stream: read again from what is committed, everything that was handed out since included."""
        self._thread.run(self._rewind())

    async def _rewind(self) -> None:
        self._consumer.rewind()


def in_thread(callback: OnPartitions | None) -> OnPartitions | None:
    """So that a callback may use the client, which its loop's own thread cannot."""
    if callback is None or inspect.iscoroutinefunction(callback):
        return callback

    async def call(places: list[TopicPartition]) -> None:
        await asyncio.to_thread(callback, places)

    return call


@contextmanager
def _stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """The first signal stops; a second one does what it would have done without this."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[signal.Signals, Any] = {}

    def give_back() -> None:
        while before:
            signal.signal(*before.popitem())

    def stopped(*_: object) -> None:
        give_back()
        stop()

    for each in SIGNALS:
        before[each] = signal.signal(each, stopped)
    try:
        yield
    finally:
        give_back()
