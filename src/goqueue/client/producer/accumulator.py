"""Accumulator: one queue of pending batches per partition, with one batch in flight.

Order within a partition is kept because the next batch is sent only when the previous one is settled, retries included.
The queue grows meanwhile, so batches grow with the load.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from goqueue.client.connection.config import ProducerConfig
from goqueue.client.connection.retries import Backoff
from goqueue.client.connection.tasks import cancel
from goqueue.client.producer.batch_sender import BatchSender, Deliver
from goqueue.client.producer.pending_batches import PendingBatch, Stored
from goqueue.client.producer.sequences import Sequence
from goqueue.model.errors import ClientClosed, GoQueueError, InternalError
from goqueue.model.logging import get_logger
from goqueue.wire.batch import MAX_BATCH_BYTES
from goqueue.wire.producer_frames import STAMP_BYTES

log = get_logger(__name__)

MAX_FRAMES_BYTES = MAX_BATCH_BYTES - STAMP_BYTES
"""Frames of several messages in one batch, leaving room for a producer stamp."""


class PartitionQueue:
    """Queue of one partition. ``released`` is called with the bytes freed; ``sequence`` numbers the batches, if given.

    Messages with dedup ids are sent in separate batches without sequence numbers; they keep their order in the queue.
    """

    def __init__(
        self,
        config: ProducerConfig,
        deliver: Deliver,
        backoff: Callable[[], Backoff],
        released: Callable[[int], None],
        sequence: Sequence | None = None,
    ) -> None:
        self._config = config
        self._make_backoff = backoff
        self._sender = BatchSender(config, deliver, released, sequence)
        self._entries: deque[PendingBatch] = deque()
        self._in_flight: list[PendingBatch] = []
        self._messages = 0
        self._bytes = 0
        self._send_at: float | None = None
        self._ready = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._reason: GoQueueError | None = None

    def put(self, entry: PendingBatch) -> None:
        loop = asyncio.get_running_loop()
        self._entries.append(entry)
        self._messages += len(entry.run)
        self._bytes += entry.size
        if self._is_full() or not self._config.linger_ms:
            self._ready.set()
        elif self._send_at is None:
            self._send_at = loop.time() + self._config.linger_ms / 1_000
        if self._sending is None:
            self._sending = loop.create_task(self._run())
        if self._expiry is None:
            self._expiry = loop.call_at(entry.deadline, self._expire)

    @property
    def unsettled_messages(self) -> int:
        return sum(len(entry.run) for entry in (*self._in_flight, *self._entries) if not entry.done.done())

    def is_sticky(self) -> bool:
        """Whether messages without a key should still join this partition's batch."""
        return bool(self._entries) and not self._is_full()

    def send_now(self) -> None:
        """Send the pending batch now, without waiting for ``linger_ms``."""
        if self._entries:
            self._ready.set()

    def unsettled(self) -> list[asyncio.Future[Stored]]:
        """Futures of everything enqueued so far and not settled."""
        return [entry.done for entry in (*self._in_flight, *self._entries) if not entry.done.done()]

    async def close(self, reason: GoQueueError | None = None) -> None:
        """Stop, and fail everything unsettled with this reason."""
        self._reason = reason
        self.stop_timer()
        if self._sending is not None:
            await cancel(self._sending)
            # A task cancelled before it started has not run its ``finally``.
            self._end(reason or _closed())

    def stop_timer(self) -> None:
        """Stop the delivery timer: nothing is left that could expire."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _is_full(self) -> bool:
        return self._messages >= self._config.batch_messages or self._bytes >= self._config.batch_bytes

    async def _run(self) -> None:
        reason: GoQueueError = _closed()
        try:
            while self._entries:
                await self._wait_until_due()
                self._in_flight = self._take_batch()
                await self._sender.settle(self._in_flight, self._make_backoff())
                self._in_flight = []
        except Exception as defect:
            log.exception("a producer's batch failed in a way that was not foreseen")
            reason = InternalError(f"the producer failed: {defect!r}")
        finally:
            self._end(self._reason or reason)

    def _end(self, reason: GoQueueError) -> None:
        self._sender.fail([*self._in_flight, *self._entries], reason)
        self._in_flight = []
        self._entries.clear()
        self._messages = self._bytes = 0
        self._sending = None

    async def _wait_until_due(self) -> None:
        if self._send_at is not None and not self._ready.is_set():
            try:
                async with asyncio.timeout_at(self._send_at):
                    await self._ready.wait()
            except TimeoutError:
                pass
        self._ready.clear()
        self._send_at = None

    def _take_batch(self) -> list[PendingBatch]:
        """Take everything pending that fits one batch."""
        taken: list[PendingBatch] = []
        size = 0
        dedup_ids: set[str] | None = None
        while self._entries:
            first = self._entries[0]
            if taken and (size + first.size > MAX_FRAMES_BYTES or not _may_share_batch(dedup_ids, first.dedup_ids)):
                break
            if first.dedup_ids is not None:
                # One set that grows, since a batch may combine thousands of entries.
                dedup_ids = dedup_ids or set()
                dedup_ids.update(first.dedup_ids)
            size += first.size
            taken.append(self._pop())
        if self._entries:
            self._ready.set()
        return taken

    def _pop(self) -> PendingBatch:
        entry = self._entries.popleft()
        self._messages -= len(entry.run)
        self._bytes -= entry.size
        return entry

    def _expire(self) -> None:
        """Fail entries past their delivery timeout: in flight, or queued behind a batch with a later deadline."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        late = [entry for entry in self._in_flight if entry.deadline <= now and not entry.done.done()]
        for entry in late:
            # Its bytes are still being sent, so they are not released yet.
            entry.done.set_exception(self._sender.timeout_error())
        while self._entries and self._entries[0].deadline <= now:
            self._sender.fail([self._pop()], self._sender.timeout_error())
        waiting = [entry for entry in self._in_flight if not entry.done.done()] or list(self._entries)[:1]
        self._expiry = loop.call_at(waiting[0].deadline, self._expire) if waiting else None


def _closed() -> ClientClosed:
    return ClientClosed("the producer was closed before the message was acknowledged")


def _may_share_batch(some: set[str] | None, others: frozenset[str] | None) -> bool:
    """Whether messages may share a batch: none has a dedup id, or all have different ones."""
    if some is None or others is None:
        return some is others
    return some.isdisjoint(others)
