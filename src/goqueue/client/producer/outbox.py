"""Outbox: encodes messages, routes them to partitions, and enqueues them for delivery."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from collections.abc import Sequence as Pieces
from dataclasses import dataclass, field
from functools import partial

from goqueue.client.connection.config import ProducerConfig
from goqueue.client.connection.connection import NotConnected
from goqueue.client.connection.directory import Directory, error_no_partition
from goqueue.client.messages.outgoing_message import Encoder, Outgoing, Sent, key_bytes, with_trace_headers
from goqueue.client.messages.tracing import current_trace
from goqueue.client.producer.accumulator import PartitionQueue
from goqueue.client.producer.pending_batches import PendingBatch, Stored
from goqueue.client.producer.send_buffer import SendBuffer
from goqueue.client.producer.sequences import Sequence
from goqueue.client.producer.transaction_contents import TransactionContents
from goqueue.model.errors import BrokerUnavailable, GoQueueError
from goqueue.model.logging import get_logger
from goqueue.model.message import NO_HEADERS, Headers
from goqueue.wire.batch import FrameRun
from goqueue.wire.batch_envelope import Piece
from goqueue.wire.frame import Flag
from goqueue.wire.key_hash import partition_of
from goqueue.wire.proto import goqueue_pb2 as pb

log = get_logger(__name__)

_ACKS = {"none": pb.ACKS_NONE, "leader": pb.ACKS_LEADER, "all": pb.ACKS_ALL}


class _SendFuture(asyncio.Future[Sent]):
    """Calls ``log_failure`` for a failure that is never read, instead of asyncio's log message with a traceback."""

    log_failure: Callable[[BaseException], None] | None = None

    def __del__(self) -> None:
        if not self._log_traceback:
            return
        self._log_traceback = False
        error = self.exception()
        if self.log_failure is not None and error is not None:
            self.log_failure(error)


@dataclass(frozen=True, slots=True)
class OutboxTerms:
    """What all outboxes of a producer share."""

    directory: Directory
    config: ProducerConfig
    encoder: Encoder
    buffer: SendBuffer
    sticky: dict[str, int] = field(default_factory=dict)
    """By topic: the partition last chosen for messages without a key."""


class Outbox:
    """Messages of a producer, or of one of its transactions.

    ``sequence`` returns the sequence of a partition, if its batches are numbered; ``check_open`` raises when nothing
    may be sent any more.
    """

    def __init__(
        self,
        terms: OutboxTerms,
        sequence: Callable[[str, int], Sequence | None],
        check_open: Callable[[], None],
        transaction: TransactionContents | None = None,
        on_settled: Callable[[asyncio.Future[Stored]], None] = lambda _: None,
    ) -> None:
        """``on_settled`` is called with the future of every batch of a transaction."""
        self._directory = terms.directory
        self._config = terms.config
        self.encoder = terms.encoder
        self._buffer = terms.buffer
        self._sticky = terms.sticky
        self._sequence = sequence
        self.check_open = check_open
        self._transaction = transaction
        self._on_settled = on_settled
        self.flags = 0 if transaction is None else int(Flag.TRANSACTIONAL)
        """Flags set on every frame."""
        self.buffer_bytes = terms.config.buffer_bytes
        self.is_numbered = transaction is not None or terms.config.idempotent
        self._queues: dict[tuple[str, int], PartitionQueue] = {}

    @property
    def has_sent(self) -> bool:
        """Whether anything was enqueued, whatever its result."""
        return bool(self._queues)

    @property
    def unsettled_messages(self) -> int:
        return sum(queue.unsettled_messages for queue in self._queues.values())

    async def send(self, topic: str, message: Outgoing) -> asyncio.Future[Sent]:
        self.check_open()
        encoder = self.encoder if self.encoder.is_topic_independent else await self.encoder.for_topic(topic)
        message, trace = with_trace_headers(encoder.with_key_bytes(message), self.trace())
        frame, lane = encoder.encode(message, self.flags, leave_room=self.is_numbered)
        number = self.route(topic, message, await self.partitions(topic))
        future = _SendFuture(loop=asyncio.get_running_loop())

        def settle(done: asyncio.Future[Stored]) -> None:
            error = done.exception()
            if future.done():
                return
            if error is None:
                stored = done.result()
                partition, offset = stored.position_of(0, number)
                is_known = bool(stored.duplicates)
                future.set_result(Sent(partition, offset, lane, stored.due(0), is_known, topic, trace))
            else:
                # A failure that is never read from the future is logged.
                future.log_failure = partial(self.warn, topic, number)
                future.set_exception(error)

        dedup_ids = None if message.dedup_id is None else frozenset((message.dedup_id,))
        (await self.enqueue(topic, number, FrameRun.of_one(frame), dedup_ids)).add_done_callback(settle)
        return future

    def warn(self, topic: str, number: int, error: BaseException, messages: int = 1) -> None:
        """Log a failure that was not read from its future."""
        if self._transaction is None:
            # Failures in a transaction are raised at its end.
            log.warning("message not delivered", topic=topic, partition=number, messages=messages, error=str(error))

    def partitions(self, topic: str) -> Awaitable[int]:
        return self._directory.partitions(topic, self._config.delivery_timeout_ms)

    def send_now(self, topic: str) -> None:
        """Send what is enqueued for a topic, without waiting for ``linger_ms``."""
        for (name, _), queue in self._queues.items():
            if name == topic:
                queue.send_now()

    async def flush(self) -> None:
        """Send everything now; return when all messages enqueued so far are stored or have failed."""
        unsettled: list[asyncio.Future[Stored]] = []
        for queue in self._queues.values():
            queue.send_now()
            unsettled += queue.unsettled()
        if unsettled:
            # ``wait`` and not ``gather``: a cancelled caller does not cancel the messages.
            await asyncio.wait(unsettled)

    async def give_up(self, reason: GoQueueError | None = None) -> None:
        """Fail everything that is not settled."""
        for queue in list(self._queues.values()):
            await queue.close(reason)

    def stop_timers(self) -> None:
        """Stop the timers: everything is settled, and nothing more is sent."""
        for queue in self._queues.values():
            queue.stop_timer()

    def trace(self) -> Headers:
        """Trace headers of the current span, if messages are to carry them."""
        return current_trace() if self._config.inject_trace_context else NO_HEADERS

    # Routing

    def route(self, topic: str, message: Outgoing, partitions: int) -> int:
        if message.partition is not None:
            if not 0 <= message.partition < partitions:
                raise error_no_partition(topic, message.partition, partitions)
            return message.partition
        if message.key:
            return partition_of(key_bytes(message.key), partitions)
        current = self._sticky.get(topic)
        if current is not None and current < partitions:
            queue = self._queues.get((topic, current))
            if queue is not None and queue.is_sticky():
                return current
        return self.next_keyless(topic, partitions)

    def next_keyless(self, topic: str, partitions: int) -> int:
        """The partition for messages without a key: partitions take turns, one batch each."""
        chosen = (self._sticky.get(topic, -1) + 1) % partitions
        self._sticky[topic] = chosen
        return chosen

    # Enqueueing

    async def enqueue(
        self, topic: str, number: int, run: FrameRun, dedup_ids: frozenset[str] | None = None
    ) -> asyncio.Future[Stored]:
        size = len(run.frames)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.delivery_timeout_ms / 1_000
        await self._buffer.reserve(size, deadline)
        try:
            self.check_open()
        except GoQueueError:
            self._buffer.release(size)
            raise
        queue = self._queues.get((topic, number))
        if queue is None:
            queue = self._queues[topic, number] = self._make_queue(topic, number)
        entry = PendingBatch(run, size, deadline, loop.create_future(), dedup_ids)
        if self._transaction is not None:
            entry.done.add_done_callback(self._on_settled)
        queue.put(entry)
        return entry.done

    def _make_queue(self, topic: str, number: int) -> PartitionQueue:
        transaction = self._transaction

        async def deliver(batch: Pieces[Piece]) -> pb.Stored:
            try:
                try:
                    leader = await self._directory.leader(topic, number)
                except BrokerUnavailable as error:
                    raise NotConnected(str(error), retry_after_s=error.retry_after_s) from error
                named = () if transaction is None else (transaction.id, transaction.begin())
                stored = await leader.publish(topic, number, _ACKS[self._config.acks], batch, *named)
                if transaction is not None:
                    transaction.note_stored(stored)
                return stored
            except GoQueueError as error:
                self._directory.mark_stale(topic, error)
                raise

        return PartitionQueue(
            self._config, deliver, self._directory.backoff, self._buffer.release, self._sequence(topic, number)
        )
