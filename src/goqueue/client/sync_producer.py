"""The synchronous producer and its transactions."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from goqueue.client.connection.instants import Instant, Span
from goqueue.client.connection.loop_thread import LoopThread
from goqueue.client.consumer.delivery import ReceivedMessage
from goqueue.client.consumer.reader import Record
from goqueue.client.messages.outgoing_message import HeadersGiven, Sent
from goqueue.client.producer.producer import AsyncProducer
from goqueue.client.producer.send_futures import SyncSendFuture
from goqueue.client.producer.send_input import ThreadInput
from goqueue.client.producer.sender import AsyncSender
from goqueue.client.producer.transaction import AsyncTransaction
from goqueue.client.producer.transaction_block import TransactionBlock
from goqueue.model.message import Priority

if TYPE_CHECKING:
    from goqueue.client.sync_consumer import Consumer
    from goqueue.wire.batch import FrameRun


class Sender:
    """Sending methods shared by producers and transactions."""

    def __init__(self, sender: AsyncSender, thread: LoopThread) -> None:
        self._sender = sender
        self._thread = thread

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: HeadersGiven | None = None,
        partition: int | None = None,
        priority: Priority | str | int = Priority.NORMAL,
        timestamp: Instant | None = None,
        delay: Span | None = None,
        deliver_at: Instant | None = None,
        ttl: timedelta | None = None,
        dedup_id: str | None = None,
    ) -> concurrent.futures.Future[Sent]:
        """Send a message; ``.result()`` of the future waits until it is stored.

        Blocks while the buffer is full. Before the first message of a topic it also blocks until the number of
        partitions is known: no longer than the producer's ``delivery_timeout_ms`` nor the client's
        ``connect_timeout_ms``, then it raises ``BrokerUnavailable``.
        """
        return self._thread.run(
            self._send(
                topic,
                value,
                key=key,
                headers=headers,
                partition=partition,
                priority=priority,
                timestamp=timestamp,
                delay=delay,
                deliver_at=deliver_at,
                ttl=ttl,
                dedup_id=dedup_id,
            )
        )

    async def _send(self, topic: str, value: Any, **fields: Any) -> concurrent.futures.Future[Sent]:
        sent = await self._sender.send(topic, value, **fields)
        future = SyncSendFuture()
        sent.add_done_callback(lambda done: _copy_outcome(done, future))
        return future

    def send_many(self, topic: str, messages: Iterable[Any]) -> list[Sent]:
        """Send values or ``Outgoing`` messages, and wait until all are stored.

        An iterator runs in the calling thread and may use the client.
        """
        if isinstance(messages, list | tuple):
            return self._thread.run(self._sender.send_many(topic, messages))
        source = ThreadInput(messages)
        return self._thread.run(self._sender._send_input(topic, source), source.serve_until)


class Producer(Sender):
    """Made by ``Client.producer``. Thread-safe."""

    def __init__(self, producer: AsyncProducer, thread: LoopThread) -> None:
        super().__init__(producer, thread)
        self._producer = producer

    def __enter__(self) -> Self:
        self._thread.run(self._producer.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def transaction(self) -> SyncTransactionBlock:
        """``with producer.transaction() as tx:`` commits at the end of the block if every message sent in it is stored;
        otherwise it aborts and raises. An exception in the block aborts and propagates."""
        return SyncTransactionBlock(self)

    def begin(self, *, for_key: str = "") -> Transaction:
        """Begin a transaction without a block: end it with ``commit``, ``abort`` or ``prepare``. One at a time."""
        return _begun(TransactionBlock(partial(self._producer.begin, for_key=for_key)), self._thread)

    def flush(self) -> None:
        """Wait until every message sent so far is stored or has failed."""
        self._thread.run(self._producer.flush())

    def close(self) -> None:
        """``flush``, then accept no more messages; an open transaction is aborted. Safe to call twice, or after the
        client is closed."""
        if not self._thread.stopped:
            self._thread.run(self._producer.close())


class Transaction(Sender):
    """Made by ``Producer.begin`` and ``transaction``; see the methods of ``AsyncTransaction``."""

    def __init__(self, transaction: AsyncTransaction, thread: LoopThread) -> None:
        super().__init__(transaction, thread)
        self._transaction = transaction

    @property
    def id(self) -> str:
        return self._transaction.id

    def __repr__(self) -> str:
        return repr(self._transaction).replace("AsyncTransaction", "Transaction")

    def send_frames(self, topic: str, partition: int, run: FrameRun) -> None:
        """As ``AsyncTransaction.send_frames``."""
        self._thread.run(self._transaction.send_frames(topic, partition, run))

    def ack(self, messages: ReceivedMessage | Iterable[ReceivedMessage]) -> None:
        """Ack messages of a queue when the transaction commits; if it aborts they are delivered again."""
        self._thread.run(self._transaction.ack(messages))

    def commit_offsets(self, consumer: Consumer, record: Record | None = None) -> None:
        """Streams only: commit the offsets of everything handed out, or up to ``record``, when the transaction
        commits."""
        found: Any = getattr(consumer, "_consumer", consumer)
        self._thread.run(self._transaction.commit_offsets(found, record))

    def commit(self) -> None:
        """As ``AsyncTransaction.commit``."""
        self._thread.run(self._transaction.commit())

    def prepare(self) -> str:
        """Prepare the transaction, to be committed or aborted by the id that this returns."""
        return self._thread.run(self._transaction.prepare())

    def abort(self, reason: str = "") -> None:
        """As ``AsyncTransaction.abort``."""
        self._thread.run(self._transaction.abort(reason))


class SyncTransactionBlock:
    """``with``: begins, and commits or aborts at the end. A transaction ended inside the block is left alone."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._thread = producer._thread
        self._block = producer._producer.transaction()

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


def _copy_outcome(done: asyncio.Future[Sent], future: SyncSendFuture) -> None:
    if not future.set_running_or_notify_cancel():
        return
    error = done.exception()
    if error is None:
        future.set_result(done.result())
    else:
        future.log_failure = getattr(done, "log_failure", None)
        future.set_exception(error)
