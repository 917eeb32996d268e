"""Delayed messages and their statistics, as returned by the client."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from goqueue.client.admin.groups import decode_single
from goqueue.client.connection.instants import Instant, Span, from_nanoseconds, instant_ns, span_ns
from goqueue.client.consumer.reader import unpacked
from goqueue.model.errors import InvalidRequest
from goqueue.model.message import NO_HEADERS, Headers
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.trace_context import trace_id_of

_NS_PER_MS = 1_000_000
_MAX_MS = (1 << 64) - 1
_MAX_NS = (1 << 63) - 1


class DelayedMessage(msgspec.Struct, frozen=True):
    """A pending delayed message. ``offset`` is where it was stored; when delivered it gets another one.

    ``value`` is ``None`` for a tombstone. Of a ``damaged`` message only position and delivery time are known.
    """

    topic: str
    partition: int
    offset: int
    deliver_at_ns: int
    timestamp_ns: int
    key: bytes | None
    value: Any
    headers: Headers
    priority: int
    damaged: bool = False

    @property
    def deliver_at(self) -> datetime:
        return from_nanoseconds(self.deliver_at_ns)

    @property
    def timestamp(self) -> datetime:
        """The producer's timestamp. The delivered message has its delivery time as timestamp."""
        return from_nanoseconds(self.timestamp_ns)

    @property
    def trace_id(self) -> str:
        """The trace of the message, 32 hexadecimal digits: the producer's, or one derived from its position."""
        return trace_id_of(self.headers, self.topic, self.partition, self.offset)


class DelayStats(msgspec.Struct, frozen=True):
    """Statistics of delayed messages: ``pending`` now; the other counters since the broker started.

    ``lost`` were damaged on disk before they were due. ``delay_ns`` is the total delay of the delivered ones.
    """

    pending: int
    delivered: int
    cancelled: int
    rescheduled: int
    lost: int
    delay_ns: int
    next_due_ns: int | None

    @property
    def average_delay(self) -> timedelta | None:
        """``None`` if none was delivered."""
        return timedelta(microseconds=self.delay_ns // self.delivered // 1_000) if self.delivered else None

    @property
    def next_due(self) -> datetime | None:
        """When the next one is delivered; ``None`` if none is pending."""
        return None if self.next_due_ns is None else from_nanoseconds(self.next_due_ns)


def to_delayed(delayed: pb.DelayedMessage) -> DelayedMessage:
    position = (delayed.topic, delayed.partition, delayed.offset, delayed.deliver_at_ns)
    if not delayed.message:
        return DelayedMessage(*position, 0, None, None, NO_HEADERS, delayed.priority, damaged=True)
    message = decode_single(delayed.message)
    value = unpacked(message, None)
    return DelayedMessage(*position, message.timestamp_ns, message.key, value, message.headers, message.priority)


def to_reschedule(
    topic: str, partition: int, offset: int, delay: Span | None, deliver_at: Instant | None
) -> pb.RescheduleDelayedRequest:
    request = pb.RescheduleDelayedRequest(topic=topic, partition=partition, offset=offset)
    if (delay is None) == (deliver_at is None):
        raise InvalidRequest("say when the message is to be seen: by delay, or by deliver_at")
    if delay is not None:
        # Rounded up, so that it is not delivered early.
        request.delay_ms = min(_MAX_MS, -(-span_ns("delay", delay) // _NS_PER_MS))
    if deliver_at is not None:
        request.deliver_at_ns = min(_MAX_NS, max(0, instant_ns("deliver_at", deliver_at)))
    return request
