"""Publishing: route, encode or verify, append, wait for the acknowledgement that the topic promises."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from goqueue.broker.delays import Delays, due_time
from goqueue.broker.disk_guard import DiskGuard
from goqueue.broker.pacing import in_stretches
from goqueue.broker.refused import Refusals, Refused
from goqueue.broker.schema_check import Problems
from goqueue.broker.topic import Topic
from goqueue.model.errors import (
    GoQueueError,
    InvalidMessage,
    MessageTooLarge,
    SchemaViolation,
    TimestampOutOfRange,
    TopicNotFound,
)
from goqueue.model.fields import shown
from goqueue.model.message import NO_HEADERS, PRIORITY_LABELS, Headers
from goqueue.model.ports import NANOS_PER_MS, NANOS_PER_SECOND, Clock
from goqueue.model.publishing import NewMessage, Outcome, Published
from goqueue.observe.histogram import Histogram
from goqueue.wire.batch import MAX_BATCH_BYTES, FrameRun, join_frames
from goqueue.wire.delayed import MAX_DELAYED_HEADERS_BYTES, due_header
from goqueue.wire.frame import MAX_KEY_BYTES, Flag, encode_frame, encode_headers
from goqueue.wire.internal_headers import MAX_TTL_MS, RESERVED_PREFIX, TTL
from goqueue.wire.verify import FrameRules, verify_batch

_LARGE_BATCH_BYTES = 256 << 10
_PARTITIONS_AT_A_STRETCH = 8


@dataclass(slots=True)
class _Share:
    """What one partition gets of a request in one batch."""

    number: int
    frames: list[bytes] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    size: int = 0
    max_timestamp_ns: int = 0
    dues: dict[int, int] = field(default_factory=dict)
    """Of those that are delayed: when they are due, by their place in this batch."""
    refused: Problems = field(default_factory=dict)
    """Why some become dead letters, by their place in this batch."""


class Publisher:
    """Stateless but for the round robin that each topic keeps."""

    def __init__(
        self, guard: DiskGuard, clock: Clock, delays: Delays, refusals: Refusals, publish_seconds: Histogram
    ) -> None:
        self._guard = guard
        self._clock = clock
        self._delays = delays
        self._refusals = refusals
        self._publish_seconds = publish_seconds
        """From the append of a message to its acknowledgement."""

    async def publish(self, topic: Topic, messages: Sequence[NewMessage]) -> list[Outcome]:
        """Store what can be stored; the answer has one outcome for each message, in order."""
        self._guard.check()
        now_ns = self._clock.now_ns()
        outcomes: list[Outcome | None] = [None] * len(messages)
        refused = await self._refusals.among(topic, _values(topic, messages))
        if refused.target is None:
            for place, reason in refused.reasons.items():
                outcomes[place] = SchemaViolation(reason)
        shares = await self._encode(topic, messages, now_ns, outcomes, refused.reasons)
        if topic.closed:
            raise TopicNotFound(f"topic {topic.name!r} was deleted")
        written: list[tuple[_Share, int, int, asyncio.Future[None]]] = []
        for turn, share in enumerate(shares):
            if turn and (share.size >= _LARGE_BATCH_BYTES or turn % _PARTITIONS_AT_A_STRETCH == 0):
                # A large request must not hold up everyone else while it is written; first writes make files.
                await asyncio.sleep(0)
            partition = topic.partitions[share.number]
            began_ns = self._clock.monotonic_ns()
            try:
                if share.refused:
                    here = Refused(share.refused, refused.target)
                    first, acknowledged = self._refusals.append(
                        topic, share.number, share.frames, share.max_timestamp_ns, here, now_ns
                    )
                else:
                    first = self._delays.append(partition, join_frames(share.frames, share.max_timestamp_ns))
                    acknowledged = partition.acknowledge(first + len(share.places))
            except GoQueueError as error:
                _set_all(outcomes, share, partition.reason(error))
            else:
                for at in list(share.dues):
                    if self._delays.due(partition, first + at) is None:
                        # Its time has come since it was encoded.
                        del share.dues[at]
                written.append((share, began_ns, first, acknowledged))
        for share, began_ns, first, acknowledged in written:
            try:
                await acknowledged
            except GoQueueError as error:
                _set_all(outcomes, share, topic.partitions[share.number].reason(error))
            else:
                self._note_time(began_ns, len(share.places))
                for at, place in enumerate(share.places):
                    outcomes[place] = Published(share.number, first + at, messages[place].priority, share.dues.get(at))
        return [outcome for outcome in outcomes if outcome is not None]

    async def publish_frames(self, topic: Topic, number: int, run: FrameRun) -> int:
        """Store a batch that a client has encoded, whole or not at all; return its first offset."""
        first, acknowledged = self.append_frames(topic, number, run, await self._refusals.among_frames(topic, run))
        try:
            await acknowledged
        except GoQueueError as error:
            raise topic.partition(number).reason(error) from None
        return first

    async def refused_frames(self, topic: Topic, run: FrameRun) -> Refused:
        """The part of ``publish_frames`` that comes first: what of a batch does not fit its topic's schema."""
        return await self._refusals.among_frames(topic, run)

    def append_frames(
        self, topic: Topic, number: int, run: FrameRun, refused: Refused
    ) -> tuple[int, asyncio.Future[None]]:
        """The part of ``publish_frames`` that does not wait: the first offset, and when it counts."""
        self._guard.check()
        if topic.closed:
            raise TopicNotFound(f"topic {topic.name!r} was deleted")
        partition = topic.partition(number)
        settings = topic.settings
        rules = FrameRules(
            max_value_bytes=settings.max_message_bytes,
            latest_timestamp_ns=self._clock.now_ns() + settings.max_timestamp_ahead_ms * NANOS_PER_MS,
            needs_key=settings.cleanup == "compact",
        )
        batch = verify_batch(run, rules)
        began_ns = self._clock.monotonic_ns()
        if refused.reasons and refused.target is not None:
            starts, ends = run.positions.tolist(), run.ends().tolist()
            frames = [bytes(run.frames[start:end]) for start, end in zip(starts, ends, strict=True)]
            latest_ns, now_ns = batch.max_timestamp_ns, self._clock.now_ns()
            first, acknowledged = self._refusals.append(topic, number, frames, latest_ns, refused, now_ns)
        else:
            first = self._delays.append(partition, batch)
            acknowledged = partition.acknowledge(first + len(batch))
        if acknowledged.done():
            self._note_time(began_ns, len(batch))
        else:
            acknowledged.add_done_callback(partial(self._acknowledged, began_ns, len(batch)))
        return first, acknowledged

    def _acknowledged(self, began_ns: int, count: int, acknowledged: asyncio.Future[None]) -> None:
        if not acknowledged.cancelled() and acknowledged.exception() is None:
            self._note_time(began_ns, count)

    def _note_time(self, began_ns: int, count: int) -> None:
        self._publish_seconds.observe((self._clock.monotonic_ns() - began_ns) / NANOS_PER_SECOND, count)

    async def _encode(
        self,
        topic: Topic,
        messages: Sequence[NewMessage],
        now_ns: int,
        outcomes: list[Outcome | None],
        refused: Problems,
    ) -> list[_Share]:
        shares: list[_Share] = []
        current: dict[int, _Share] = {}
        keyless: int | None = None
        place, delayed = -1, 0
        pending: int | None = None
        async for part in in_stretches(messages):
            for message in part:
                place += 1
                if outcomes[place] is not None:
                    continue
                try:
                    due_ns = due_time(now_ns, message.delay_ms, message.deliver_at_ns)
                    if due_ns is not None and due_ns <= now_ns:
                        due_ns = None
                    if due_ns is not None:
                        pending = self._delays.pending if pending is None else pending
                        self._delays.check_room(delayed + 1, pending)
                    frame = _encode_one(topic, message, now_ns, due_ns)
                    if message.partition is not None:
                        number = message.partition
                        topic.partition(number)
                    elif message.key:
                        number = topic.partition_for_key(message.key)
                    else:
                        if keyless is None:
                            keyless = topic.next_keyless_partition()
                        number = keyless
                except GoQueueError as error:
                    outcomes[place] = error
                    continue
                share = current.get(number)
                if share is None or share.size + len(frame) > MAX_BATCH_BYTES:
                    share = current[number] = _Share(number)
                    shares.append(share)
                if place in refused:
                    share.refused[len(share.frames)] = refused[place]
                elif due_ns is not None:
                    delayed += 1
                    share.dues[len(share.frames)] = due_ns
                share.frames.append(frame)
                share.size += len(frame)
                share.places.append(place)
                timestamp_ns = now_ns if message.timestamp_ns is None else message.timestamp_ns
                share.max_timestamp_ns = max(share.max_timestamp_ns, timestamp_ns)
        return shares


def _values(topic: Topic, messages: Sequence[NewMessage]) -> Iterator[bytes | None]:
    """What is to be checked: a value that is too large is refused for that."""
    most = topic.settings.max_message_bytes
    for each in messages:
        yield None if each.value is None or len(each.value) > most else each.value


def _set_all(outcomes: list[Outcome | None], share: _Share, error: GoQueueError) -> None:
    for place in share.places:
        outcomes[place] = error


def _encode_one(topic: Topic, message: NewMessage, now_ns: int, due_ns: int | None) -> bytes:
    key, value, settings = message.key or b"", message.value, topic.settings
    flags = 0
    if value is None:
        if not key:
            raise InvalidMessage("a message without a value is a tombstone and must have a key")
        value, flags = b"", int(Flag.TOMBSTONE)
    elif len(value) > settings.max_message_bytes:
        raise MessageTooLarge(
            f"the value has {len(value)} bytes; the topic takes {settings.max_message_bytes} (max_message_bytes)"
        )
    if len(key) > MAX_KEY_BYTES:
        raise MessageTooLarge(f"the key has {len(key)} bytes; {MAX_KEY_BYTES} are allowed")
    if not key and settings.cleanup == "compact":
        raise InvalidMessage("a compacted topic needs a key on every message")
    if not 0 <= message.priority < len(PRIORITY_LABELS):
        raise InvalidMessage(f"priority {message.priority} does not exist; 0 to 4 do")
    timestamp_ns = now_ns if message.timestamp_ns is None else message.timestamp_ns
    if timestamp_ns != now_ns:
        _check_timestamp(timestamp_ns, now_ns, settings.max_timestamp_ahead_ms)
    headers = b""
    if message.headers is not NO_HEADERS or message.ttl_ms is not None or due_ns is not None:
        headers = encode_headers(_all_headers(message, due_ns))
    if due_ns is not None:
        flags |= int(Flag.DELAYED)
        if len(headers) > MAX_DELAYED_HEADERS_BYTES:
            raise MessageTooLarge(
                f"the headers have {len(headers)} bytes; of a delayed message {MAX_DELAYED_HEADERS_BYTES} are allowed"
            )
    return encode_frame(key, value, headers, timestamp_ns, message.priority, flags)


def _all_headers(message: NewMessage, due_ns: int | None) -> Headers:
    """The producer's own, and those that say how long the message lives and when it is due."""
    for name, _ in message.headers:
        if name.startswith(RESERVED_PREFIX):
            raise InvalidMessage(
                f"header {name[:60]!r} is not allowed; names that begin with {RESERVED_PREFIX!r} are the broker's"
            )
    headers = message.headers
    if message.ttl_ms is not None:
        if not 1 <= message.ttl_ms <= MAX_TTL_MS:
            raise InvalidMessage(f"ttl is {shown(message.ttl_ms)} ms; 1 to {MAX_TTL_MS} are allowed")
        headers = (*headers, (TTL, b"%d" % message.ttl_ms))
    return headers if due_ns is None else (*headers, due_header(due_ns))


def _check_timestamp(timestamp_ns: int, now_ns: int, max_ahead_ms: int) -> None:
    if timestamp_ns < 0:
        raise TimestampOutOfRange("the timestamp lies before 1970")
    if timestamp_ns > now_ns + max_ahead_ms * NANOS_PER_MS:
        raise TimestampOutOfRange(
            f"the timestamp lies more than {max_ahead_ms} ms ahead of the broker's clock (max_timestamp_ahead_ms)"
        )
