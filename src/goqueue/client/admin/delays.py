"""Administration of delayed messages: what the client returns about them, and its methods."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec

from goqueue.client.admin.groups import decode_single
from goqueue.client.connection.directory import Directory, items_of
from goqueue.client.connection.instants import Instant, Span, from_nanoseconds, instant_ns, span_ns
from goqueue.client.connection.structs import struct_of
from goqueue.client.consumer.reader import unpacked
from goqueue.model.errors import DelayedNotFound, InvalidRequest
from goqueue.model.message import NO_HEADERS, Headers
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.trace_context import trace_id_of

_MESSAGES_PER_PAGE = 100
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


class DelayAdministration:
    """Methods of the client for delayed messages, which are identified by the offset at which they were stored."""

    _directory: Directory

    def delayed(self, topic: str) -> AsyncGenerator[DelayedMessage, None]:
        """Pending delayed messages of a topic, the next due first. Changes during the listing may or may not be
        included."""
        return items_of(self._delayed_pages(topic))

    async def _delayed_pages(self, topic: str) -> AsyncGenerator[list[DelayedMessage], None]:
        request = pb.ListDelayedRequest(topic=topic, limit=_MESSAGES_PER_PAGE)
        is_last = False
        while not is_last:
            found = await self._directory.query("delays", "ListDelayed", request)
            page = []
            for each in found.messages:
                if each.message:
                    page.append(to_delayed(each))
                    continue
                # Left out of the response because it would have been too large.
                with suppress(DelayedNotFound):
                    page.append(await self.get_delayed(topic, each.partition, each.offset))
            yield page
            request.after, is_last = found.next, not found.next

    async def get_delayed(self, topic: str, partition: int, offset: int) -> DelayedMessage:
        """One pending message. ``DelayedNotFound`` if it was delivered, cancelled or never delayed."""
        request = _build_request(lambda: pb.GetDelayedRequest(topic=topic, partition=partition, offset=offset))
        return to_delayed(await self._directory.query("delays", "GetDelayed", request))

    async def cancel_delayed(self, topic: str, partition: int, offset: int) -> None:
        """Cancel a delayed message: it is never delivered. ``DelayedNotFound`` if none is pending there.

        If the connection breaks before the answer, the request is sent again. If the first one had been carried out,
        this also raises ``DelayedNotFound``: a cancelled message cannot be told from a delivered one.
        """
        request = _build_request(lambda: pb.CancelDelayedRequest(topic=topic, partition=partition, offset=offset))
        await self._directory.command("delays", "CancelDelayed", request)

    async def reschedule_delayed(
        self, topic: str, partition: int, offset: int, *, delay: Span | None = None, deliver_at: Instant | None = None
    ) -> DelayedMessage:
        """Change the delivery time, earlier or later: a ``delay`` from now, or an instant.

        A time in the past means now. ``DelayedNotFound`` if none is pending there.
        """
        request = _build_request(lambda: to_reschedule(topic, partition, offset, delay, deliver_at))
        return to_delayed(await self._directory.command("delays", "RescheduleDelayed", request))

    async def delay_stats(self) -> DelayStats:
        """Counters of delayed messages of all topics."""
        return struct_of(DelayStats, await self._directory.query("delays", "DelayStats", pb.DelayStatsRequest()))


def _build_request(make: Callable[[], Any]) -> Any:
    """Build a request from numbers given by the user."""
    try:
        return make()
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"a partition and an offset are whole numbers from 0 on: {error}") from None
