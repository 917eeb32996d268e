"""The synchronous producer and its transactions."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from goqueue.client.connection.loop_thread import BlockingFace, LoopThread, blocking
from goqueue.client.consumer.reader import Record
from goqueue.client.messages.outgoing_message import SendOptions, Sent
from goqueue.client.producer.producer import AsyncProducer, TransactionBlock
from goqueue.client.producer.send_input import ThreadInput
from goqueue.client.producer.sender import AsyncSender
from goqueue.client.producer.transaction import AsyncTransaction

if TYPE_CHECKING:
    from goqueue.client.sync_consumer import Consumer


SenderInside = TypeVar("SenderInside", bound=AsyncSender)


class _SendFuture(concurrent.futures.Future[Sent]):
    """Logs a failure that is never read: that counts as read once the result or a callback was asked for."""

    log_failure: Callable[[BaseException], None] | None = None
    _was_read = False

    def result(self, timeout: float | None = None) -> Sent:
        self._was_read = True
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._was_read = True
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[concurrent.futures.Future[Sent]], Any]) -> None:
        self._was_read = True
        super().add_done_callback(fn)

    def __del__(self) -> None:
        if self._was_read or self.log_failure is None or not self.done() or self.cancelled():
            return
        error = super().exception(0)
        if error is not None:
            self.log_failure(error)


class Sender(BlockingFace[SenderInside]):
    """Sending methods shared by producers and transactions."""

    def send(self, topic: str, value: Any, **options: Unpack[SendOptions]) -> concurrent.futures.Future[Sent]:
        """Send a message; ``.result()`` of the future waits until it is stored. ``options`` are the fields of
        ``Outgoing`` beside the value.

        Blocks while the buffer is full. Before the first message of a topic it also blocks until the number of
        partitions is known: no longer than the producer's ``delivery_timeout_ms`` nor the client's
        ``connect_timeout_ms``, then it raises ``BrokerUnavailable``.
        """
        return self._thread.run(self._send(topic, value, options))

    async def _send(self, topic: str, value: Any, options: SendOptions) -> concurrent.futures.Future[Sent]:
        sent = await self._inner.send(topic, value, **options)
        future = _SendFuture()
        sent.add_done_callback(lambda done: _copy_outcome(done, future))
        return future

    def send_many(self, topic: str, messages: Iterable[Any]) -> list[Sent]:
        """Send values or ``Outgoing`` messages, and wait until all are stored.

        An iterator runs in the calling thread and may use the client.
        """
        if isinstance(messages, list | tuple):
            return self._thread.run(self._inner.send_many(topic, messages))
        source = ThreadInput(messages)
        return self._thread.run(self._inner._send_input(topic, source), source.serve_until)


class Producer(Sender[AsyncProducer]):
    """Made by ``Client.producer``. Thread-safe."""

    def __enter__(self) -> Self:
        self._thread.run(self._inner.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def transaction(self) -> SyncTransactionBlock:
        """``with producer.transaction() as tx:`` commits at the end of the block if every message sent in it is stored;
        otherwise it aborts and raises. An exception in the block aborts and propagates."""
        return SyncTransactionBlock(self)

    def begin(self, *, for_key: str = "") -> Transaction:
        """Begin a transaction without a block: end it with ``commit``, ``abort`` or ``prepare``. One at a time."""
        return _begun(TransactionBlock(partial(self._inner.begin, for_key=for_key)), self._thread)

    flush = blocking(AsyncProducer.flush)

    def close(self) -> None:
        """``flush``, then accept no more messages; an open transaction is aborted. Safe to call twice, or after the
        client is closed."""
        if not self._thread.stopped:
            self._thread.run(self._inner.close())


class Transaction(Sender[AsyncTransaction]):
    """Made by ``Producer.begin`` and ``transaction``; the methods of ``AsyncTransaction``, blocking."""

    @property
    def id(self) -> str:
        return self._inner.id

    def __repr__(self) -> str:
        return repr(self._inner).replace("AsyncTransaction", "Transaction")

    send_frames = blocking(AsyncTransaction.send_frames)
    ack = blocking(AsyncTransaction.ack)
    commit = blocking(AsyncTransaction.commit)
    prepare = blocking(AsyncTransaction.prepare)
    abort = blocking(AsyncTransaction.abort)

    def commit_offsets(self, consumer: Consumer, record: Record | None = None) -> None:
        """Streams only: commit the offsets of everything handed out, or up to ``record``, when the transaction
        commits."""
        found: Any = getattr(consumer, "_inner", consumer)
        self._thread.run(self._inner.commit_offsets(found, record))


class SyncTransactionBlock:
    """``with``: begins, and commits or aborts at the end. A transaction ended inside the block is left alone."""

    def __init__(self, producer: Producer) -> None:
        self._thread = producer._thread
        self._block = producer._inner.transaction()

    def __enter__(self) -> Transaction:
        return _begun(self._block, self._thread)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._thread.run(self._block.__aexit__(kind, error, trace))


def _begun(block: TransactionBlock, thread: LoopThread) -> Transaction:
    try:
        return Transaction(thread.run(block.__aenter__()), thread)
    except BaseException:
        # Interrupted just after it was begun, the caller has no object to end the transaction with.
        thread.start(block.call_off())
        raise


def _copy_outcome(done: asyncio.Future[Sent], future: _SendFuture) -> None:
    if not future.set_running_or_notify_cancel():
        return
    error = done.exception()
    if error is None:
        future.set_result(done.result())
    else:
        future.log_failure = getattr(done, "log_failure", None)
        future.set_exception(error)
