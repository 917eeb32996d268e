"""Delivery of one partition's batches, one at a time: sent, retried, or split until every message has a result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from goqueue.client.connection.config import ProducerConfig
from goqueue.client.connection.connection import NotConnected
from goqueue.client.connection.retries import Backoff
from goqueue.client.producer.pending_batches import (
    UNKNOWN_OFFSET,
    Part,
    PendingBatch,
    Stored,
    merge_results,
    split_result,
    sub_batch,
)
from goqueue.client.producer.sequences import Sequence as Numbering
from goqueue.model import errors
from goqueue.model.errors import GoQueueError
from goqueue.model.logging import get_logger
from goqueue.wire.batch import FrameRun, envelope, positions_in
from goqueue.wire.batch_envelope import Piece
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.producer_frames import stamped_pieces
from goqueue.wire.proto import goqueue_pb2 as pb

log = get_logger(__name__)

Deliver = Callable[[Sequence[Piece]], Awaitable[pb.Stored]]
"""Sends a batch, given as the pieces of its envelope, and returns where it was stored."""

_REFUSALS = (
    errors.InvalidRequest,
    NotConnected,
    errors.OutOfOrderSequence,
    errors.Overloaded,
    errors.PartitionNotFound,
    errors.ProducerFenced,
    errors.TooManyDedupIds,
    errors.TooManyDelayed,
    errors.TopicNotFound,
    errors.TransactionAborted,
    errors.TransactionConflict,
    errors.TransactionNotFound,
    errors.UnknownProducer,
    errors.WrongPort,
)
"""Errors after which nothing was stored. After any other error the batch may have been stored."""
_STATE_MISMATCH = (errors.OutOfOrderSequence, errors.ProducerFenced, errors.UnknownProducer)
"""Errors that mean the broker's state of the producer differs from the producer's own."""


@dataclass(slots=True)
class _WireBatch:
    """A batch as sent, identical at every attempt."""

    runs: list[FrameRun]
    is_numbered: bool
    stamp: ProducerStamp | None = None
    wire: list[Piece] | None = None
    maybe_stored: bool = False
    """Whether an attempt ended without a definite answer."""


class BatchSender:
    """``sequence`` numbers the batches, except those of messages with dedup ids; without it none is numbered.

    ``released`` is called with the bytes freed.

    While a numbered batch may have been stored by an attempt, it is retried unchanged and never split. If it is given
    up in that state, its sequence numbers are abandoned: the broker would take another batch with the same numbers for
    a duplicate.
    """

    def __init__(
        self, config: ProducerConfig, deliver: Deliver, released: Callable[[int], None], sequence: Numbering | None
    ) -> None:
        self._config = config
        self._deliver = deliver
        self._released = released
        self._sequence = sequence
        self._last_error: GoQueueError | None = None

    async def settle(self, entries: list[PendingBatch], backoff: Backoff) -> None:
        """Deliver, with retries; afterwards every pending batch has its result."""
        batch = self._batch_of(entries)
        try:
            while entries:
                try:
                    # Earlier deadlines are handled by the queue's timer; the attempt goes on for the others.
                    async with asyncio.timeout_at(entries[-1].deadline):
                        stored = await self._attempt(batch)
                except TimeoutError:
                    self._give_up(batch, entries, self.timeout_error())
                    return
                except GoQueueError as error:
                    left = await self._after_error(batch, entries, error, backoff)
                    if left is not entries or batch.wire is None:
                        entries, batch = left, self._batch_of(left)
                else:
                    self._stored(batch, entries, stored)
                    return
        except BaseException:
            # Cancelled, or a bug.
            self._abandon_if_open(batch)
            raise

    def _batch_of(self, entries: list[PendingBatch]) -> _WireBatch:
        is_numbered = self._sequence is not None and all(entry.dedup_ids is None for entry in entries)
        return _WireBatch([entry.run for entry in entries], is_numbered)

    async def _attempt(self, batch: _WireBatch) -> pb.Stored:
        if batch.wire is None:
            if batch.is_numbered and self._sequence is not None:
                batch.stamp = await self._sequence.stamp(sum(map(len, batch.runs)))
                batch.wire = [*stamped_pieces(batch.runs, batch.stamp)]
            else:
                batch.wire = [*envelope(positions_in(batch.runs), [run.frames for run in batch.runs])]
        try:
            return await self._deliver(batch.wire)
        except _REFUSALS:
            raise
        except BaseException:
            batch.maybe_stored = True
            raise

    def _stored(self, batch: _WireBatch, entries: list[PendingBatch], stored: pb.Stored) -> None:
        self._advance(batch)
        for entry, result in zip(entries, split_result(stored, [len(each.run) for each in entries]), strict=True):
            self._succeed(entry, result)

    def _advance(self, batch: _WireBatch) -> None:
        if self._sequence is not None and batch.stamp is not None:
            self._sequence.stored(batch.stamp)
        batch.maybe_stored = False

    # Errors

    async def _after_error(
        self, batch: _WireBatch, entries: list[PendingBatch], error: GoQueueError, backoff: Backoff
    ) -> list[PendingBatch]:
        """Pause; return what is left to retry. The same list means the same wire batch, unless ``wire`` was reset."""
        is_open = batch.stamp is not None and batch.maybe_stored
        if batch.stamp is not None and self._sequence is not None and self._sequence.begins_anew:
            if isinstance(error, errors.DuplicateSequence):
                # An earlier attempt stored it, at an unknown offset.
                self._advance(batch)
                for entry in entries:
                    self._succeed(entry, Stored([UNKNOWN_OFFSET] * len(entry.run)))
                return []
            if isinstance(error, errors.OutOfOrderSequence) or (isinstance(error, _STATE_MISMATCH) and not is_open):
                return await self._restart_sequence(batch, entries, error, backoff)
        if is_open and not error.retriable:
            # It may have been stored whole, so no part of it can be sent again.
            self._give_up(batch, entries, error)
            return []
        if isinstance(error, errors.SchemaViolation):
            await self._settle_valid(entries, error, backoff)
            return []
        if isinstance(error, errors.InvalidMessage | errors.TooManyDelayed):
            await self._bisect(entries, error, backoff)
            return []
        if not error.retriable:
            self._give_up(batch, entries, error)
            return []
        return await self._pause(batch, entries, error, backoff, is_open=is_open)

    async def _restart_sequence(
        self, batch: _WireBatch, entries: list[PendingBatch], error: GoQueueError, backoff: Backoff
    ) -> list[PendingBatch]:
        """Continue under a new producer id: the broker has lost earlier batches, or does not know this producer.

        This cannot store anything twice: a batch whose predecessors are missing was not stored by any attempt, and
        never will be under the old id.
        """
        log.warning("a producer goes on under another id", error=str(error))
        if self._sequence is not None:
            self._sequence.abandon()
        batch.stamp = batch.wire = None
        batch.maybe_stored = False
        return await self._pause(batch, entries, error, backoff, is_open=False)

    async def _pause(
        self, batch: _WireBatch, entries: list[PendingBatch], error: GoQueueError, backoff: Backoff, *, is_open: bool
    ) -> list[PendingBatch]:
        self._last_error = error
        pause_s = backoff.next_s(error.retry_after_s)
        earliest = asyncio.get_running_loop().time() + pause_s
        late = [entry for entry in entries if entry.deadline <= earliest]
        left = entries
        if len(late) == len(entries):
            self._give_up(batch, entries, self.timeout_error())
            return []
        if late and not is_open:
            self.fail(late, self.timeout_error())
            left = [entry for entry in entries if entry.deadline > earliest]
        await asyncio.sleep(pause_s)
        return left

    def _give_up(self, batch: _WireBatch, entries: list[PendingBatch], error: GoQueueError) -> None:
        self._abandon_if_open(batch, is_lost=isinstance(error, _STATE_MISMATCH))
        self.fail(entries, error)

    def _abandon_if_open(self, batch: _WireBatch, *, is_lost: bool = False) -> None:
        if batch.stamp is not None and (batch.maybe_stored or is_lost) and self._sequence is not None:
            self._sequence.abandon()
            batch.maybe_stored = False

    async def _settle_valid(self, entries: list[PendingBatch], error: errors.SchemaViolation, backoff: Backoff) -> None:
        """The broker named the messages that violate the schema: these fail, the others are sent again."""
        left: list[PendingBatch] = []
        partly_failed: list[tuple[PendingBatch, list[Part], dict[int, BaseException]]] = []
        at = 0
        for entry in entries:
            count = len(entry.run)
            failures: dict[int, BaseException] = {
                index: errors.SchemaViolation(error.misfits[at + index])
                for index in range(count)
                if at + index in error.misfits
            }
            at += count
            if not failures:
                left.append(entry)
                continue
            parts: list[Part] = []
            if indexes := [index for index in range(count) if index not in failures]:
                parts.append((indexes, sub_batch(entry, indexes)))
                left.append(parts[0][1])
            partly_failed.append((entry, parts, failures))
        if not partly_failed:
            # It named none of these messages.
            await self._bisect(entries, error, backoff)
            return
        if left:
            await self.settle(left, backoff)
        for entry, parts, failures in partly_failed:
            self._finish(entry, parts, failures)

    async def _bisect(self, entries: list[PendingBatch], error: GoQueueError, backoff: Backoff) -> None:
        """Bisect: an invalid message must not fail its neighbours, so halves are sent until it is found."""
        if len(entries) > 1:
            half = len(entries) // 2
            await self.settle(entries[:half], backoff)
            await self.settle(entries[half:], backoff)
            return
        (entry,) = entries
        count = len(entry.run)
        if count == 1:
            self.fail(entries, error)
            return
        halves = (range(count // 2), range(count // 2, count))
        parts: list[Part] = [(indexes, sub_batch(entry, indexes)) for indexes in halves]
        for _, part in parts:
            await self.settle([part], backoff)
        self._finish(entry, parts, {})

    # Results

    def _finish(self, entry: PendingBatch, parts: list[Part], failures: dict[int, BaseException]) -> None:
        """Set the result of a pending batch from those of its parts, and from failures found before."""
        stored = merge_results(len(entry.run), parts, failures)
        reasons = list({id(each): each for each in stored.failures.values()}.values())
        if len(stored.failures) == len(entry.run) and len(reasons) == 1:
            self.fail([entry], reasons[0])
        else:
            self._succeed(entry, stored)

    def timeout_error(self) -> errors.DeliveryTimeout:
        last = "" if self._last_error is None else f"; the last attempt said: {self._last_error}"
        error = errors.DeliveryTimeout(f"not acknowledged within {self._config.delivery_timeout_ms} ms{last}")
        error.__cause__ = self._last_error
        return error

    def _succeed(self, entry: PendingBatch, stored: Stored) -> None:
        self._release(entry)
        self._last_error = None
        if not entry.done.done():
            entry.done.set_result(stored)

    def fail(self, entries: list[PendingBatch], error: BaseException) -> None:
        for entry in entries:
            self._release(entry)
            if not entry.done.done():
                entry.done.set_exception(error)

    def _release(self, entry: PendingBatch) -> None:
        self._released(entry.size)
        entry.size = 0
