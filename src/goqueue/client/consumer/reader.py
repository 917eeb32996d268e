"""Reader by offset: batches are prefetched, and decoded when they are read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing, suppress
from datetime import datetime
from functools import partial
from itertools import repeat
from typing import Any, Literal, get_args

import msgspec

from goqueue.client.connection.connection import Connection
from goqueue.client.connection.directory import Directory
from goqueue.client.connection.instants import from_nanoseconds, to_nanoseconds
from goqueue.client.connection.tasks import cancel
from goqueue.client.messages.serializers import Deserializer
from goqueue.model.errors import CorruptData, GoQueueError, InvalidRequest
from goqueue.model.message import Headers, Message
from goqueue.wire.batch import FrameRun, damaged_places, parse_batch
from goqueue.wire.compression import decompress
from goqueue.wire.decoding import decode_columns, plain_values
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.trace_context import trace_id_of

Start = Literal["earliest", "latest"] | int | datetime
"""Where to start: at either end, at an offset, or at the first message at or after an instant."""

Isolation = Literal["read_committed", "read_uncommitted"]
"""Whether messages of open and aborted transactions are read as well."""

_MAX_OFFSET = (1 << 63) - 1
_CHUNK_RECORDS = 1_000
MAX_UNPACKED_BYTES = 64 << 20
"""The largest message size that a topic can be configured with."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """A message read by offset. ``value`` is bytes, or what the deserializer makes of them; ``None`` for a
    tombstone."""

    topic: str
    partition: int
    offset: int
    timestamp_ns: int
    key: bytes | None
    value: Any
    headers: Headers
    priority: int

    @property
    def timestamp(self) -> datetime:
        return from_nanoseconds(self.timestamp_ns)

    @property
    def trace_id(self) -> str:
        """The trace of the message, 32 hexadecimal digits: the producer's, or one derived from its position."""
        return trace_id_of(self.headers, self.topic, self.partition, self.offset)


class Batch(msgspec.Struct, frozen=True):
    """Undecoded frames of one partition, as they are in its log."""

    topic: str
    partition: int
    run: FrameRun
    next_offset: int
    on_damage: Callable[[int], None] | None = None
    """Called with the offset of a message that fails its checksum, in the thread that detects it."""

    def records(self, deserializer: Deserializer | None = None) -> Iterator[Record]:
        """Decode. Raises at a message that fails its checksum, after yielding all before it.

        Values are decompressed one by one as they are taken: a small batch may hold many that expand to a lot.
        """
        damaged = damaged_places(self.run, self.run.columns())
        whole = self.run.part(0, damaged[0]) if damaged else self.run
        # In chunks, so that the first record does not wait for thousands.
        for first in range(0, len(whole), _CHUNK_RECORDS):
            chunk = whole.part(first, min(first + _CHUNK_RECORDS, len(whole)))
            yield from records_of(chunk, self.topic, self.partition, deserializer)
        if damaged:
            raise self._corrupt(damaged[0])

    def values(self) -> Iterator[bytes | None]:
        """Only the values, as they were sent; ``None`` for a tombstone. For fast reading of many.

        All or none: raises if any message fails its checksum.
        """
        damaged = damaged_places(self.run, self.run.columns())
        if damaged:
            raise self._corrupt(damaged[0])
        values = plain_values(self.run)
        if values is not None:
            return iter(values)
        return (unpacked(message, None) for message in decode_columns(self.run).messages())

    def _corrupt(self, index: int) -> CorruptData:
        offset = self._offset_at(index)
        if self.on_damage is not None:
            self.on_damage(offset)
        return CorruptData(
            f"the message at offset {offset} of {self.topic}/{self.partition} fails its checksum; "
            f"to step over it, read on from {offset + 1}"
        )

    def _offset_at(self, index: int) -> int:
        """Offset of a damaged frame: the one in the frame, if it fits between its neighbours.

        Offsets cannot be counted: delayed and compacted messages leave gaps.
        """
        offsets: list[int] = self.run.columns()["offset"].tolist()
        before = offsets[index - 1] if index else -1
        behind = offsets[index + 1] if index + 1 < len(offsets) else self.next_offset
        return offsets[index] if before < offsets[index] < behind else behind - 1


class Reader:
    """Fetches batches of one partition or of a whole topic. Resumes by itself after a broken connection.

    Not a generator: asyncio closes all generators at once when a loop ends, and a nested one does not survive that.
    """

    def __init__(
        self,
        directory: Directory,
        topic: str,
        partition: int | None,
        start: Start,
        *,
        follow: bool,
        prefetch_batches: int,
        retry_for_s: float,
        isolation: Isolation = "read_committed",
    ) -> None:
        if isolation not in get_args(Isolation):
            raise InvalidRequest(f"isolation is {isolation!r}; there are {' and '.join(get_args(Isolation))}")
        self._uncommitted = isolation == "read_uncommitted"
        self._directory = directory
        self._topic = topic
        self._partition = partition
        self._start = to_start(start)
        self._follow = follow
        self._retry_for_s = retry_for_s
        self._batches: asyncio.Queue[Batch | Exception | None] = asyncio.Queue(prefetch_batches)
        self._tasks: list[asyncio.Task[None]] | None = None
        self._open_partitions = 0
        self._next_offsets: dict[int, int] = {}
        self._has_reported = False

    async def next(self) -> Batch | None:
        """The next batch, in offset order within each partition. ``None`` at the end of the log, unless following."""
        if self._tasks is None:
            if self._partition is not None:
                numbers = [self._partition]
            else:
                numbers = list(range(await self._directory.partitions(self._topic)))
            self._tasks = [asyncio.create_task(self._fetch(number)) for number in numbers]
            self._open_partitions = len(numbers)
        while self._open_partitions:
            batch = await self._batches.get()
            if isinstance(batch, Exception):
                raise batch
            if batch is not None:
                return batch
            self._open_partitions -= 1
        return None

    async def close(self) -> None:
        await cancel(*self._tasks or ())

    def _damaged(self, loop: asyncio.AbstractEventLoop, leader: Connection, number: int, offset: int) -> None:
        """Report a damaged message to the broker. It sends frames unverified, so only a reader detects damage."""
        with suppress(RuntimeError):
            # The loop may be closed by now.
            loop.call_soon_threadsafe(self._start_report, leader, number, offset)

    def _start_report(self, leader: Connection, number: int, offset: int) -> None:
        if not self._has_reported:
            self._has_reported = True
            self._directory.run_in_background(self._report(leader, number, offset))

    async def _report(self, leader: Connection, number: int, offset: int) -> None:
        request = self._request(number, offset, verify=True)
        with suppress(GoQueueError):
            async with aclosing(leader.fetch(request)) as responses:
                await anext(responses, None)

    async def _fetch(self, number: int) -> None:
        """Fetch one partition; ends with ``None`` in the queue, or with the error."""
        try:
            await self._fetch_all(number)
        except Exception as error:
            await self._batches.put(error)
        else:
            await self._batches.put(None)

    async def _fetch_all(self, number: int) -> None:
        backoff = self._directory.backoff()
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._retry_for_s
        while True:
            try:
                leader = await self._directory.leader(self._topic, number)
                if number not in self._next_offsets:
                    # Resolved once: 'latest' would be later after a broken connection, and skip what lies in between.
                    self._next_offsets[number] = await self._find(leader, number)
                request = self._request(number, self._next_offsets[number], follow=self._follow)
                async with aclosing(leader.fetch(request)) as responses:
                    async for response, batch in responses:
                        self._next_offsets[number] = response.next_offset
                        if batch:
                            run = parse_batch(batch)
                            report = partial(self._damaged, loop, leader, number)
                            await self._batches.put(Batch(self._topic, number, run, response.next_offset, report))
                        give_up_at = loop.time() + self._retry_for_s
                        backoff.reset()
                return
            except GoQueueError as error:
                self._directory.mark_stale(self._topic, error)
                pause_s = backoff.next_s(error.retry_after_s)
                if not error.retriable or loop.time() + pause_s > give_up_at:
                    raise
            await asyncio.sleep(pause_s)

    def _request(self, number: int, offset: int, *, follow: bool = False, verify: bool = False) -> pb.FetchRequest:
        return pb.FetchRequest(
            topic=self._topic,
            partition=number,
            start=pb.Start(offset=offset),
            follow=follow,
            read_uncommitted=self._uncommitted,
            verify=verify,
        )

    async def _find(self, leader: Connection, number: int) -> int:
        request = pb.FindOffsetRequest(topic=self._topic, partition=number, start=self._start)
        return int((await leader.call(leader.metadata.FindOffset, request)).offset)


def records_of(run: FrameRun, topic: str, partition: int, deserializer: Deserializer | None) -> Iterator[Record]:
    """Records of undamaged frames. An error of the deserializer does not end iteration: the next call yields the next
    record.

    Values are decompressed one by one as they are taken: a small batch may hold many that expand to a lot.
    """
    if not len(run):
        return iter(())
    columns = decode_columns(run)
    if columns.is_plain and deserializer is None:
        return map(
            Record,
            repeat(topic),
            repeat(partition),
            columns.offsets,
            columns.timestamps_ns,
            columns.keys,
            columns.values,
            columns.headers,
            columns.priorities,
        )

    def record(message: Message) -> Record:
        try:
            value = unpacked(message, deserializer)
        except StopIteration as error:
            # StopIteration would end the caller's iteration without an error.
            raise RuntimeError("the deserializer raised StopIteration") from error
        position = message.offset, message.timestamp_ns
        return Record(topic, partition, *position, message.key, value, message.headers, message.priority)

    return map(record, columns.messages())


def unpacked(message: Message, deserializer: Deserializer | None) -> Any:
    """The value, decompressed and deserialized."""
    if message.tombstone:
        return None
    value = decompress(message.value, MAX_UNPACKED_BYTES) if message.compressed else message.value
    return deserializer(value) if deserializer else value


def to_start(start: Start) -> pb.Start:
    if isinstance(start, datetime):
        return pb.Start(instant_ns=to_nanoseconds(start))
    if start == "earliest":
        return pb.Start(position=pb.POSITION_EARLIEST)
    if start == "latest":
        return pb.Start(position=pb.POSITION_LATEST)
    if isinstance(start, int) and 0 <= start <= _MAX_OFFSET:
        return pb.Start(offset=start)
    raise InvalidRequest(f"cannot begin reading at {start!r}; use 'earliest', 'latest', an offset or a datetime")
