"""Outgoing messages: validated and encoded as frames in the client, so that the broker need not encode them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from time import time_ns
from typing import Any, TypedDict

import msgspec

from goqueue.client.connection.instants import Instant, Span, instant_ns, span_ns, to_nanoseconds
from goqueue.client.messages.serializers import Serializer, TopicSerializer, to_bytes
from goqueue.model.errors import InvalidMessage, MessageTooLarge, TimestampOutOfRange
from goqueue.model.message import NO_HEADERS, Headers, Priority, parse_priority
from goqueue.model.publish_result import Published
from goqueue.wire.delayed import MAX_DELAY_NS, MAX_DELAYED_HEADERS_BYTES, due_header
from goqueue.wire.frame import MAX_HEADERS_BYTES, MAX_KEY_BYTES, Flag, encode_frame, encode_headers
from goqueue.wire.internal_headers import DEDUP_ID, MAX_DEDUP_ID_BYTES, MAX_TTL_MS, RESERVED_PREFIX, TTL
from goqueue.wire.producer_frames import STAMP_BYTES
from goqueue.wire.trace_context import derived_trace_id, in_trace, traceparent_in

_ENVELOPE_BYTES = 1 << 10
_MAX_NS = (1 << 63) - 1
_MS = timedelta(milliseconds=1)
_DAY_MS = 86_400_000
HeadersGiven = Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]]
"""Header pairs, which may repeat a name, or a mapping."""


class Outgoing(msgspec.Struct, frozen=True):
    """A message for ``send_many``. ``value=None`` is a tombstone."""

    value: Any
    key: Any = None
    """Bytes or text, unless the producer has a ``key_serializer``."""
    headers: HeadersGiven | None = None
    partition: int | None = None
    priority: Priority | str | int = Priority.NORMAL
    timestamp: Instant | None = None
    delay: Span | None = None
    """Not delivered before this time has passed, by the broker's clock."""
    ttl: timedelta | None = None
    """Time to live: groups do not get the message later than this after its timestamp; for a delayed one, after its
    delivery time."""
    deliver_at: Instant | None = None
    """Not delivered before this instant. Give at most one of ``deliver_at`` and ``delay``."""
    dedup_id: str | None = None
    """A second message with the same id in the topic within ``dedup_window_ms`` is not stored.

    Messages with ids keep their order within their partition, and are sent in separate batches.
    """


class SendOptions(TypedDict, total=False):
    """Options of ``send``: the fields of ``Outgoing`` beside the value."""

    key: Any
    headers: HeadersGiven | None
    partition: int | None
    priority: Priority | str | int
    timestamp: Instant | None
    delay: Span | None
    deliver_at: Instant | None
    ttl: timedelta | None
    dedup_id: str | None


class Sent(Published, frozen=True, gc=False, eq=False, repr_omit_defaults=True):
    """Position of a sent message. Equal to any ``Published`` with the same position."""

    topic: str = ""
    named_trace: str | None = None
    """The trace id that the message was sent with."""

    @property
    def trace_id(self) -> str:
        """The trace of the message, 32 hexadecimal digits: the one it was sent with, or one derived from its
        position."""
        return self.named_trace or derived_trace_id(self.topic, self.partition, self.offset)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Published) and _position(self) == _position(other)

    def __hash__(self) -> int:
        return hash(_position(self))


def _position(stored: Published) -> tuple[int, int, int, int | None]:
    return stored.partition, stored.offset, stored.priority, stored.deliver_at_ns


class Encoder:
    """Validates and encodes messages. Checks that depend on the topic are the broker's."""

    def __init__(
        self, serializer: Serializer, max_message_bytes: int, key_serializer: Serializer | None = None
    ) -> None:
        self._serialize = serializer
        self._serialize_key = key_serializer
        self._max_message_bytes = max_message_bytes
        self._max_bytes = max_message_bytes - _ENVELOPE_BYTES
        self.is_plain = serializer is to_bytes
        self.is_topic_independent = not isinstance(serializer, TopicSerializer) and not isinstance(
            key_serializer, TopicSerializer
        )
        """Whether the serializers are the same for all topics."""
        self._by_topic: dict[str, Encoder] = {}

    async def for_topic(self, topic: str) -> Encoder:
        """The encoder with the serializers of a topic, which may have to be requested from the registry."""
        value: Serializer = self._serialize
        if isinstance(value, TopicSerializer):
            value = await value.bind(topic, "value")
        key = self._serialize_key
        if isinstance(key, TopicSerializer):
            key = await key.bind(topic, "key")
        cached = self._by_topic.get(topic)
        if cached is None or cached._serialize is not value or cached._serialize_key is not key:
            cached = self._by_topic[topic] = Encoder(value, self._max_message_bytes, key)
        return cached

    def with_key_bytes(self, message: Outgoing) -> Outgoing:
        """The message with its key as bytes, if there is a key serializer."""
        if self._serialize_key is None or message.key is None:
            return message
        return msgspec.structs.replace(message, key=to_bytes(self._serialize_key(message.key)))

    def encode(self, message: Outgoing, more_flags: int = 0, *, leave_room: bool = False) -> tuple[bytes, int]:
        """The frame, and the priority as a number. ``leave_room``: for the stamp of the first message of a batch."""
        key = key_bytes(message.key)
        if message.value is None:
            if not key:
                raise InvalidMessage("a message without a value is a tombstone and must have a key")
            value, flags = b"", more_flags | int(Flag.TOMBSTONE)
        else:
            value, flags = self._serialize(message.value), more_flags
            if type(value) is not bytes:
                value = to_bytes(value)
        lane = int(parse_priority(message.priority))
        timestamp_ns = time_ns() if message.timestamp is None else _nanoseconds(message.timestamp)
        pairs = () if not message.headers else _pairs(message.headers)
        if message.ttl is not None:
            pairs = (*pairs, (TTL, _ttl(message.ttl)))
        if message.dedup_id is not None:
            if more_flags & Flag.TRANSACTIONAL:
                raise InvalidMessage("a message in a transaction cannot have a dedup_id: nothing is stored twice there")
            pairs, leave_room = (*pairs, (DEDUP_ID, _dedup_id(message.dedup_id))), False
        due = _due(message)
        if due is not None:
            pairs, flags = (*pairs, due), flags | int(Flag.DELAYED)
        headers = encode_headers(pairs)
        if headers:
            limit = MAX_HEADERS_BYTES if due is None else MAX_DELAYED_HEADERS_BYTES
            if leave_room:
                limit -= STAMP_BYTES
            if len(headers) > limit:
                kind = "message" if due is None else "delayed message"
                raise MessageTooLarge(f"the headers have {len(headers)} bytes; of a {kind} {limit} are allowed")
        if len(key) + len(value) + len(headers) > self._max_bytes:
            raise MessageTooLarge(
                f"the message has {len(key) + len(value) + len(headers)} bytes; "
                f"the client takes {self._max_bytes} (max_message_bytes)"
            )
        return encode_frame(key, value, headers, timestamp_ns, lane, flags), lane


def with_trace_headers(message: Outgoing, trace: Headers) -> tuple[Outgoing, str | None]:
    """The message with the trace headers of the current span, and the trace id that it carries, if any.

    Trace headers set by the message itself take precedence.
    """
    if not message.headers and not trace:
        return message, None
    headers = NO_HEADERS if not message.headers else _pairs(message.headers)
    if trace:
        headers = in_trace(headers, trace)
    parent = traceparent_in(headers)
    return msgspec.structs.replace(message, headers=headers), None if parent is None else parent.trace_id


def key_bytes(key: bytes | str | None) -> bytes:
    if key is None:
        return b""
    try:
        packed = to_bytes(key)
    except InvalidMessage as error:
        raise InvalidMessage(f"the key: {error}") from None
    if len(packed) > MAX_KEY_BYTES:
        raise MessageTooLarge(f"the key has {len(packed)} bytes; {MAX_KEY_BYTES} are allowed")
    return packed


def _due(message: Outgoing) -> tuple[str, bytes] | None:
    """The header of the delivery time; ``None`` without a delay.

    The broker decides whether the time has come, by its own clock: clocks differ.
    """
    if message.delay is not None and message.deliver_at is not None:
        raise InvalidMessage("the message has both delay and deliver_at; give one of them")
    if message.deliver_at is not None:
        due_ns = instant_ns("deliver_at", message.deliver_at)
        if due_ns > _MAX_NS:
            raise InvalidMessage("deliver_at lies after what 64 bits of nanoseconds hold")
        return due_header(due_ns) if due_ns > 0 else None
    if message.delay is None:
        return None
    delay_ns = span_ns("delay", message.delay)
    if delay_ns > MAX_DELAY_NS:
        raise InvalidMessage(f"delay is {message.delay}; at most 200 years are allowed")
    return due_header(delay_ns, relative=True) if delay_ns > 0 else None


def _ttl(ttl: timedelta) -> bytes:
    """Whole milliseconds as text, rounded up so that a message never expires early."""
    ttl_ms = -(-ttl // _MS)
    if not 1 <= ttl_ms <= MAX_TTL_MS:
        raise InvalidMessage(f"ttl is {ttl}; more than nothing and at most {MAX_TTL_MS // _DAY_MS} days are allowed")
    return b"%d" % ttl_ms


def _dedup_id(dedup_id: str) -> bytes:
    if not isinstance(dedup_id, str):
        raise InvalidMessage(f"dedup_id is {dedup_id!r}; it must be a text")
    packed = to_bytes(dedup_id)
    if not 1 <= len(packed) <= MAX_DEDUP_ID_BYTES:
        raise InvalidMessage(f"dedup_id has {len(packed)} bytes; 1 to {MAX_DEDUP_ID_BYTES} are allowed")
    return packed


def _nanoseconds(instant: Instant) -> int:
    moment_ns = to_nanoseconds(instant) if isinstance(instant, datetime) else instant
    if not 0 <= moment_ns <= _MAX_NS:
        raise TimestampOutOfRange("the timestamp lies before 1970, or after what 64 bits of nanoseconds hold")
    return moment_ns


def _pairs(headers: HeadersGiven) -> Headers:
    pairs: list[tuple[str, bytes]] = []
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        if not isinstance(name, str) or not isinstance(value, str | bytes):
            raise InvalidMessage(f"header {name!r} must have a text as its name and bytes or a text as its value")
        if name.startswith(RESERVED_PREFIX):
            raise InvalidMessage(
                f"header {name[:60]!r} is not allowed; names that begin with {RESERVED_PREFIX!r} are the broker's"
            )
        pairs.append((name, to_bytes(value)))
    return tuple(pairs)
