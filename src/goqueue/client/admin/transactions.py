"""Administration of transactions, including those of other producers: what the client returns, and its methods."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from goqueue.client.connection.directory import Directory
from goqueue.client.connection.instants import from_nanoseconds
from goqueue.client.connection.structs import struct_of
from goqueue.model.errors import InvalidRequest, TransactionNotFound
from goqueue.wire.proto import goqueue_pb2 as pb


class TransactionPartition(msgspec.Struct, frozen=True):
    """A transaction's range in one partition: from ``first_offset`` up to, not including, ``end_offset``. Other
    producers' messages may lie in between."""

    topic: str
    partition: int
    first_offset: int
    end_offset: int


class TransactionInfo(msgspec.Struct, frozen=True):
    """A transaction that has not ended. ``state``: ongoing, preparing, prepared, preparing_commit or
    preparing_abort."""

    transaction_id: str
    state: str
    producer_id: int
    epoch: int
    transactional_id: str | None
    started_at_ns: int
    deadline_ns: int
    messages: int
    partitions: list[TransactionPartition]
    groups: list[str]
    """Groups with acks or offsets in the transaction."""
    for_key: str | None = None
    """The key that it is to be committed under, if it was begun for one."""

    @property
    def started_at(self) -> datetime:
        return from_nanoseconds(self.started_at_ns)

    @property
    def deadline(self) -> datetime:
        """When the broker aborts it unless it has ended."""
        return from_nanoseconds(self.deadline_ns)


class CommittedKey(msgspec.Struct, frozen=True):
    """Transactions committed under a key."""

    key: str
    transaction_ids: list[str]
    committed_at_ns: int
    is_new: bool
    """Whether this request committed them. False if it was repeated because the first answer was lost."""
    messages: int = 0
    is_superseded: bool = False
    """Whether a later key of its series was committed. Of a series (keys that end in ``#`` and a number) only the last
    key is remembered in full; the earlier ones stay known as used."""

    @property
    def committed_at(self) -> datetime:
        return from_nanoseconds(self.committed_at_ns)


class TransactionStats(msgspec.Struct, frozen=True):
    """Transaction counters: ``active`` have not ended, ``prepared`` of those wait for commit or abort. The others count
    since the broker started."""

    active: int
    prepared: int
    begun: int
    committed: int
    aborted: int
    timed_out: int
    mean_duration_ns: int

    @property
    def mean_duration(self) -> timedelta:
        """Mean duration of the committed ones."""
        return timedelta(microseconds=self.mean_duration_ns // 1_000)


def _to_transaction_info(found: pb.Transaction) -> TransactionInfo:
    return struct_of(
        TransactionInfo,
        found,
        transactional_id=found.transactional_id or None,
        partitions=[struct_of(TransactionPartition, each) for each in found.partitions],
        groups=list(found.groups),
        for_key=found.for_key or None,
    )


def _to_committed_key(found: pb.CommittedKey) -> CommittedKey:
    return struct_of(CommittedKey, found, transaction_ids=list(found.transaction_ids))


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
        return _to_committed_key(await self._directory.command("transactions", "CommitMany", request))

    async def committed_under(self, key: str) -> CommittedKey | None:
        """What was committed under a key; ``None`` if nothing was, or if it has expired."""
        request = pb.FindCommittedRequest(key=_check_text("key", key))
        found = await self._directory.query("transactions", "FindCommitted", request)
        return _to_committed_key(found) if found.found else None

    async def transactions(self) -> list[TransactionInfo]:
        """Transactions that have not ended, the oldest first."""
        found = await self._directory.query("transactions", "ListTransactions", pb.ListTransactionsRequest())
        return [_to_transaction_info(each) for each in found.transactions]

    async def describe_transaction(self, transaction_id: str) -> TransactionInfo:
        """One open transaction. ``TransactionNotFound`` if unknown; if its end is still known, an error that names
        it."""
        request = pb.DescribeTransactionRequest(transaction_id=_check_text("transaction_id", transaction_id))
        return _to_transaction_info(await self._directory.query("transactions", "DescribeTransaction", request))

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
