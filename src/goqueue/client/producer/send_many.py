"""``send_many``: batches the messages of one call by partition, and collects the result of each."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from itertools import accumulate, repeat
from time import time_ns
from typing import Any, NoReturn

from goqueue.client.messages.outgoing_message import Encoder, Outgoing, Sent, with_trace_headers
from goqueue.client.producer.outbox import Outbox
from goqueue.client.producer.pending_batches import Stored
from goqueue.client.producer.send_input import MAX_CHUNK_MESSAGES, PENDING_BATCH_BYTES, FailedItem, SendInput
from goqueue.model.errors import GoQueueError, InternalError, InvalidMessage, NotAllStored
from goqueue.model.message import Headers, Priority
from goqueue.wire.batch import FrameRun, join_frames
from goqueue.wire.encoding import encode_values
from goqueue.wire.frame import HEADER_SIZE, encode_frame, encode_headers
from goqueue.wire.trace_context import traceparent_in

_BUFFER_FRACTION = 4
"""Frames encoded and not yet enqueued are not counted as buffered; they are limited to this fraction of the buffer."""
_SMALL_BYTES = 256 << 10
"""A value smaller than this is never too large for a broker."""
_TURN = 100
"""Messages encoded one by one before the loop gets a turn."""
_MIN_VECTORIZED = 16
_LEAST_TURN = 8
"""Fewest messages without a key that a partition gets per turn; with less, many small batches would be sent."""
_NORMAL = int(Priority.NORMAL)


class _PartitionFrames:
    """Frames gathered for one partition."""

    __slots__ = ("dedup_ids", "frames", "indexes", "size")

    def __init__(self, dedup_ids: set[str] | None) -> None:
        self.dedup_ids = dedup_ids
        """``None`` if its messages have none: messages with dedup ids are batched separately."""
        self.frames: list[bytes] = []
        self.indexes: list[int] = []
        self.size = 0

    def takes(self, size: int, dedup_id: str | None, most_bytes: int) -> bool:
        """Whether a message of this size, with this dedup id or none, can be added."""
        if self.size + size > most_bytes:
            return False
        if self.dedup_ids is None or dedup_id is None:
            return self.dedup_ids is None and dedup_id is None
        return dedup_id not in self.dedup_ids


async def send_many(outbox: Outbox, topic: str, messages: SendInput) -> list[Sent]:
    """Send all messages, and wait until each is stored or has failed."""
    outbox.check_open()
    encoder = outbox.encoder if outbox.encoder.is_topic_independent else await outbox.encoder.for_topic(topic)
    sending = _SendMany(outbox, encoder, topic, await outbox.partitions(topic), outbox.trace())
    try:
        await sending.encode_all(messages)
        outbox.send_now(topic)
        await sending.settled()
    except BaseException:
        sending.log_failures_when_settled()
        raise
    return sending.results()


class _SendMany:
    """One call of ``send_many``: gathers messages by partition, and enqueues them while the rest is being encoded."""

    def __init__(self, outbox: Outbox, encoder: Encoder, topic: str, partitions: int, trace: Headers) -> None:
        self._outbox = outbox
        self._encoder = encoder
        self._topic = topic
        self._partitions = partitions
        self._gathered: dict[int, _PartitionFrames] = {}
        self._gathered_bytes = 0
        """Total of all partitions."""
        self._complete: list[tuple[int, _PartitionFrames]] = []
        """Complete batches, in the order in which they have to be enqueued."""
        self._most_gathered = outbox.buffer_bytes // _BUFFER_FRACTION
        self._max_batch_bytes = min(PENDING_BATCH_BYTES, self._most_gathered)
        self._sent: list[tuple[int, Sequence[int], asyncio.Future[Stored]]] = []
        """Partition, indexes of the messages, and their future result."""
        self._lanes: list[int] = []
        self._trace = trace
        self._trace_headers = encode_headers(trace)
        parent = traceparent_in(trace)
        self._own_trace = None if parent is None else parent.trace_id
        self._named_traces: dict[int, str] = {}
        """Trace ids by index, of messages that carry one."""
        self._keyless: int | None = None
        self._turn_left = 0
        """Messages without a key still to go to the current partition."""
        self._turn = _LEAST_TURN
        self._failures: dict[int, Exception] = {}
        """By index: messages that were not enqueued."""
        self._refusal: GoQueueError | None = None
        """Why no more messages are enqueued."""

    async def encode_all(self, chunks: AsyncIterator[Sequence[Any]]) -> None:
        async for chunk in chunks:
            # Partitions get equal parts of a chunk, so that all consumers of the topic have work.
            self._turn = max(_LEAST_TURN, -(-len(chunk) // self._partitions))
            if self._refusal is None and self._is_plain(chunk):
                await self._encode_values(chunk)
                continue
            for item in chunk:
                self._encode_one(item)
                if self._complete or not len(self._lanes) % _TURN:
                    await self._send_full()
                    # Let batches be sent while the rest is being encoded.
                    await asyncio.sleep(0)
        self._close_all()
        await self._send_full()

    def _is_plain(self, chunk: Sequence[Any]) -> bool:
        """Whether all are plain values, and enough of them for the vectorized encoder to pay off."""
        return (
            self._encoder.is_plain
            and len(chunk) >= _MIN_VECTORIZED
            and set(map(type, chunk)) == {bytes}
            and max(map(len, chunk)) < _SMALL_BYTES
        )

    async def _encode_values(self, values: Sequence[bytes]) -> None:
        """Encode many values at once, and enqueue them in batches."""
        index = len(self._lanes)
        self._lanes += repeat(_NORMAL, len(values))
        if self._own_trace is not None:
            self._named_traces.update(dict.fromkeys(range(index, index + len(values)), self._own_trace))
        around_each = HEADER_SIZE + len(self._trace_headers)
        turns = (values[first : first + self._turn] for first in range(0, len(values), self._turn))
        for some in (part for turn in turns for part in _split(turn, around_each, self._max_batch_bytes)):
            number = self._next_keyless()
            self._keyless = None
            if number in self._gathered:
                # Messages gathered for this partition before come first.
                self._close(number)
                await self._send_full()
            run = encode_values(some, self._trace_headers, time_ns(), _NORMAL, self._outbox.flags)
            await self._enqueue(number, run, range(index, index + len(some)), None)
            index += len(some)
            # Let batches be sent while the rest is being encoded.
            await asyncio.sleep(0)

    def _encode_one(self, item: Any) -> None:
        index = len(self._lanes)
        if self._refusal is not None:
            self._failures[index] = self._refusal
            self._lanes.append(_NORMAL)
            return
        encoder, flags = self._encoder, self._outbox.flags
        number: int | None
        try:
            if type(item) is bytes and encoder.is_plain and len(item) < _SMALL_BYTES:
                frame = encode_frame(b"", item, self._trace_headers, time_ns(), _NORMAL, flags)
                lane, number, named, dedup_id = _NORMAL, None, self._own_trace, None
            elif type(item) is FailedItem:
                raise item.error
            else:
                message = item if isinstance(item, Outgoing) else Outgoing(item)
                message, named = with_trace_headers(encoder.with_key_bytes(message), self._trace)
                frame, lane = encoder.encode(message, flags, leave_room=self._outbox.is_numbered)
                number, dedup_id = self._route(message), message.dedup_id
        except Exception as error:
            # Includes errors of a serializer: they concern this message only, and the others are sent.
            self._failures[index] = error
            self._lanes.append(_NORMAL)
            return
        self._lanes.append(lane)
        if named is not None:
            self._named_traces[index] = named
        self._gather(frame, index, number, dedup_id)

    def _gather(self, frame: bytes, index: int, routed: int | None, dedup_id: str | None) -> None:
        """Add a frame to those of its partition; to the current partition if it is routed to none."""
        number = self._next_keyless() if routed is None else routed
        gathered = self._gathered.get(number)
        while gathered is not None and not gathered.takes(len(frame), dedup_id, self._max_batch_bytes):
            self._close(number)
            if routed is None:
                number = self._next_keyless()
            gathered = self._gathered.get(number)
        if gathered is None:
            gathered = self._gathered[number] = _PartitionFrames(None if dedup_id is None else set())
        if dedup_id is not None and gathered.dedup_ids is not None:
            gathered.dedup_ids.add(dedup_id)
        gathered.frames.append(frame)
        gathered.indexes.append(index)
        gathered.size += len(frame)
        self._gathered_bytes += len(frame)
        if gathered.size >= self._max_batch_bytes or len(gathered.frames) >= MAX_CHUNK_MESSAGES:
            self._close(number)
        elif self._gathered_bytes >= self._most_gathered:
            # With many partitions, the limit is reached before any single batch is full.
            self._close_all()

    def _route(self, message: Outgoing) -> int | None:
        """``None``: any partition."""
        if message.partition is None and not message.key:
            return None
        return self._outbox.route(self._topic, message, self._partitions)

    def _next_keyless(self) -> int:
        """Messages without a key stay in one partition for a turn, or until its batch is enqueued."""
        if self._keyless is None or not self._turn_left:
            self._keyless = self._outbox.next_keyless(self._topic, self._partitions)
            self._turn_left = self._turn
        self._turn_left -= 1
        return self._keyless

    def _close_all(self) -> None:
        for number in list(self._gathered):
            self._close(number)

    def _close(self, number: int) -> None:
        gathered = self._gathered.pop(number)
        self._gathered_bytes -= gathered.size
        self._complete.append((number, gathered))
        if number == self._keyless:
            self._keyless = None

    async def _send_full(self) -> None:
        complete, self._complete = self._complete, []
        for number, gathered in complete:
            dedup_ids = None if gathered.dedup_ids is None else frozenset(gathered.dedup_ids)
            joined = join_frames(gathered.frames, 0)
            run = FrameRun(memoryview(joined.frames), joined.positions)
            await self._enqueue(number, run, gathered.indexes, dedup_ids)

    async def _enqueue(
        self, number: int, run: FrameRun, indexes: Sequence[int], dedup_ids: frozenset[str] | None
    ) -> None:
        if self._refusal is not None:
            self._failures.update(dict.fromkeys(indexes, self._refusal))
            return
        try:
            done = await self._outbox.enqueue(self._topic, number, run, dedup_ids)
        except GoQueueError as error:
            # The buffer is full, or the producer was closed: later messages would wait in vain.
            self._refusal = error
            self._failures.update(dict.fromkeys(indexes, error))
        else:
            self._sent.append((number, indexes, done))

    async def settled(self) -> None:
        """Wait until all enqueued messages are settled. A cancelled caller does not cancel the messages."""
        if self._sent:
            await asyncio.wait([done for _, _, done in self._sent])

    def log_failures_when_settled(self) -> None:
        """The caller has gone and reads no results, so failures are logged."""
        for number, indexes, done in self._sent:
            log_failures = partial(self._log_failures, number, len(indexes))
            if done.done():
                log_failures(done)
            else:
                done.add_done_callback(log_failures)

    def _log_failures(self, number: int, count: int, done: asyncio.Future[Stored]) -> None:
        error = done.exception()
        if error is None:
            failures = done.result().failures
            error, count = next(iter(failures.values()), None), len(failures)
        if error is not None:
            self._outbox.warn(self._topic, number, error, count)

    def results(self) -> list[Sent]:
        """The results, once everything is settled."""
        found: list[Any] = [None] * len(self._lanes)
        failures: dict[int, BaseException] = dict(self._failures)
        for number, indexes, done in self._sent:
            if (error := done.exception()) is not None:
                failures.update(dict.fromkeys(indexes, error))
                continue
            stored = done.result()
            positions = self._positions(number, indexes, stored)
            if isinstance(indexes, range):
                found[indexes.start : indexes.stop] = positions
            else:
                for index, each in zip(indexes, positions, strict=True):
                    found[index] = each
            failures.update((indexes[at], error) for at, error in stored.failures.items())
        if failures:
            for index, error in failures.items():
                found[index] = error
            _raise_failures(found, failures)
        return found

    def _positions(self, number: int, indexes: Sequence[int], stored: Stored) -> Iterator[Sent]:
        """The position of each message of a batch."""
        if len(stored.offsets) != len(indexes):
            raise InternalError(f"{len(indexes)} messages were sent and {len(stored.offsets)} offsets came back")
        topic, trace_at, lanes = self._topic, self._named_traces.get, self._lanes
        if stored.dues is None and not stored.duplicates:
            traces = map(trace_at, indexes) if self._named_traces else repeat(None)
            of_each = map(lanes.__getitem__, indexes)
            return map(
                Sent, repeat(number), stored.offsets, of_each, repeat(None), repeat(False), repeat(topic), traces
            )
        return (
            Sent(
                *stored.position_of(at, number),
                lanes[index],
                stored.due(at),
                at in stored.duplicates,
                topic,
                trace_at(index),
            )
            for at, index in enumerate(indexes)
        )


def _split(values: Sequence[bytes], around_each: int, most_bytes: int) -> Iterator[Sequence[bytes]]:
    """Parts whose frames fit one batch, or of one value. ``around_each``: bytes of a frame beside the value."""
    ends = list(accumulate(map(around_each.__add__, map(len, values))))
    first = so_far = 0
    while first < len(values):
        end = max(bisect_right(ends, so_far + most_bytes, first), first + 1)
        yield values[first:end]
        first, so_far = end, ends[end - 1]


def _raise_failures(outcomes: list[Any], failures: dict[int, BaseException]) -> NoReturn:
    """Raise the common reason if all failed for the same one; otherwise ``NotAllStored`` with every outcome."""
    first = min(failures)
    if len(failures) == len(outcomes) and len(set(map(_reason, outcomes))) == 1:
        raise outcomes[first]
    raise NotAllStored(
        f"{len(failures)} of {len(outcomes)} messages are not stored; the first of them, at place {first}: "
        f"{outcomes[first]}",
        outcomes,
    ) from outcomes[first]


def _reason(error: BaseException) -> object:
    """Key for comparing reasons. An invalid message's error counts with its text, which describes that message."""
    return (type(error), str(error)) if isinstance(error, InvalidMessage) else type(error)
