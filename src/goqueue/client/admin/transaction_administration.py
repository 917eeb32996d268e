"""What can be asked about transactions, and decided about those of others."""

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
    """The part of a client that looks after transactions, whoever has begun them."""

    _directory: Directory

    async def commit_many(self, key: str, transaction_ids: Iterable[str]) -> CommittedKey:
        """Commit prepared transactions, all of them or none, under a key of the application's.

        Who comes first with a key wins: everyone who comes later is told what was committed then, and nothing else
        happens. So whoever does not know whether it has done this does it again.
        """
        listed = _texts("transaction_ids", transaction_ids)
        request = pb.CommitManyRequest(key=_text("key", key), transaction_ids=listed)
        return to_committed_key(
            await self._directory.any(lambda attempt: attempt.command(attempt.broker.transactions.CommitMany, request))
        )

    async def committed_under(self, key: str) -> CommittedKey | None:
        """What was committed under a key; ``None`` if nothing was, or so long ago that it is forgotten."""
        found = await self._ask_transactions("FindCommitted", pb.FindCommittedRequest(key=_text("key", key)))
        return to_committed_key(found) if found.found else None

    async def transactions(self) -> list[TransactionInfo]:
        """Those that have not ended, the oldest first."""
        found = await self._ask_transactions("ListTransactions", pb.ListTransactionsRequest())
        return [to_transaction_info(each) for each in found.transactions]

    async def describe_transaction(self, transaction_id: str) -> TransactionInfo:
        """``TransactionNotFound`` if there is none; if it is still known how it ended, an error that says so."""
        request = pb.DescribeTransactionRequest(transaction_id=_text("transaction_id", transaction_id))
        return to_transaction_info(await self._ask_transactions("DescribeTransaction", request))

    async def abort_transaction(self, transaction_id: str) -> None:
        """Nothing of it is ever seen. For operators, and for transactions that were prepared and are not wanted."""
        request = pb.TransactionRequest(transaction_id=_text("transaction_id", transaction_id))

        async def abort(attempt: Attempt) -> None:
            try:
                await attempt.command(attempt.broker.transactions.AbortTransaction, request)
            except TransactionNotFound:
                if not attempt.maybe_done:
                    raise

        await self._directory.any(abort)

    async def transaction_stats(self) -> TransactionStats:
        return to_transaction_stats(await self._ask_transactions("TransactionStats", pb.TransactionStatsRequest()))

    async def _ask_transactions(self, method: str, request: Any) -> Any:
        return await self._directory.any(
            lambda attempt: attempt.question(getattr(attempt.broker.transactions, method), request)
        )


def _text(name: str, given: object) -> str:
    if not isinstance(given, str):
        raise InvalidRequest(f"{name} is {given!r}; it must be a text")
    return given


def _texts(name: str, given: Iterable[str]) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidRequest(f"{name} is {given!r}; give a list of ids")
    return [_text(f"one of {name}", each) for each in given]
