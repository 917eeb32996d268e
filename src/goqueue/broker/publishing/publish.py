"""Publishing: route, encode or verify, append, wait for the acknowledgement that the topic promises."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from goqueue.broker.delays.delay_timers import DelayTimers
from goqueue.broker.delays.delayed_messages import due_time
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.publishing.appending import Appended, Appender
from goqueue.broker.publishing.partition_routing import PartitionRouting
from goqueue.broker.publishing.schema_rejects import ALL_FIT, Refused, SchemaRejects
from goqueue.broker.publishing.share import Share
from goqueue.broker.registry.schema_check import Problems
from goqueue.broker.runtime.disk_guard import DiskGuard
from goqueue.broker.runtime.time_slices import TimeSlice
from goqueue.broker.transactions.open_transactions import OpenTransaction
from goqueue.model.clock import NANOS_PER_MS, NANOS_PER_SECOND, Clock
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
from goqueue.model.publishing import NewMessage, Outcome
from goqueue.observe.histogram import Histogram
from goqueue.wire.batch import MAX_BATCH_BYTES, FrameRun
from goqueue.wire.delayed import MAX_DELAYED_HEADERS_BYTES, due_header
from goqueue.wire.frame import MAX_KEY_BYTES, Flag, encode_frame, encode_headers
from goqueue.wire.internal_headers import DEDUP_ID, MAX_DEDUP_ID_BYTES, MAX_TTL_MS, RESERVED_PREFIX, TTL
from goqueue.wire.producer_frames import MAX_STAMPED_HEADERS_BYTES, dedup_ids, each_dedup_id
from goqueue.wire.verify import FEW_HEADER_BYTES, FrameRules, has_many_headers, header_checks, verify_batch

_LARGE_BATCH_BYTES = 256 << 10
_PARTITIONS_AT_A_STRETCH = 8


@dataclass(eq=False, repr=False)
class Publisher:
    """Stateless but for the round robin that each topic keeps."""

    _guard: DiskGuard
    _clock: Clock
    _delays: DelayTimers
    _refusals: SchemaRejects
    _appender: Appender
    _publish_seconds: Histogram
    """From the append of a message to its acknowledgement."""

    async def publish(
        self,
        topic: Topic,
        messages: Sequence[NewMessage],
        transaction: OpenTransaction | None = None,
        sequence: int | None = None,
    ) -> list[Outcome]:
        """Store what can be stored; the answer has one outcome for each message, in order.

        ``sequence`` is that of the only message of a transaction's publish; without it a retry is stored again.
        """
        self._guard.check()
        now_ns = self._clock.now_ns()
        outcomes: list[Outcome | None] = [None] * len(messages)
        refused = await self._refusals.among(topic, _values(topic, messages))
        if transaction is not None:
            # A dead letter could not be taken back if the transaction is aborted.
            refused = Refused(refused.reasons)
        if refused.target is None:
            for place, reason in refused.reasons.items():
                outcomes[place] = SchemaViolation(reason)
        more_flags = 0 if transaction is None else int(Flag.TRANSACTIONAL)
        shares = await self._encode(topic, messages, now_ns, outcomes, refused.reasons, more_flags)
        if topic.closed:
            raise TopicNotFound(f"topic {topic.name!r} was deleted")
        written: list[tuple[Share, int, Appended]] = []
        for turn, share in enumerate(shares):
            if turn and (share.size >= _LARGE_BATCH_BYTES or turn % _PARTITIONS_AT_A_STRETCH == 0):
                # A large request must not hold up everyone else while it is written; first writes make files.
                await asyncio.sleep(0)
            partition = topic.partitions[share.number]
            began_ns = self._clock.monotonic_ns()
            try:
                batch = share.batch(partition, transaction, sequence)
                here = Refused(share.refused, refused.target)
                appended = self._appender.append(topic, share.number, batch, here, share.ids, transaction)
            except GoQueueError as error:
                share.failed(partition.reason(error), outcomes)
            else:
                share.forget_past_dues(topic, appended)
                written.append((share, began_ns, appended))
        stretch = TimeSlice()
        for share, began_ns, appended in written:
            if stretch.is_over:
                await stretch.rest()
            try:
                await appended.acknowledged
            except GoQueueError as error:
                share.failed(topic.partitions[share.number].reason(error), outcomes)
            else:
                self._note_time(began_ns, len(share.places))
                share.published(appended, messages, outcomes)
        return [outcome for outcome in outcomes if outcome is not None]

    async def publish_frames(self, topic: Topic, number: int, run: FrameRun) -> int:
        """Store a batch that a client has encoded, whole or not at all; return its first offset."""
        appended = self.append(topic, number, run)
        if not isinstance(appended, Appended):
            appended = await appended
        try:
            await appended.acknowledged
        except GoQueueError as error:
            raise topic.partition(number).reason(error) from None
        return appended.first

    def append(
        self, topic: Topic, number: int, run: FrameRun, transaction: OpenTransaction | None = None
    ) -> Appended | Awaitable[Appended]:
        """The same without waiting for the acknowledgement. At once, unless it takes long to look through the batch."""
        is_small = len(run.frames) <= FEW_HEADER_BYTES or (
            len(run.frames) <= MAX_BATCH_BYTES and not has_many_headers(run)
        )
        if is_small and topic.settings.schema_validation == "off":
            return self.append_frames(topic, number, run, ALL_FIT, transaction)
        return self._append_validated(topic, number, run, transaction)

    async def _append_validated(
        self, topic: Topic, number: int, run: FrameRun, transaction: OpenTransaction | None
    ) -> Appended:
        refused = await self.refused_frames(topic, run, in_transaction=transaction is not None)
        return self.append_frames(topic, number, run, refused, transaction)

    async def refused_frames(self, topic: Topic, run: FrameRun, *, in_transaction: bool = False) -> Refused:
        """The part of ``append`` that comes first: what of a batch does not fit its topic's schema."""
        if len(run.frames) > MAX_BATCH_BYTES:
            # A single message that took long to read, and takes long to be written.
            await asyncio.sleep(0)
        ids = await _looked_through(run) if len(run.frames) > FEW_HEADER_BYTES and has_many_headers(run) else None
        refused = ALL_FIT
        if topic.settings.schema_validation != "off":
            refused = await self._refusals.among_frames(topic, run, may_bury=not in_transaction)
        return refused if ids is None else replace(refused, dedup_ids=ids)

    def append_frames(
        self, topic: Topic, number: int, run: FrameRun, refused: Refused, transaction: OpenTransaction | None = None
    ) -> Appended:
        """The part of ``append`` that does not wait."""
        self._guard.check()
        if topic.closed:
            raise TopicNotFound(f"topic {topic.name!r} was deleted")
        topic.partition(number)
        settings = topic.settings
        rules = FrameRules(
            max_value_bytes=settings.max_message_bytes,
            latest_timestamp_ns=self._clock.now_ns() + settings.max_timestamp_ahead_ms * NANOS_PER_MS,
            needs_key=settings.cleanup == "compact",
            in_transaction=transaction is not None,
            headers_were_checked=refused.dedup_ids is not None,
        )
        batch = verify_batch(run, rules)
        began_ns = self._clock.monotonic_ns()
        ids = refused.dedup_ids
        if ids is None:
            ids = dedup_ids(run) if batch.has_headers else {}
        appended = self._appender.append(topic, number, batch, refused, ids, transaction)
        if appended.acknowledged.done():
            self._note_time(began_ns, len(batch.positions))
        else:
            appended.acknowledged.add_done_callback(partial(self._acknowledged, began_ns, len(batch.positions)))
        return appended

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
        more_flags: int = 0,
    ) -> list[Share]:
        shares: list[Share] = []
        current: dict[int, Share] = {}
        route = PartitionRouting(topic).route
        place, delayed = -1, 0
        pending: int | None = None
        stretch = TimeSlice()
        for message in messages:
            if stretch.is_over:
                await stretch.rest()
            place += 1
            if outcomes[place] is not None:
                continue
            try:
                due_ns = None
                if message.delay_ms is not None or message.deliver_at_ns is not None:
                    due_ns = due_time(now_ns, message.delay_ms, message.deliver_at_ns)
                if due_ns is not None and due_ns <= now_ns:
                    due_ns = None
                if due_ns is not None:
                    pending = self._delays.pending if pending is None else pending
                    self._delays.check_room(delayed + 1, pending)
                frame = _encode_one(topic, message, now_ns, due_ns, more_flags)
                number = route(message)
            except GoQueueError as error:
                outcomes[place] = error
                continue
            share = current.get(number)
            is_full = share is not None and (
                share.size + len(frame) > MAX_BATCH_BYTES or message.dedup_id in share.has_id
            )
            if share is None or is_full:
                share = current[number] = Share(number)
                shares.append(share)
            if place in refused:
                share.refused[len(share.frames)] = refused[place]
            elif due_ns is not None:
                delayed += 1
                share.dues[len(share.frames)] = due_ns
            if message.dedup_id is not None:
                share.ids[len(share.frames)] = message.dedup_id.encode()
                share.has_id.add(message.dedup_id)
            share.frames.append(frame)
            share.size += len(frame)
            share.places.append(place)
            timestamp_ns = now_ns if message.timestamp_ns is None else message.timestamp_ns
            share.max_timestamp_ns = max(share.max_timestamp_ns, timestamp_ns)
        return shares


async def _looked_through(run: FrameRun) -> dict[int, bytes]:
    """Check the headers of many messages, and find their dedup ids, giving way to others meanwhile."""
    stretch = TimeSlice()
    for _ in header_checks(run):
        if stretch.is_over:
            await stretch.rest()
    found: dict[int, bytes] = {}
    for place, dedup_id in each_dedup_id(run):
        found[place] = dedup_id
        if stretch.is_over:
            await stretch.rest()
    return found


def _values(topic: Topic, messages: Sequence[NewMessage]) -> Iterator[bytes | None]:
    """What is to be checked: a value that is too large is refused for that."""
    most = topic.settings.max_message_bytes
    for each in messages:
        yield None if each.value is None or len(each.value) > most else each.value


def _encode_one(topic: Topic, message: NewMessage, now_ns: int, due_ns: int | None, flags: int = 0) -> bytes:
    key, value, settings = message.key or b"", message.value, topic.settings
    if value is None:
        if not key:
            raise InvalidMessage("a message without a value is a tombstone and must have a key")
        value, flags = b"", flags | int(Flag.TOMBSTONE)
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
    if (
        message.headers is not NO_HEADERS
        or message.ttl_ms is not None
        or due_ns is not None
        or message.dedup_id is not None
    ):
        headers = encode_headers(_all_headers(message, due_ns))
        if flags & Flag.TRANSACTIONAL and len(headers) > MAX_STAMPED_HEADERS_BYTES:
            raise MessageTooLarge(
                f"the headers have {len(headers)} bytes; in a transaction {MAX_STAMPED_HEADERS_BYTES} are allowed"
            )
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
    if message.dedup_id is not None:
        try:
            dedup_id = message.dedup_id.encode()
        except UnicodeEncodeError:
            raise InvalidMessage("dedup_id cannot be written as UTF-8") from None
        if not 1 <= len(dedup_id) <= MAX_DEDUP_ID_BYTES:
            raise InvalidMessage(f"dedup_id has {len(dedup_id)} bytes; 1 to {MAX_DEDUP_ID_BYTES} are allowed")
        headers = (*headers, (DEDUP_ID, dedup_id))
    return headers if due_ns is None else (*headers, due_header(due_ns))


def _check_timestamp(timestamp_ns: int, now_ns: int, max_ahead_ms: int) -> None:
    if timestamp_ns < 0:
        raise TimestampOutOfRange("the timestamp lies before 1970")
    if timestamp_ns > now_ns + max_ahead_ms * NANOS_PER_MS:
        raise TimestampOutOfRange(
            f"the timestamp lies more than {max_ahead_ms} ms ahead of the broker's clock (max_timestamp_ahead_ms)"
        )
