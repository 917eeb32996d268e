"""The asynchronous producer: single messages, and transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from goqueue.client.connection.config import ProducerConfig
from goqueue.client.connection.directory import Directory
from goqueue.client.messages.outgoing_message import Encoder
from goqueue.client.messages.serializers import Serializer, to_bytes
from goqueue.client.producer.outbox import Outbox, OutboxTerms
from goqueue.client.producer.producer_session import ProducerSession
from goqueue.client.producer.send_buffer import SendBuffer
from goqueue.client.producer.sender import AsyncSender
from goqueue.client.producer.sequences import PartitionSequence, ProducerIds
from goqueue.client.producer.transaction import AsyncTransaction
from goqueue.client.producer.transaction_block import TransactionBlock
from goqueue.client.producer.transactional import Transactional
from goqueue.model.errors import ClientClosed, InvalidRequest

if TYPE_CHECKING:
    from goqueue.client.connection.instants import Span


class AsyncProducer(AsyncSender):
    """Made by ``AsyncClient.producer``. At the end of its context it waits for every message that was sent."""

    def __init__(
        self,
        directory: Directory,
        config: ProducerConfig,
        serializer: Serializer = to_bytes,
        *,
        key_serializer: Serializer | None = None,
        transactional_id: str | None = None,
        transaction_timeout: Span | None = None,
        on_closed: Callable[[AsyncProducer], None] = lambda _: None,
    ) -> None:
        self._config = config
        self._buffer = SendBuffer(config.buffer_bytes, block=config.block)
        self._ids = ProducerIds(directory)
        encoder = Encoder(serializer, directory.config.max_message_bytes, key_serializer)
        terms = OutboxTerms(directory, config, encoder, self._buffer)
        self._outbox = Outbox(terms, self._sequence, self._check_open)
        self._transactional = Transactional(ProducerSession(terms, transactional_id, transaction_timeout))
        self._closing: asyncio.Task[None] | None = None
        self._on_closed = on_closed

    async def __aenter__(self) -> AsyncProducer:
        """With a transactional id it takes the id over at once: an open transaction of its predecessor holds up
        readers."""
        self._check_open()
        if self._transactional.name:
            await self._transactional.take_over()
            self._check_open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def buffered_bytes(self) -> int:
        """Bytes of messages that are not acknowledged yet."""
        return self._buffer.used_bytes

    @property
    def unsettled_messages(self) -> int:
        """Number of messages accepted and neither acknowledged nor failed."""
        return sum(outbox.unsettled_messages for outbox in self._outboxes())

    def _outboxes(self) -> list[Outbox]:
        transaction = self._transactional.open
        return [self._outbox] if transaction is None else [self._outbox, transaction._outbox]

    # Transactions

    def transaction(self) -> TransactionBlock:
        """``async with producer.transaction() as tx:`` commits at the end of the block if every message sent in it is
        stored; otherwise it aborts and raises. An exception in the block aborts and propagates."""
        self._check_open()
        return TransactionBlock(self.begin)

    async def begin(self, *, for_key: str = "") -> AsyncTransaction:
        """Begin a transaction without a block: end it with ``commit``, ``abort`` or ``prepare``. One at a time.

        ``for_key`` names the key under which ``client.commit_many`` is to commit it: it is aborted when other
        transactions have been committed under that key.
        """
        self._check_open()
        return await self._transactional.begin(for_key)

    # Flush and close

    async def flush(self) -> None:
        """Send everything now; return when all messages sent so far are stored or have failed."""
        await asyncio.gather(*(outbox.flush() for outbox in self._outboxes()))

    async def close(self) -> None:
        """``flush``, then accept no more messages. An open transaction is aborted; one being committed or prepared is
        waited for; one in doubt is aborted if it is not committed.

        Bounded by the delivery timeout; concurrent callers all wait for the end.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        # A cancelled caller does not cancel the messages: the client waits for this task as well.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(self._config.delivery_timeout_ms / 1_000):
                await asyncio.gather(self._transactional.close(), self._outbox.flush())
        except TimeoutError:
            pass
        finally:
            for outbox in self._outboxes():
                await outbox.give_up()
            await self._ids.close()
            self._on_closed(self)

    def _sequence(self, topic: str, number: int) -> PartitionSequence | None:
        return PartitionSequence(self._ids) if self._config.idempotent else None

    def _check_open(self) -> None:
        if self._closing is not None:
            raise ClientClosed("the producer is closed")

    def _check_sending(self) -> None:
        self._check_open()
        if self._transactional.name:
            raise InvalidRequest(
                f"the producer has the transactional id {self._transactional.name!r} and sends in transactions only: "
                "begin one, and send through it"
            )
