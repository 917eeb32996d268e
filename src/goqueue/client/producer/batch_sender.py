"""Delivery of one partition's batches, one at a time: sent, retried, or split until every message has a result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from goqueue.client.connection.backoff import Backoff
from goqueue.client.connection.config import ProducerConfig
from goqueue.client.connection.connection import NotConnected
from goqueue.client.producer.pending_batches import (
    UNKNOWN_OFFSET,
    Parcel,
    Part,
    Stored,
    part_of,
    put_together,
    shared_out,
)
from goqueue.client.producer.sequences import Sequence as Numbering
from goqueue.model.errors import (
    DeliveryTimeout,
    DuplicateSequence,
    GoQueueError,
    InvalidMessage,
    InvalidRequest,
    OutOfOrderSequence,
    Overloaded,
    PartitionNotFound,
    ProducerFenced,
    SchemaViolation,
    TooManyDedupIds,
    TooManyDelayed,
    TopicNotFound,
    TransactionAborted,
    TransactionConflict,
    TransactionNotFound,
    UnknownProducer,
    WrongPort,
)
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
    InvalidRequest,
    NotConnected,
    OutOfOrderSequence,
    Overloaded,
    PartitionNotFound,
    ProducerFenced,
    TooManyDedupIds,
    TooManyDelayed,
    TopicNotFound,
    TransactionAborted,
    TransactionConflict,
    TransactionNotFound,
    UnknownProducer,
    WrongPort,
)
"""Errors after which nothing was stored. After any other error the batch may have been stored."""
_OUT_OF_STEP = (OutOfOrderSequence, ProducerFenced, UnknownProducer)
"""Errors that mean the broker's state of the producer differs from the producer's own."""


@dataclass(slots=True)
class _Batch:
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
        self,
        config: ProducerConfig,
        deliver: Deliver,
        released: Callable[[int], None],
        sequence: Numbering | None,
    ) -> None:
        self._config = config
        self._deliver = deliver
        self._released = released
        self._sequence = sequence
        self._last_error: GoQueueError | None = None

    async def settle(self, parcels: list[Parcel], backoff: Backoff) -> None:
        """Deliver, with retries; afterwards every pending batch has its result."""
        batch = self._batch_of(parcels)
        try:
            while parcels:
                try:
                    # Earlier deadlines are handled by the queue's timer; the attempt goes on for the others.
                    async with asyncio.timeout_at(parcels[-1].deadline):
                        stored = await self._attempt(batch)
                except TimeoutError:
                    self._give_up(batch, parcels, self.too_late())
                    return
                except GoQueueError as error:
                    left = await self._after_error(batch, parcels, error, backoff)
                    if left is not parcels or batch.wire is None:
                        parcels, batch = left, self._batch_of(left)
                else:
                    self._stored(batch, parcels, stored)
                    return
        except BaseException:
            # Cancelled, or a bug.
            self._abandon_if_open(batch)
            raise

    def _batch_of(self, parcels: list[Parcel]) -> _Batch:
        is_numbered = self._sequence is not None and all(parcel.dedup_ids is None for parcel in parcels)
        return _Batch([parcel.run for parcel in parcels], is_numbered)

    async def _attempt(self, batch: _Batch) -> pb.Stored:
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

    def _stored(self, batch: _Batch, parcels: list[Parcel], stored: pb.Stored) -> None:
        self._advance(batch)
        for parcel, share in zip(parcels, shared_out(stored, [len(each.run) for each in parcels]), strict=True):
            self._succeed(parcel, share)

    def _advance(self, batch: _Batch) -> None:
        if self._sequence is not None and batch.stamp is not None:
            self._sequence.stored(batch.stamp)
        batch.maybe_stored = False

    # Errors

    async def _after_error(
        self, batch: _Batch, parcels: list[Parcel], error: GoQueueError, backoff: Backoff
    ) -> list[Parcel]:
        """Pause; return what is left to retry. The same list means the same wire batch, unless its ``wire`` was
        reset."""
        is_open = batch.stamp is not None and batch.maybe_stored
        if batch.stamp is not None and self._sequence is not None and self._sequence.begins_anew:
            if isinstance(error, DuplicateSequence):
                # An earlier attempt stored it, at an unknown offset.
                self._advance(batch)
                for parcel in parcels:
                    self._succeed(parcel, Stored([UNKNOWN_OFFSET] * len(parcel.run)))
                return []
            if isinstance(error, OutOfOrderSequence) or (isinstance(error, _OUT_OF_STEP) and not is_open):
                return await self._begin_anew(batch, parcels, error, backoff)
        if is_open and not error.retriable:
            # It may have been stored whole, so no part of it can be sent again.
            self._give_up(batch, parcels, error)
            return []
        if isinstance(error, SchemaViolation):
            await self._settle_fitting(parcels, error, backoff)
            return []
        if isinstance(error, InvalidMessage | TooManyDelayed):
            await self._settle_apart(parcels, error, backoff)
            return []
        if not error.retriable:
            self._give_up(batch, parcels, error)
            return []
        return await self._pause(batch, parcels, error, backoff, is_open=is_open)

    async def _begin_anew(
        self, batch: _Batch, parcels: list[Parcel], error: GoQueueError, backoff: Backoff
    ) -> list[Parcel]:
        """Continue under a new producer id: the broker has lost earlier batches, or does not know this producer.

        This cannot store anything twice: a batch whose predecessors are missing was not stored by any attempt, and
        never will be under the old id.
        """
        log.warning("a producer goes on under another id", error=str(error))
        if self._sequence is not None:
            self._sequence.abandon()
        batch.stamp = batch.wire = None
        batch.maybe_stored = False
        return await self._pause(batch, parcels, error, backoff, is_open=False)

    async def _pause(
        self, batch: _Batch, parcels: list[Parcel], error: GoQueueError, backoff: Backoff, *, is_open: bool
    ) -> list[Parcel]:
        self._last_error = error
        pause_s = backoff.next_s(error.retry_after_s)
        earliest = asyncio.get_running_loop().time() + pause_s
        late = [parcel for parcel in parcels if parcel.deadline <= earliest]
        left = parcels
        if len(late) == len(parcels):
            self._give_up(batch, parcels, self.too_late())
            return []
        if late and not is_open:
            self.fail(late, self.too_late())
            left = [parcel for parcel in parcels if parcel.deadline > earliest]
        await asyncio.sleep(pause_s)
        return left

    def _give_up(self, batch: _Batch, parcels: list[Parcel], error: GoQueueError) -> None:
        self._abandon_if_open(batch, is_lost=isinstance(error, _OUT_OF_STEP))
        self.fail(parcels, error)

    def _abandon_if_open(self, batch: _Batch, *, is_lost: bool = False) -> None:
        if batch.stamp is not None and (batch.maybe_stored or is_lost) and self._sequence is not None:
            self._sequence.abandon()
            batch.maybe_stored = False

    async def _settle_fitting(self, parcels: list[Parcel], error: SchemaViolation, backoff: Backoff) -> None:
        """The broker named the messages that violate the schema: these fail, the others are sent again."""
        left: list[Parcel] = []
        broken: list[tuple[Parcel, list[Part], dict[int, BaseException]]] = []
        at = 0
        for parcel in parcels:
            count = len(parcel.run)
            failures: dict[int, BaseException] = {
                place: SchemaViolation(error.misfits[at + place])
                for place in range(count)
                if at + place in error.misfits
            }
            at += count
            if not failures:
                left.append(parcel)
                continue
            parts: list[Part] = []
            if places := [place for place in range(count) if place not in failures]:
                parts.append((places, part_of(parcel, places)))
                left.append(parts[0][1])
            broken.append((parcel, parts, failures))
        if not broken:
            # It named none of these messages.
            await self._settle_apart(parcels, error, backoff)
            return
        if left:
            await self.settle(left, backoff)
        for parcel, parts, failures in broken:
            self._finish(parcel, parts, failures)

    async def _settle_apart(self, parcels: list[Parcel], error: GoQueueError, backoff: Backoff) -> None:
        """Bisect: an invalid message must not fail its neighbours, so halves are sent until it is found."""
        if len(parcels) > 1:
            half = len(parcels) // 2
            await self.settle(parcels[:half], backoff)
            await self.settle(parcels[half:], backoff)
            return
        (parcel,) = parcels
        count = len(parcel.run)
        if count == 1:
            self.fail(parcels, error)
            return
        halves = (range(count // 2), range(count // 2, count))
        parts: list[Part] = [(places, part_of(parcel, places)) for places in halves]
        for _, part in parts:
            await self.settle([part], backoff)
        self._finish(parcel, parts, {})

    # Results

    def _finish(self, parcel: Parcel, parts: list[Part], failures: dict[int, BaseException]) -> None:
        """Set the result of a pending batch from those of its parts, and from failures found before."""
        stored = put_together(len(parcel.run), parts, failures)
        reasons = list({id(each): each for each in stored.failures.values()}.values())
        if len(stored.failures) == len(parcel.run) and len(reasons) == 1:
            self.fail([parcel], reasons[0])
        else:
            self._succeed(parcel, stored)

    def too_late(self) -> DeliveryTimeout:
        last = "" if self._last_error is None else f"; the last attempt said: {self._last_error}"
        error = DeliveryTimeout(f"not acknowledged within {self._config.delivery_timeout_ms} ms{last}")
        error.__cause__ = self._last_error
        return error

    def _succeed(self, parcel: Parcel, stored: Stored) -> None:
        self._release(parcel)
        self._last_error = None
        if not parcel.done.done():
            parcel.done.set_result(stored)

    def fail(self, parcels: list[Parcel], error: BaseException) -> None:
        for parcel in parcels:
            self._release(parcel)
            if not parcel.done.done():
                parcel.done.set_exception(error)

    def _release(self, parcel: Parcel) -> None:
        self._released(parcel.size)
        parcel.size = 0
