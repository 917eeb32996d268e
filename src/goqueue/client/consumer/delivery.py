"""A message in a consumer's hand: what it holds, and what can be said about it."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Iterable
from datetime import datetime
from time import monotonic
from typing import Any, Generic, Protocol, Self, TypeVar

import msgspec

from goqueue.client.connection.instants import Span, from_nanoseconds
from goqueue.client.consumer.handler_result import to_ms, to_nack, to_reject, verdict_on
from goqueue.client.consumer.leases import Lease
from goqueue.client.consumer.reader import unpacked
from goqueue.client.consumer.settler import ACK, Claim, Order
from goqueue.client.messages.serializers import Deserializer
from goqueue.model.message import Headers, Message
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.trace_context import trace_id_of

Future = TypeVar("Future", covariant=True)


class Hand(Protocol[Future]):
    """Whose hand the message is in."""

    deserializer: Deserializer | None

    def settle(self, order: Order, claims: list[Claim]) -> Future: ...


class Received(msgspec.Struct, Generic[Future], eq=False):
    """Made by the million: everything that can wait is done when it is asked for."""

    _message: Message
    _lease: Lease
    _hand: Hand[Future]
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
        """Bytes, or what the deserializer makes of them when this is first asked for; ``None`` for a tombstone.

        So a value that cannot be read fails where it is handled, and not the consumer.
        """
        if self._value is msgspec.UNSET:
            self._value = unpacked(self._message, self._hand.deserializer)
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
        """The trace that it belongs to, in 32 hexadecimal digits: its producer's, or one of its own."""
        return trace_id_of(self.headers, self.topic, self.partition, self.offset)

    @property
    def deliveries(self) -> int:
        """How often it has been delivered to the group, this time included."""
        return self._lease.count

    @property
    def settled(self) -> bool:
        """Whether it was acked, nacked or rejected here."""
        return self._settled

    @property
    def lost(self) -> bool:
        """Whether the broker gave it to others before it was settled here, or will."""
        return self._message.offset in self._lease.lost

    def ack(self) -> Future:
        """Done with it."""
        return self._settle(ACK)

    def nack(self, delay: Span | None = None, reason: str = "") -> Future:
        """Deliver it again: after ``delay`` (seconds, if it is a number), or after the group's backoff."""
        return self._settle(to_nack(delay, reason))

    def reject(self, reason: str = "") -> Future:
        """To the dead letters at once."""
        return self._settle(to_reject(reason))

    def extend(self, by: Span) -> Future:
        """Keep it hidden from others for so long from now, whether or not this process lives to extend it again."""
        delay_ms = to_ms(by)
        offset = self._message.offset
        # The loop's own clock is the monotonic one.
        self._lease.held[offset] = monotonic() + delay_ms / 1_000
        return self._hand.settle(Order(pb.VERB_EXTEND, delay_ms), [(self._lease, (offset,))])

    def _settle(self, order: Order) -> Future:
        self._settled = True
        return self._hand.settle(order, [(self._lease, (self._message.offset,))])

    def _judge(self, error: BaseException | None) -> Future | None:
        """What leaving its block means. Nothing for one that was settled inside, or if the program is ending."""
        if self._settled:
            return None
        if error is None:
            return self.ack()
        order = verdict_on(error)
        return None if order is None else self._settle(order)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic}/{self.partition}@{self.offset} key={self.key!r}>"


class AsyncReceivedMessage(Received[asyncio.Future[None]], eq=False):
    """A message of a queue. What is said about it leaves at once; the future is done when the broker has kept it.

    Nobody needs to await that: a failure leaves a warning in the log. ``async with message:`` acks when the block is
    left, and nacks if an exception leaves it, which goes on; what was settled inside is left alone.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        judged = self._judge(error)
        if judged is not None and error is None:
            await judged


class ReceivedMessage(Received[concurrent.futures.Future[None]], eq=False):
    """A message of a queue. What is said about it leaves at once; ``.result()`` waits until the broker has kept it.

    Nobody needs to wait: a failure leaves a warning in the log. ``with message:`` acks when the block is left, and
    nacks if an exception leaves it, which goes on; what was settled inside is left alone.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        judged = self._judge(error)
        if judged is not None and error is None:
            judged.result()


def claims_of(messages: Iterable[Received[Any]]) -> list[Claim]:
    """Those that are to be settled together, by lease."""
    by_lease: dict[Lease, list[int]] = {}
    for message in messages:
        message._settled = True
        offsets = by_lease.get(message._lease)
        if offsets is None:
            by_lease[message._lease] = [message._message.offset]
        else:
            offsets.append(message._message.offset)
    return list(by_lease.items())
