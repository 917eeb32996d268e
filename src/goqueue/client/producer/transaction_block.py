"""Transaction as a context manager."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from goqueue.client.producer.transaction import AsyncTransaction
from goqueue.model.errors import GoQueueError


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
