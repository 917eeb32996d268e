"""The synchronous consumer."""

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
from goqueue.client.connection.loop_thread import BlockingFace, LoopThread, blocking
from goqueue.client.consumer.consumer import AsyncConsumer
from goqueue.client.consumer.delivery import ReceivedMessage, claims_of
from goqueue.client.consumer.handler_result import to_nack, to_reject
from goqueue.client.consumer.rebalance import OnPartitions
from goqueue.client.consumer.settler import ACK, Order
from goqueue.client.consumer.stream_source import TopicPartition
from goqueue.client.consumer.worker import SIGNALS, STOPPING, Handler
from goqueue.model.logging import get_logger

log = get_logger(__name__)


class Consumer(BlockingFace[AsyncConsumer]):
    """Made by ``Client.consumer``: ``AsyncConsumer`` with blocking methods. Thread-safe.

    An ack, nack or reject is sent at once; ``.result()`` of its future waits until the broker has stored it.
    """

    def __init__(self, consumer: AsyncConsumer, thread: LoopThread) -> None:
        super().__init__(consumer, thread)
        self._buffer = consumer._buffer

    def __enter__(self) -> Self:
        self._thread.run(self._inner.start())
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if not self._thread.stopped:
            self._thread.run(self._inner.__aexit__(kind))

    def close(self) -> None:
        """Wait for pending acks, commit finished offsets and leave the group; unhandled messages are returned to it.

        With an ``instance_id`` the member stays in the group: a consumer that joins with the same id within the session
        timeout continues.
        """
        if not self._thread.stopped:
            self._thread.run(self._inner.close())

    @property
    def group(self) -> str:
        return self._inner.group

    @property
    def member_id(self) -> str:
        """Id of this member in the group; empty before it has joined."""
        return self._inner.member_id

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions assigned to this consumer."""
        return self._inner.assignment

    # Receiving

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        # No change of thread as long as records are buffered.
        for record in self._buffer.records:
            self._buffer.last = record
            return record
        record = self._thread.run(self._inner._next())
        if record is None:
            raise StopIteration
        return record

    poll = blocking(AsyncConsumer.poll)

    def batches(self, max_messages: int = 100) -> Generator[list[Any], None, None]:
        """``poll`` repeatedly, until the consumer is closed."""
        while self._inner._closing is None and (batch := self.poll(max_messages)):
            yield batch

    def run(
        self, handler: Handler, *, concurrency: int = 16, shutdown_timeout: Span = 30.0, signals: bool = True
    ) -> None:
        """Handle messages until SIGTERM or SIGINT, or until ``close``; see ``Client.worker``."""
        with _stopping_on_signals(self.stop_taking) if signals else nullcontext():
            self._thread.run(
                self._inner.run(handler, concurrency=concurrency, shutdown_timeout=shutdown_timeout, signals=False)
            )

    def stop_taking(self) -> None:
        """End iteration. Messages not yet handed out are returned to the group at once; others can be settled until
        ``close``."""
        self._thread.start(self._stop_taking())

    async def _stop_taking(self) -> None:
        self._inner.stop_taking()
        log.info(STOPPING)

    # Settling

    def ack(self, messages: Iterable[ReceivedMessage]) -> concurrent.futures.Future[None]:
        """Ack all of them in one request. If some were lost, the future fails and those messages have ``lost`` set."""
        return self._settle(ACK, messages)

    def nack(
        self, messages: Iterable[ReceivedMessage], delay: Span | None = None, reason: str = ""
    ) -> concurrent.futures.Future[None]:
        """Nack all of them in one request; see ``ReceivedMessage.nack``."""
        return self._settle(to_nack(delay, reason), messages)

    def reject(self, messages: Iterable[ReceivedMessage], reason: str = "") -> concurrent.futures.Future[None]:
        """Reject all of them in one request; see ``ReceivedMessage.reject``."""
        return self._settle(to_reject(reason), messages)

    def _settle(self, order: Order, messages: Iterable[ReceivedMessage]) -> concurrent.futures.Future[None]:
        claims = claims_of(messages)
        source = self._inner._queue_source
        if claims and source is not None:
            settled: Any = source.context.settle(order, claims)
            return settled  # type: ignore[no-any-return]
        done: concurrent.futures.Future[None] = concurrent.futures.Future()
        done.set_result(None)
        return done

    commit = blocking(AsyncConsumer.commit)

    def rewind(self) -> None:
        """Streams only: read again from the committed offsets, so that messages handed out since then come again."""
        self._thread.run(self._rewind())

    async def _rewind(self) -> None:
        self._inner.rewind()


def in_thread(callback: OnPartitions | None) -> OnPartitions | None:
    """Run a callback in another thread, so that it may use the client: the loop's own thread cannot."""
    if callback is None or inspect.iscoroutinefunction(callback):
        return callback

    async def call(topic_partitions: list[TopicPartition]) -> None:
        await asyncio.to_thread(callback, topic_partitions)

    return call


@contextmanager
def _stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """The first signal stops; a second one has its usual effect."""
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
