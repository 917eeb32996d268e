"""A stream that reads one partition: batches go out as long as the reader gives credit for them."""

from __future__ import annotations

import asyncio

from goqueue.api.calls.conversion import start_at
from goqueue.api.calls.failures import shutting_down
from goqueue.api.native.host import Requester
from goqueue.api.native.requests import decoded, run_stream
from goqueue.broker.operations import Bounds
from goqueue.model.errors import InvalidRequest
from goqueue.wire.native.message import Message, MessageFlag
from goqueue.wire.native.operations import Operation
from goqueue.wire.native.read import MAX_CREDIT_BYTES, dump_read
from goqueue.wire.proto import goqueue_pb2 as pb

_WAIT_MS = 30_000
_MORE = int(MessageFlag.MORE)


class Reading:
    """Begins at once, and ends with its last answer, an error, ``cancel``, or the connection."""

    def __init__(self, connection: Requester, message: Message) -> None:
        self._request = decoded(pb.FetchRequest, message.payload, "the request to read")
        self._connection = connection
        self._correlation = message.correlation
        self._credit = 0
        self._has_credit = asyncio.Event()
        self.give(self._request.credit_bytes)
        endpoint = connection.server.read_endpoint
        work = run_stream(connection, Operation.READ, message.correlation, endpoint, self._send_batches)
        self._task = asyncio.create_task(work)

    def give(self, size_bytes: int) -> None:
        """The reader has room for so many bytes more."""
        self._credit += size_bytes
        if self._credit > MAX_CREDIT_BYTES:
            raise InvalidRequest(f"the credit of a stream is {self._credit} bytes; {MAX_CREDIT_BYTES} are allowed")
        if self._credit > 0:
            self._has_credit.set()

    def cancel(self) -> None:
        self._task.cancel()

    async def _send_batches(self) -> None:
        connection, request = self._connection, self._request
        reading, caller = connection.operations.reading, connection.caller
        most = connection.config.max_batch_bytes
        if request.max_batch_bytes > most:
            raise InvalidRequest(f"max_batch_bytes is {request.max_batch_bytes}; native.max_batch_bytes allows {most}")
        uncommitted = request.read_uncommitted
        bounds = Bounds(request.max_batch_bytes or most, uncommitted=uncommitted)
        offset = reading.find_offset(caller, request.topic, request.partition, start_at(request.start))
        while True:
            await self._has_credit.wait()
            async with connection.sending():
                read = await reading.read_frames(
                    caller, request.topic, request.partition, bounds, offset=offset, verify=request.verify
                )
                offset = read.next_offset
                head = dump_read(offset, read.high_watermark, read.stable_end)
                if read.run is not None:
                    pieces = read.run.pieces()
                    self._spend(sum(map(len, pieces)))
                    connection.answer(Operation.READ, self._correlation, head, pieces, _MORE)
                    continue
            if not request.follow:
                connection.answer(Operation.READ, self._correlation, head)
                return
            if connection.operations.is_stopping:
                raise shutting_down()
            await reading.wait(caller, request.topic, request.partition, offset, _WAIT_MS, uncommitted=uncommitted)

    def _spend(self, size_bytes: int) -> None:
        """One batch may go beyond the credit, so that a message of any size gets through."""
        self._credit -= size_bytes
        if self._credit <= 0:
            self._has_credit.clear()
