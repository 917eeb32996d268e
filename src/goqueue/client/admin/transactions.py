"""Transactions and their statistics, as returned by the client."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from goqueue.client.connection.instants import from_nanoseconds
from goqueue.client.connection.structs import struct_of
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


def to_transaction_info(found: pb.Transaction) -> TransactionInfo:
    return struct_of(
        TransactionInfo,
        found,
        transactional_id=found.transactional_id or None,
        partitions=[struct_of(TransactionPartition, each) for each in found.partitions],
        groups=list(found.groups),
        for_key=found.for_key or None,
    )


def to_committed_key(found: pb.CommittedKey) -> CommittedKey:
    return struct_of(CommittedKey, found, transaction_ids=list(found.transaction_ids))
