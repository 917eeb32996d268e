"""Administration of transactions, including those of other producers."""

from __future__ import annotations

from collections.abc import Iterable

from goqueue.client.admin.transactions import (
    CommittedKey,
    TransactionInfo,
    TransactionStats,
    to_committed_key,
    to_transaction_info,
)
from goqueue.client.connection.directory import Directory
from goqueue.client.connection.structs import struct_of
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
        return to_committed_key(await self._directory.command("transactions", "CommitMany", request))

    async def committed_under(self, key: str) -> CommittedKey | None:
        """What was committed under a key; ``None`` if nothing was, or if it has expired."""
        request = pb.FindCommittedRequest(key=_check_text("key", key))
        found = await self._directory.query("transactions", "FindCommitted", request)
        return to_committed_key(found) if found.found else None

    async def transactions(self) -> list[TransactionInfo]:
        """Transactions that have not ended, the oldest first."""
        found = await self._directory.query("transactions", "ListTransactions", pb.ListTransactionsRequest())
        return [to_transaction_info(each) for each in found.transactions]

    async def describe_transaction(self, transaction_id: str) -> TransactionInfo:
        """One open transaction. ``TransactionNotFound`` if unknown; if its end is still known, an error that names
        it."""
        request = pb.DescribeTransactionRequest(transaction_id=_check_text("transaction_id", transaction_id))
        return to_transaction_info(await self._directory.query("transactions", "DescribeTransaction", request))

    async def abort_transaction(self, transaction_id: str) -> None:
        """Abort a transaction: its messages never become visible. For operators, and for prepared transactions that are
        not to be committed."""
        request = pb.TransactionRequest(transaction_id=_check_text("transaction_id", transaction_id))
        await self._directory.command("transactions", "AbortTransaction", request, done_if=TransactionNotFound)

    async def transaction_stats(self) -> TransactionStats:
        """Counters of transactions of all producers."""
        found = await self._directory.query("transactions", "TransactionStats", pb.TransactionStatsRequest())
        return struct_of(TransactionStats, found)


def _check_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} is {value!r}; it must be a text")
    return value


def _check_texts(name: str, value: Iterable[str]) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidRequest(f"{name} is {value!r}; give a list of ids")
    return [_check_text(f"one of {name}", each) for each in value]
