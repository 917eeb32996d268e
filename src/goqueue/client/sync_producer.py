"""Sending without an event loop."""

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
from goqueue.client.producer.send_futures import SyncDelivery
from goqueue.client.producer.send_input import GivenElsewhere
from goqueue.client.producer.sender import AsyncSender
from goqueue.client.producer.transaction import AsyncTransaction
from goqueue.client.producer.transaction_block import TransactionBlock
from goqueue.model.message import Priority

if TYPE_CHECKING:
    from goqueue.client.sync_consumer import Consumer
    from goqueue.wire.batch import FrameRun


class Sender:
    """A producer, or a transaction of one."""

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
        """Hand a message over; ``.result()`` of the future waits until it is stored.

        Blocks for room in the buffer; and, before the first message of a topic, until a broker has told how many
        partitions it has: no longer than the producer's ``delivery_timeout_ms``, nor the client's
        ``connect_timeout_ms``, and raises ``BrokerUnavailable`` then.
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
        delivery = SyncDelivery()
        sent.add_done_callback(lambda done: _copy_outcome(done, delivery))
        return delivery

    def send_many(self, topic: str, messages: Iterable[Any]) -> list[Sent]:
        """Send values or ``Outgoing`` messages and wait for all of them.

        What is yet to be made is made in this thread, and may use the client.
        """
        if isinstance(messages, list | tuple):
            return self._thread.run(self._sender.send_many(topic, messages))
        given = GivenElsewhere(messages)
        return self._thread.run(self._sender._send_given(topic, given), given.make_until)


class Producer(Sender):
    """Made by ``Client.producer``. May be shared by threads."""

    def __init__(self, producer: AsyncProducer, thread: LoopThread) -> None:
        super().__init__(producer, thread)
        self._producer = producer

    def __enter__(self) -> Self:
        self._thread.run(self._producer.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def transaction(self) -> SyncTransactionBlock:
        """``with producer.transaction() as tx:`` commits when the block is left, if everything that was sent in it is
        stored; else it aborts, and raises. An exception that leaves the block aborts, and goes on."""
        return SyncTransactionBlock(self)

    def begin(self, *, for_key: str = "") -> Transaction:
        """The same without a block: whoever begins has to ``commit``, ``abort`` or ``prepare`` it. One at a time."""
        return _begun(TransactionBlock(partial(self._producer.begin, for_key=for_key)), self._thread)

    def flush(self) -> None:
        """Wait until everything that was sent is settled."""
        self._thread.run(self._producer.flush())

    def close(self) -> None:
        """``flush``, then take nothing more; a transaction that is open is aborted. Doing it twice, or after the
        client, does no harm."""
        if not self._thread.stopped:
            self._thread.run(self._producer.close())


class Transaction(Sender):
    """Made by ``Producer.begin`` and ``transaction``; each method as in ``AsyncTransaction``."""

    def __init__(self, transaction: AsyncTransaction, thread: LoopThread) -> None:
        super().__init__(transaction, thread)
        self._transaction = transaction

    @property
    def id(self) -> str:
        return self._transaction.id

    def __repr__(self) -> str:
        return repr(self._transaction).replace("AsyncTransaction", "Transaction")

    def send_frames(self, topic: str, partition: int, run: FrameRun) -> None:
        self._thread.run(self._transaction.send_frames(topic, partition, run))

    def ack(self, messages: ReceivedMessage | Iterable[ReceivedMessage]) -> None:
        """Messages of a queue are done when the transaction is committed; if it is aborted they come again."""
        self._thread.run(self._transaction.ack(messages))

    def commit_offsets(self, consumer: Consumer, record: Record | None = None) -> None:
        """Of a stream: the group goes on behind what was handed out, or ``record``, if the transaction is committed."""
        found: Any = getattr(consumer, "_consumer", consumer)
        self._thread.run(self._transaction.commit_offsets(found, record))

    def commit(self) -> None:
        self._thread.run(self._transaction.commit())

    def prepare(self) -> str:
        """Leave it to others how it ends; they need the id that this returns."""
        return self._thread.run(self._transaction.prepare())

    def abort(self, reason: str = "") -> None:
        self._thread.run(self._transaction.abort(reason))


class SyncTransactionBlock:
    """``with``: begins, and commits or aborts. What was ended inside is left alone."""

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
        # Who was interrupted a moment after it was begun has nothing to end it by.
        thread.start(block.call_off())
        raise


def _copy_outcome(done: asyncio.Future[Sent], delivery: SyncDelivery) -> None:
    if not delivery.set_running_or_notify_cancel():
        return
    error = done.exception()
    if error is None:
        delivery.set_result(done.result())
    else:
        delivery.tell = getattr(done, "tell", None)
        delivery.set_exception(error)
