"""Publish requests of one connection: batches are written in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from functools import partial
from time import perf_counter

from goqueue.api.calls.batches import to_stored, transaction_of_batch
from goqueue.api.calls.conversion import to_error
from goqueue.api.native.host import Requester
from goqueue.api.native.requests import decoded, known
from goqueue.broker.operations import AppendedBatch
from goqueue.model.errors import GoQueueError
from goqueue.wire.batch import parse_batch
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
            self.transaction = decoded(pb.TransactionOfBatches, transaction, "the transaction of a publish request")
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
            except Exception as error:
                request.refuse(place, known(error, "publish"))
            else:
                if slow is not None:
                    return slow
        return None

    def _begin(
        self, request: _Request, place: int, target: BatchTarget, transaction: pb.TransactionOfBatches | None
    ) -> Awaitable[AppendedBatch] | None:
        topic, partition, batch = target
        run = parse_batch(batch)
        named = None if transaction is None else transaction_of_batch(transaction, run)
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
                except Exception as error:
                    request.refuse(place, known(error, "publish"))
                awaited = self._advance(request)
            if not self._behind:
                self._task = None
                return
            request = self._behind.popleft()
            awaited = self._advance(request)


def _entry(batch: AppendedBatch) -> bytes:
    stored = to_stored(batch)
    if not stored.deliver_at_ns and not batch.duplicates and not batch.incarnation:
        return stored_entry(batch.first_offset, batch.count)
    return more_entry(EntryKind.STORED_WITH_MORE, stored.SerializeToString())
