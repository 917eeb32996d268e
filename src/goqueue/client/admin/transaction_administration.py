"""Administration of transactions, including those of other producers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from goqueue.client.admin.transactions import (
    CommittedKey,
    TransactionInfo,
    TransactionStats,
    to_committed_key,
    to_transaction_info,
    to_transaction_stats,
)
from goqueue.client.connection.directory import Attempt, Directory
from goqueue.model.errors import InvalidRequest, TransactionNotFound
from goqueue.wire.proto import goqueue_pb2 as pb


class TransactionAdministration:
    """Methods of the client for transactions of any producer."""

    _directory: Directory

    async def commit_many(self, key: str, transaction_ids: Iterable[str]) -> CommittedKey:
        """Commit prepared transactions, all or none, under a key chosen by the application.

        The first commit under a key wins; a later call with the same key returns what was committed then and changes
        nothing. A caller that does not know whether its call succeeded can therefore repeat it.
        """
        listed = _check_texts("transaction_ids", transaction_ids)
        request = pb.CommitManyRequest(key=_check_text("key", key), transaction_ids=listed)
        return to_committed_key(
            await self._directory.any(lambda attempt: attempt.command(attempt.broker.transactions.CommitMany, request))
        )

    async def committed_under(self, key: str) -> CommittedKey | None:
        """What was committed under a key; ``None`` if nothing was, or if it has expired."""
        found = await self._query_transactions("FindCommitted", pb.FindCommittedRequest(key=_check_text("key", key)))
        return to_committed_key(found) if found.found else None

    async def transactions(self) -> list[TransactionInfo]:
        """Transactions that have not ended, the oldest first."""
        found = await self._query_transactions("ListTransactions", pb.ListTransactionsRequest())
        return [to_transaction_info(each) for each in found.transactions]

    async def describe_transaction(self, transaction_id: str) -> TransactionInfo:
        """One open transaction. ``TransactionNotFound`` if unknown; if its end is still known, an error that names
        it."""
        request = pb.DescribeTransactionRequest(transaction_id=_check_text("transaction_id", transaction_id))
        return to_transaction_info(await self._query_transactions("DescribeTransaction", request))

    async def abort_transaction(self, transaction_id: str) -> None:
        """Abort a transaction: its messages never become visible. For operators, and for prepared transactions that are
        not to be committed."""
        request = pb.TransactionRequest(transaction_id=_check_text("transaction_id", transaction_id))

        async def abort(attempt: Attempt) -> None:
            try:
                await attempt.command(attempt.broker.transactions.AbortTransaction, request)
            except TransactionNotFound:
                if not attempt.maybe_done:
                    raise

        await self._directory.any(abort)

    async def transaction_stats(self) -> TransactionStats:
        """Counters of transactions of all producers."""
        return to_transaction_stats(await self._query_transactions("TransactionStats", pb.TransactionStatsRequest()))

    async def _query_transactions(self, method: str, request: Any) -> Any:
        return await self._directory.any(
            lambda attempt: attempt.query(getattr(attempt.broker.transactions, method), request)
        )


def _check_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} is {value!r}; it must be a text")
    return value


def _check_texts(name: str, value: Iterable[str]) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidRequest(f"{name} is {value!r}; give a list of ids")
    return [_check_text(f"one of {name}", each) for each in value]
