"""Accumulator: one queue of pending batches per partition, with one batch in flight.

Order within a partition is kept because the next batch is sent only when the previous one is settled, retries included.
The queue grows meanwhile, so batches grow with the load.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from goqueue.client.connection.backoff import Backoff
from goqueue.client.connection.config import ProducerConfig
from goqueue.client.producer.batch_sender import BatchSender, Deliver
from goqueue.client.producer.pending_batches import Parcel, Stored
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
        self._parcels: deque[Parcel] = deque()
        self._under_way: list[Parcel] = []
        self._messages = 0
        self._bytes = 0
        self._leave_at: float | None = None
        self._ready = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._reason: GoQueueError | None = None

    def put(self, parcel: Parcel) -> None:
        loop = asyncio.get_running_loop()
        self._parcels.append(parcel)
        self._messages += len(parcel.run)
        self._bytes += parcel.size
        if self._is_full() or not self._config.linger_ms:
            self._ready.set()
        elif self._leave_at is None:
            self._leave_at = loop.time() + self._config.linger_ms / 1_000
        if self._pump is None:
            self._pump = loop.create_task(self._run())
        if self._expiry is None:
            self._expiry = loop.call_at(parcel.deadline, self._expire)

    @property
    def unsettled_messages(self) -> int:
        return sum(len(parcel.run) for parcel in (*self._under_way, *self._parcels) if not parcel.done.done())

    def is_sticky(self) -> bool:
        """Whether messages without a key should still join this partition's batch."""
        return bool(self._parcels) and not self._is_full()

    def hurry(self) -> None:
        """Send the pending batch now, without waiting for ``linger_ms``."""
        if self._parcels:
            self._ready.set()

    def unsettled(self) -> list[asyncio.Future[Stored]]:
        """Futures of everything enqueued so far and not settled."""
        return [parcel.done for parcel in (*self._under_way, *self._parcels) if not parcel.done.done()]

    async def close(self, reason: GoQueueError | None = None) -> None:
        """Stop, and fail everything unsettled with this reason."""
        self._reason = reason
        self.let_go()
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
            # A task cancelled before it started has not run its ``finally``.
            self._end(reason or _closed())

    def let_go(self) -> None:
        """Stop the delivery timer: nothing is left that could expire."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _is_full(self) -> bool:
        return self._messages >= self._config.batch_messages or self._bytes >= self._config.batch_bytes

    async def _run(self) -> None:
        reason: GoQueueError = _closed()
        try:
            while self._parcels:
                await self._wait_until_it_leaves()
                self._under_way = self._take()
                await self._sender.settle(self._under_way, self._make_backoff())
                self._under_way = []
        except Exception as defect:
            log.exception("a producer's batch failed in a way that was not foreseen")
            reason = InternalError(f"the producer failed: {defect!r}")
        finally:
            self._end(self._reason or reason)

    def _end(self, reason: GoQueueError) -> None:
        self._sender.fail([*self._under_way, *self._parcels], reason)
        self._under_way = []
        self._parcels.clear()
        self._messages = self._bytes = 0
        self._pump = None

    async def _wait_until_it_leaves(self) -> None:
        if self._leave_at is not None and not self._ready.is_set():
            try:
                async with asyncio.timeout_at(self._leave_at):
                    await self._ready.wait()
            except TimeoutError:
                pass
        self._ready.clear()
        self._leave_at = None

    def _take(self) -> list[Parcel]:
        """Take everything pending that fits one batch."""
        taken: list[Parcel] = []
        size = 0
        dedup_ids: set[str] | None = None
        while self._parcels:
            first = self._parcels[0]
            if taken and (size + first.size > MAX_FRAMES_BYTES or not _go_together(dedup_ids, first.dedup_ids)):
                break
            if first.dedup_ids is not None:
                # One set that grows, since a batch may combine thousands of entries.
                dedup_ids = dedup_ids or set()
                dedup_ids.update(first.dedup_ids)
            size += first.size
            taken.append(self._pop())
        if self._parcels:
            self._ready.set()
        return taken

    def _pop(self) -> Parcel:
        parcel = self._parcels.popleft()
        self._messages -= len(parcel.run)
        self._bytes -= parcel.size
        return parcel

    def _expire(self) -> None:
        """Fail entries past their delivery timeout: in flight, or queued behind a batch with a later deadline."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        late = [parcel for parcel in self._under_way if parcel.deadline <= now and not parcel.done.done()]
        for parcel in late:
            # Its bytes are still being sent, so they are not released yet.
            parcel.done.set_exception(self._sender.too_late())
        while self._parcels and self._parcels[0].deadline <= now:
            self._sender.fail([self._pop()], self._sender.too_late())
        waiting = [parcel for parcel in self._under_way if not parcel.done.done()] or list(self._parcels)[:1]
        self._expiry = loop.call_at(waiting[0].deadline, self._expire) if waiting else None


def _closed() -> ClientClosed:
    return ClientClosed("the producer was closed before the message was acknowledged")


def _go_together(some: set[str] | None, others: frozenset[str] | None) -> bool:
    """Whether messages may share a batch: none has a dedup id, or all have different ones."""
    if some is None or others is None:
        return some is others
    return some.isdisjoint(others)
