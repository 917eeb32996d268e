"""Transactions of a producer, one at a time."""

from __future__ import annotations

import asyncio
import secrets

from goqueue.client.producer.producer_session import ProducerSession
from goqueue.client.producer.transaction import AsyncTransaction
from goqueue.client.producer.transaction_contents import TransactionContents
from goqueue.model.errors import ClientClosed, TransactionConflict
from goqueue.wire.proto import goqueue_pb2 as pb


class Transactional:
    """The open transaction of a producer, and those that may still be open at the broker."""

    def __init__(self, session: ProducerSession) -> None:
        self._session = session
        self.name = session.name
        self.open: AsyncTransaction | None = None
        self._in_doubt: set[AsyncTransaction] = set()
        """Transactions that may still be open at the broker."""
        self._is_closed = False
        self._begin_lock = asyncio.Lock()

    async def begin(self, for_key: str = "") -> AsyncTransaction:
        if not self.name:
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

    async def take_over(self) -> None:
        """Fence the previous producer with this transactional id, and have its open transaction aborted."""
        await self._session.identity()

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
