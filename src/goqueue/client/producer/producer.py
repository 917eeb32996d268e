"""The asynchronous producer: single messages, and transactions, one at a time."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from goqueue.client.connection.config import ProducerConfig
from goqueue.client.connection.directory import Directory
from goqueue.client.connection.instants import Span
from goqueue.client.messages.outgoing_message import Encoder
from goqueue.client.messages.serializers import Serializer, to_bytes
from goqueue.client.producer.outbox import Outbox, OutboxTerms
from goqueue.client.producer.producer_session import ProducerSession
from goqueue.client.producer.send_buffer import SendBuffer
from goqueue.client.producer.sender import AsyncSender
from goqueue.client.producer.sequences import PartitionSequence, ProducerIds
from goqueue.client.producer.transaction import AsyncTransaction
from goqueue.client.producer.transaction_contents import TransactionContents
from goqueue.model.errors import ClientClosed, GoQueueError, InvalidRequest, TransactionConflict
from goqueue.wire.proto import goqueue_pb2 as pb


class TransactionBlock:
    """``async with``: begins, and commits or aborts at the end. A transaction ended inside the block is left alone.

    If a commit is cancelled, an abort is attempted; the broker refuses it if the transaction is committed.
    """

    def __init__(self, begin: Callable[[], Awaitable[AsyncTransaction]]) -> None:
        self._begin = begin
        self._transaction: AsyncTransaction | None = None

    async def __aenter__(self) -> AsyncTransaction:
        self._transaction = await self._begin()
        return self._transaction

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        transaction = self._transaction
        if transaction is None:
            return
        try:
            if error is None and transaction.is_open:
                await transaction.commit()
        except BaseException as failure:
            await self._call_off_after(failure)
            raise
        if error is not None:
            await self._call_off_after(error)

    async def _call_off_after(self, error: BaseException) -> None:
        """A transaction in doubt, because the broker did not answer, is left so that ``commit`` can be repeated."""
        if self._transaction is not None and (self._transaction.is_open or not isinstance(error, GoQueueError)):
            await self._transaction.call_off(f"{type(error).__name__}: {error}")

    async def call_off(self) -> None:
        """Abort a transaction whose caller was interrupted before it received the object."""
        if self._transaction is not None:
            await self._transaction.call_off()


class _Transactions:
    """The open transaction of a producer, and those that may still be open at the broker."""

    def __init__(self, session: ProducerSession) -> None:
        self._session = session
        self.open: AsyncTransaction | None = None
        self._in_doubt: set[AsyncTransaction] = set()
        self._is_closed = False
        self._begin_lock = asyncio.Lock()

    async def begin(self, for_key: str = "") -> AsyncTransaction:
        if not self._session.name:
            # With a transactional id the broker ends them when the producer is initialized again.
            await self._call_off_doubtful()
        async with self._begin_lock:
            if self._session.fenced is not None:
                raise self._session.fenced
            if self.open is not None:
                raise TransactionConflict(
                    f"the producer has transaction {self.open.id} open; end it first, or use another producer"
                )
            identity = await self._session.identity()
            if self._is_closed:
                raise ClientClosed("the producer is closed")
            # The broker learns of it with the first operation in it.
            made_id = f"{identity.producer_id}-{identity.epoch}-{secrets.token_hex(8)}"
            begin = pb.Begin(timeout_ms=self._session.timeout_ms, for_key=for_key)
            contents = TransactionContents(made_id, identity, begin)
            self.open = AsyncTransaction(self._session, contents, self._ended)
            return self.open

    def _ended(self, transaction: AsyncTransaction, in_doubt: bool) -> None:
        if self.open is transaction:
            self.open = None
        if in_doubt:
            self._in_doubt.add(transaction)
        else:
            self._in_doubt.discard(transaction)

    async def close(self) -> None:
        """Abort transactions that are open or in doubt; one that is being ended may finish."""
        self._is_closed = True
        if self.open is not None:
            await self.open.call_off()
        await self._call_off_doubtful()

    async def _call_off_doubtful(self) -> None:
        """A best effort, so that no reader waits for their remains at the broker."""
        left, self._in_doubt = self._in_doubt, set()
        for each in left:
            await each.call_off()


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
        self._session = ProducerSession(terms, transactional_id, transaction_timeout)
        self._transactions = _Transactions(self._session)
        self._closing: asyncio.Task[None] | None = None
        self._on_closed = on_closed

    async def __aenter__(self) -> AsyncProducer:
        """With a transactional id it takes the id over at once: an open transaction of its predecessor holds up
        readers."""
        self._check_open()
        if self._session.name:
            await self._session.identity()
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
        transaction = self._transactions.open
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
        return await self._transactions.begin(for_key)

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
                await asyncio.gather(self._transactions.close(), self._outbox.flush())
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
        if self._session.name:
            raise InvalidRequest(
                f"the producer has the transactional id {self._session.name!r} and sends in transactions only: "
                "begin one, and send through it"
            )
