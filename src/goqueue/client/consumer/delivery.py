"""A received message of a queue: its contents, and ack, nack, reject and extend."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Iterable
from datetime import datetime
from time import monotonic
from typing import Any, Generic, Protocol, Self, TypeVar

import msgspec

from goqueue.client.connection.instants import Span, from_nanoseconds
from goqueue.client.consumer.handler_result import order_for_outcome, to_ms, to_nack, to_reject
from goqueue.client.consumer.leases import Lease
from goqueue.client.consumer.reader import unpacked
from goqueue.client.consumer.settler import ACK, Claim, Order
from goqueue.client.messages.serializers import Deserializer
from goqueue.model.message import Headers, Message
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.trace_context import trace_id_of

Future = TypeVar("Future", covariant=True)


class DeliveryContext(Protocol[Future]):
    """What a message needs of its consumer: deserializer and settling."""

    deserializer: Deserializer | None

    def settle(self, order: Order, claims: list[Claim]) -> Future: ...


class Received(msgspec.Struct, Generic[Future], eq=False):
    """Created in large numbers, so everything that can be is computed on access."""

    _message: Message
    _lease: Lease
    _context: DeliveryContext[Future]
    _settled: bool = False
    _value: Any = msgspec.UNSET

    @property
    def topic(self) -> str:
        return self._lease.topic

    @property
    def partition(self) -> int:
        return self._lease.partition

    @property
    def offset(self) -> int:
        return self._message.offset

    @property
    def key(self) -> bytes | None:
        return self._message.key

    @property
    def value(self) -> Any:
        """The bytes, or what the deserializer makes of them on first access; ``None`` for a tombstone.

        Decoding on access makes an unreadable value fail in its handler, not in the consumer.
        """
        if self._value is msgspec.UNSET:
            self._value = unpacked(self._message, self._context.deserializer)
        return self._value

    @property
    def headers(self) -> Headers:
        return self._message.headers

    @property
    def priority(self) -> int:
        return self._message.priority

    @property
    def timestamp_ns(self) -> int:
        return self._message.timestamp_ns

    @property
    def timestamp(self) -> datetime:
        return from_nanoseconds(self._message.timestamp_ns)

    @property
    def trace_id(self) -> str:
        """The trace of the message, 32 hexadecimal digits: the producer's, or one derived from its position."""
        return trace_id_of(self.headers, self.topic, self.partition, self.offset)

    @property
    def deliveries(self) -> int:
        """Number of deliveries to the group, including this one."""
        return self._lease.count

    @property
    def settled(self) -> bool:
        """Whether it was acked, nacked or rejected here."""
        return self._settled

    @property
    def lost(self) -> bool:
        """Whether its lease ended before it was settled here, so that it is delivered to others."""
        return self._message.offset in self._lease.lost

    def ack(self) -> Future:
        """Mark as done."""
        return self._settle(ACK)

    def nack(self, delay: Span | None = None, reason: str = "") -> Future:
        """Have it delivered again after ``delay`` (seconds, if it is a number), or after the group's backoff."""
        return self._settle(to_nack(delay, reason))

    def reject(self, reason: str = "") -> Future:
        """Move it to the dead-letter topic at once."""
        return self._settle(to_reject(reason))

    def extend(self, by: Span) -> Future:
        """Set the lease to end this long from now, so that the message stays hidden even if this process ends."""
        delay_ms = to_ms(by)
        offset = self._message.offset
        # The loop's clock is the monotonic one.
        self._lease.user_deadlines[offset] = monotonic() + delay_ms / 1_000
        return self._context.settle(Order(pb.VERB_EXTEND, delay_ms), [(self._lease, (offset,))])

    def _settle(self, order: Order) -> Future:
        self._settled = True
        return self._context.settle(order, [(self._lease, (self._message.offset,))])

    def _settle_by_outcome(self, error: BaseException | None) -> Future | None:
        """Settle by how the block ended. Nothing if it was settled inside, or if the program is ending."""
        if self._settled:
            return None
        if error is None:
            return self.ack()
        order = order_for_outcome(error)
        return None if order is None else self._settle(order)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic}/{self.partition}@{self.offset} key={self.key!r}>"


class AsyncReceivedMessage(Received[asyncio.Future[None]], eq=False):
    """A message of a queue. Acks, nacks and rejects are sent at once; their future is done when the broker has stored
    them.

    Awaiting it is optional: a failure is logged as a warning. ``async with message:`` acks at the end of the block; an
    exception nacks and propagates; a message settled inside is left alone.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        settling = self._settle_by_outcome(error)
        if settling is not None and error is None:
            await settling


class ReceivedMessage(Received[concurrent.futures.Future[None]], eq=False):
    """A message of a queue. Acks, nacks and rejects are sent at once; ``.result()`` waits until the broker has stored
    them.

    Waiting is optional: a failure is logged as a warning. ``with message:`` acks at the end of the block; an exception
    nacks and propagates; a message settled inside is left alone.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        settling = self._settle_by_outcome(error)
        if settling is not None and error is None:
            settling.result()


def claims_of(messages: Iterable[Received[Any]]) -> list[Claim]:
    """Messages to be settled together, grouped by lease."""
    by_lease: dict[Lease, list[int]] = {}
    for message in messages:
        message._settled = True
        offsets = by_lease.get(message._lease)
        if offsets is None:
            by_lease[message._lease] = [message._message.offset]
        else:
            offsets.append(message._message.offset)
    return list(by_lease.items())
