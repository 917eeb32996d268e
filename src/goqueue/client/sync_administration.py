"""Synchronous administration of groups, dead letters, lanes, delayed messages and transactions."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Unpack

from goqueue.client.admin.delays import DelayedMessage, DelayStats
from goqueue.client.admin.groups import DeadLetter, GroupInfo, PeekedMessage, RedriveReport, ReliabilityStats, to_filter
from goqueue.client.admin.lanes import PartitionLanes
from goqueue.client.admin.transactions import CommittedKey, TransactionInfo, TransactionStats
from goqueue.client.connection.instants import Instant, Span
from goqueue.client.connection.loop_thread import LoopThread
from goqueue.client.consumer.reader import Start
from goqueue.client.consumer.stream_source import TopicPartition
from goqueue.client.keywords import GroupOptions

if TYPE_CHECKING:
    from goqueue.client.async_client import AsyncClient


class SyncGroupAdministration:
    """Groups, dead letters and lanes; see the methods of ``AsyncClient``."""

    _client: AsyncClient
    _thread: LoopThread

    def list_groups(self) -> list[str]:
        """As ``AsyncClient.list_groups``."""
        return self._thread.run(self._client.list_groups())

    def describe_group(self, name: str) -> GroupInfo:
        """As ``AsyncClient.describe_group``."""
        return self._thread.run(self._client.describe_group(name))

    def configure_group(self, name: str, **settings: Unpack[GroupOptions]) -> GroupInfo:
        """As ``AsyncClient.configure_group``."""
        return self._thread.run(self._client.configure_group(name, **settings))

    def delete_group(self, name: str) -> None:
        """As ``AsyncClient.delete_group``."""
        self._thread.run(self._client.delete_group(name))

    def group_offsets(self, group: str, topic: str | None = None) -> dict[TopicPartition, int]:
        """As ``AsyncClient.group_offsets``."""
        return self._thread.run(self._client.group_offsets(group, topic))

    def reset_offsets(
        self, group: str, topic: str, to: Start, partitions: Iterable[int] | None = None
    ) -> dict[TopicPartition, int]:
        """As ``AsyncClient.reset_offsets``."""
        return self._thread.run(self._client.reset_offsets(group, topic, to, partitions))

    def peek(
        self, group: str, *, topic: str | None = None, partition: int | None = None, state: str | None = None
    ) -> Generator[PeekedMessage, None, None]:
        """As ``AsyncClient.peek``."""
        after: str | None = ""
        while after is not None:
            page, after = self._thread.run(self._client._peek_page(group, topic, partition, state, after))
            yield from page

    def dead_letters(
        self,
        topic: str,
        *,
        group: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Generator[DeadLetter, None, None]:
        """As ``AsyncClient.dead_letters``."""
        criteria = to_filter(group, error, since, until)
        position: tuple[int, int] | None = (0, 0)
        while position is not None:
            page, position = self._thread.run(self._client._dead_letter_page(topic, criteria, position))
            yield from page

    def redrive(
        self,
        topic: str,
        *,
        group: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        letters: Iterable[DeadLetter] | None = None,
        rate: float | None = None,
        delay: Span | None = None,
        dry_run: bool = False,
    ) -> RedriveReport:
        """As ``AsyncClient.redrive``."""
        return self._thread.run(
            self._client.redrive(
                topic,
                group=group,
                error=error,
                since=since,
                until=until,
                letters=letters,
                rate=rate,
                delay=delay,
                dry_run=dry_run,
            )
        )

    def reliability_stats(self) -> ReliabilityStats:
        """As ``AsyncClient.reliability_stats``."""
        return self._thread.run(self._client.reliability_stats())

    def lane_stats(self, topic: str | None = None) -> list[PartitionLanes]:
        """As ``AsyncClient.lane_stats``."""
        return self._thread.run(self._client.lane_stats(topic))


class SyncDelayAdministration:
    """Delayed messages; see the methods of ``AsyncClient``."""

    _client: AsyncClient
    _thread: LoopThread

    def delayed(self, topic: str) -> Generator[DelayedMessage, None, None]:
        """As ``AsyncClient.delayed``."""
        after: str | None = ""
        while after is not None:
            page, after = self._thread.run(self._client._delayed_page(topic, after))
            yield from page

    def get_delayed(self, topic: str, partition: int, offset: int) -> DelayedMessage:
        """As ``AsyncClient.get_delayed``."""
        return self._thread.run(self._client.get_delayed(topic, partition, offset))

    def cancel_delayed(self, topic: str, partition: int, offset: int) -> None:
        """As ``AsyncClient.cancel_delayed``."""
        self._thread.run(self._client.cancel_delayed(topic, partition, offset))

    def reschedule_delayed(
        self, topic: str, partition: int, offset: int, *, delay: Span | None = None, deliver_at: Instant | None = None
    ) -> DelayedMessage:
        """As ``AsyncClient.reschedule_delayed``."""
        return self._thread.run(
            self._client.reschedule_delayed(topic, partition, offset, delay=delay, deliver_at=deliver_at)
        )

    def delay_stats(self) -> DelayStats:
        """As ``AsyncClient.delay_stats``."""
        return self._thread.run(self._client.delay_stats())


class SyncTransactionAdministration:
    """Transactions; see the methods of ``AsyncClient``."""

    _client: AsyncClient
    _thread: LoopThread

    def commit_many(self, key: str, transaction_ids: Iterable[str]) -> CommittedKey:
        """As ``AsyncClient.commit_many``."""
        return self._thread.run(self._client.commit_many(key, transaction_ids))

    def committed_under(self, key: str) -> CommittedKey | None:
        """As ``AsyncClient.committed_under``."""
        return self._thread.run(self._client.committed_under(key))

    def transactions(self) -> list[TransactionInfo]:
        """As ``AsyncClient.transactions``."""
        return self._thread.run(self._client.transactions())

    def describe_transaction(self, transaction_id: str) -> TransactionInfo:
        """As ``AsyncClient.describe_transaction``."""
        return self._thread.run(self._client.describe_transaction(transaction_id))

    def abort_transaction(self, transaction_id: str) -> None:
        """As ``AsyncClient.abort_transaction``."""
        self._thread.run(self._client.abort_transaction(transaction_id))

    def transaction_stats(self) -> TransactionStats:
        """As ``AsyncClient.transaction_stats``."""
        return self._thread.run(self._client.transaction_stats())
