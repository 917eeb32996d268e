"""Publish requests of one connection: batches are written in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from functools import partial
from time import perf_counter

from google.protobuf.message import DecodeError

from goqueue.api.calls.conversion import to_error
from goqueue.api.native.errors import unexpected
from goqueue.api.native.host import Requester
from goqueue.broker.operations import AppendedBatch, TransactionRef
from goqueue.model.errors import GoQueueError, InvalidFrame, InvalidRequest
from goqueue.wire.batch import FrameRun, parse_batch
from goqueue.wire.native.message import Message
from goqueue.wire.native.operations import Operation
from goqueue.wire.native.publish import (
    BatchTarget,
    EntryKind,
    dump_published,
    load_publish,
    more_entry,
    stored_entry,
)
from goqueue.wire.producer_frames import stamp_of
from goqueue.wire.proto import goqueue_pb2 as pb

_OK = "OK"
_ACKS_NONE = int(pb.ACKS_NONE)


class _Request:
    """A publish request and the entries of its answer, which is sent when all of them are there."""

    __slots__ = (
        "_began_s",
        "_code",
        "_connection",
        "_correlation",
        "_entries",
        "_left",
        "acks",
        "batches",
        "place",
        "transaction",
    )

    def __init__(self, connection: Requester, message: Message) -> None:
        self.acks, transaction, self.batches = load_publish(message.head, message.payload)
        self.transaction: pb.TransactionOfBatches | None = None
        if transaction is not None:
            try:
                self.transaction = pb.TransactionOfBatches.FromString(transaction)
            except DecodeError as error:
                raise InvalidRequest(f"the transaction of a publish request cannot be read: {error}") from None
        self.place = 0
        """Of the batch that comes next."""
        self._connection = connection
        self._correlation = message.correlation
        self._left = len(self.batches)
        self._entries = [b""] * self._left
        self._began_s = perf_counter()
        self._code = _OK

    def settle(self, place: int, entry: bytes) -> None:
        self._entries[place] = entry
        self._left -= 1
        if not self._left:
            connection = self._connection
            connection.answer(Operation.PUBLISH, self._correlation, dump_published(self._entries))
            connection.server.publish_endpoint.done(self._code, perf_counter() - self._began_s)
            connection.done()

    def refuse(self, place: int, error: GoQueueError) -> None:
        self._code = error.grpc_status
        self.settle(place, more_entry(EntryKind.REFUSED, to_error(error).SerializeToString()))

    def appended(self, place: int, batch: AppendedBatch) -> None:
        """A batch is written: its entry follows when it is durable, or at once if the client does not wait for that."""
        entry = _entry(batch)
        if self.acks == _ACKS_NONE:
            batch.forget()
            self.settle(place, entry)
        else:
            batch.when_durable(partial(self._durable, place, entry))

    def _durable(self, place: int, entry: bytes, error: GoQueueError | None) -> None:
        if error is None:
            self.settle(place, entry)
        else:
            self.refuse(place, error)


class Publishing:
    """Most batches are written at once. While one takes long to be checked, those behind it wait."""

    def __init__(self, connection: Requester) -> None:
        self._connection = connection
        self._append = connection.operations.publishing.append
        self._behind: deque[_Request] = deque()
        self._task: asyncio.Task[None] | None = None

    def take(self, message: Message) -> None:
        request = _Request(self._connection, message)
        self._connection.begin()
        if self._task is not None:
            self._behind.append(request)
        elif (slow := self._advance(request)) is not None:
            self._task = asyncio.create_task(self._go_on(request, slow))

    def cancel(self) -> None:
        """The client is gone. What was written stays; the rest was never answered."""
        self._behind.clear()
        if self._task is not None:
            self._task.cancel()

    def _advance(self, request: _Request) -> Awaitable[AppendedBatch] | None:
        """Write the request's next batches, up to one that takes long."""
        batches, transaction = request.batches, request.transaction
        while request.place < len(batches):
            place = request.place
            request.place += 1
            try:
                slow = self._begin(request, place, batches[place], transaction)
            except GoQueueError as error:
                request.refuse(place, error)
            except Exception as error:
                request.refuse(place, unexpected(error, "publish"))
            else:
                if slow is not None:
                    return slow
        return None

    def _begin(
        self, request: _Request, place: int, target: BatchTarget, transaction: pb.TransactionOfBatches | None
    ) -> Awaitable[AppendedBatch] | None:
        topic, partition, batch = target
        run = parse_batch(batch)
        named = None if transaction is None else _named(transaction, run)
        appended = self._append(self._connection.caller, topic, partition, run, named)
        if isinstance(appended, AppendedBatch):
            request.appended(place, appended)
            return None
        return appended

    async def _go_on(self, request: _Request, awaited: Awaitable[AppendedBatch] | None) -> None:
        """Until nothing waits behind what takes long."""
        while True:
            while awaited is not None:
                place = request.place - 1
                try:
                    request.appended(place, await awaited)
                except GoQueueError as error:
                    request.refuse(place, error)
                except Exception as error:
                    request.refuse(place, unexpected(error, "publish"))
                awaited = self._advance(request)
            if not self._behind:
                self._task = None
                return
            request = self._behind.popleft()
            awaited = self._advance(request)


def _named(transaction: pb.TransactionOfBatches, run: FrameRun) -> TransactionRef:
    end = int(run.positions[1]) if len(run) > 1 else len(run.frames)
    stamp = stamp_of(bytes(run.frames[:end]))
    if stamp is None:
        raise InvalidFrame("a batch of a transaction must begin with its producer's stamp")
    begin_timeout_ms = transaction.begin.timeout_ms if transaction.HasField("begin") else None
    return TransactionRef(
        stamp.producer_id, stamp.epoch, transaction.transaction_id, begin_timeout_ms, transaction.begin.for_key
    )


def _entry(batch: AppendedBatch) -> bytes:
    due_times = batch.due_times() if batch.may_be_delayed else ()
    if not due_times and not batch.duplicates and not batch.incarnation:
        return stored_entry(batch.first_offset, batch.count)
    stored = pb.Stored(
        first_offset=batch.first_offset,
        count=batch.count,
        deliver_at_ns=due_times,
        duplicates=[
            pb.Duplicate(place=place, partition=first.partition, offset=first.offset)
            for place, first in batch.duplicates.items()
        ],
        incarnation=batch.incarnation,
    )
    return more_entry(EntryKind.STORED_WITH_MORE, stored.SerializeToString())
