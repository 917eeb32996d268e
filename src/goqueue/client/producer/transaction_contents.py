"""Contents of a transaction: operations under way, and what the broker and consumers have to know at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from goqueue.client.connection.directory import Directory
from goqueue.client.consumer.consumer import AsyncConsumer
from goqueue.client.consumer.reader import Record
from goqueue.client.consumer.stream_source import TopicPartition
from goqueue.client.producer.sequences import ProducerIdentity
from goqueue.client.producer.transaction_acks import AckRequestPart
from goqueue.model.errors import InvalidRequest, TransactionAborted
from goqueue.wire.proto import goqueue_pb2 as pb

_MAX_REASON = 1_000


class TransactionContents:
    """What was stored and added in a transaction, and the requests that say so."""

    def __init__(self, transaction_id: str, identity: ProducerIdentity, begin: pb.Begin) -> None:
        self.id = transaction_id
        self.identity = identity
        self._begin = begin
        self.incarnations: set[int] = set()
        """Incarnations of the broker that took part. Work survives only within a single one."""
        self.has_acks = False
        """Whether acks or offsets were added, or may have been."""
        self._messages = 0
        self._reason = ""
        """Reason for the abort."""
        self._consumer_offsets: dict[AsyncConsumer, dict[TopicPartition, int]] = {}
        """Consumers, and where they continue after a commit; after an abort they go back to the committed offsets."""

    @property
    def is_empty(self) -> bool:
        return not (self.incarnations or self.has_acks)

    @property
    def has_offsets(self) -> bool:
        return bool(self._consumer_offsets)

    def begin(self) -> pb.Begin | None:
        """Sent with each request, so that the first one begins the transaction. ``None`` once the broker has answered:
        if it has lost the transaction since, it must not begin it anew without the earlier work."""
        return None if self.incarnations else self._begin

    def note_stored(self, stored: pb.Stored) -> None:
        self.incarnations.add(stored.incarnation)
        self._messages += stored.count

    def give_reason(self, reason: str) -> None:
        """The first one counts."""
        self._reason = self._reason or reason[:_MAX_REASON]

    # Requests

    def acks_request(self, portion: AckRequestPart) -> pb.AddAcksRequest:
        return pb.AddAcksRequest(
            transaction_id=self.id,
            **self.identity._asdict(),
            group=portion.group,
            leases=portion.claims(),
            begin=self.begin(),
        )

    def take_offsets(
        self, consumer: AsyncConsumer, record: Record | None, directory: Directory
    ) -> Callable[[], pb.AddOffsetsRequest] | None:
        """Take the offsets of a consumer of this client; return what makes the request for them, if there are any."""
        if not isinstance(consumer, AsyncConsumer):
            raise InvalidRequest(f"{consumer!r} has no offsets to commit; give a consumer of a stream")
        if consumer._directory is not directory:
            raise InvalidRequest(
                f"the consumer of group {consumer.group!r} is another client's; a transaction takes offsets of "
                "consumers of its own client only"
            )
        positions = consumer._positions_for_transaction(record)
        if not positions:
            return None
        self._consumer_offsets.setdefault(consumer, {}).update(positions)
        offsets = [
            pb.PartitionOffset(topic=at.topic, partition=at.partition, offset=to) for at, to in positions.items()
        ]
        member_id, generation = consumer.member_id, consumer._membership.generation
        return lambda: pb.AddOffsetsRequest(
            transaction_id=self.id,
            **self.identity._asdict(),
            group=consumer.group,
            member_id=member_id,
            generation=generation,
            offsets=offsets,
            begin=self.begin(),
        )

    def end_request(self) -> pb.TransactionRequest:
        return pb.TransactionRequest(
            transaction_id=self.id,
            **self.identity._asdict(),
            messages=self._messages,
            incarnation=next(iter(self.incarnations), 0),
            reason=self._reason,
        )

    def begin_request(self) -> pb.TransactionRequest:
        """For a transaction that begins with its end."""
        return pb.TransactionRequest(transaction_id=self.id, **self.identity._asdict(), begin=self._begin)

    def settle_consumers(self, *, is_committed: bool) -> None:
        """Let consumers continue after the end. Only once: after a transaction in doubt the broker says where to
        continue, when it knows."""
        consumer_offsets, self._consumer_offsets = self._consumer_offsets, {}
        for consumer, positions in consumer_offsets.items():
            if is_committed:
                consumer._progress.committed(positions)
            else:
                consumer._read_again(positions)


class PendingOperations:
    """``with work:`` surrounds an operation of a transaction, which cannot commit after an exception in it."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        """The first failure."""
        self._running = 0
        self._is_idle = asyncio.Event()

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.fail(error)
        self.end()

    def begin(self) -> None:
        self._running += 1

    def end(self) -> None:
        self._running -= 1
        if not self._running:
            self._is_idle.set()

    def fail(self, error: BaseException) -> None:
        if self.failure is None:
            is_error = isinstance(error, Exception)
            self.failure = (
                error if is_error else TransactionAborted("something that was to be part of it was called off")
            )

    async def finished(self) -> None:
        """Return when no operation is under way."""
        while self._running:
            self._is_idle.clear()
            await self._is_idle.wait()
