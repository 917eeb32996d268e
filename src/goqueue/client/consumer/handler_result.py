"""How the result of a handler settles its message: ack, nack, reject, or nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from goqueue.client.connection.instants import Span
from goqueue.client.consumer.settler import ACK, Order
from goqueue.model.errors import InvalidRequest
from goqueue.model.topic_settings import MAX_VISIBILITY_MS
from goqueue.wire.proto import goqueue_pb2 as pb

MAX_REASON_LENGTH = 1_000
_MS = timedelta(milliseconds=1)
_MAX_S = 366 * 86_400


class Reject(Exception):
    """Raised by a handler: the message can never succeed. It becomes a dead letter, with the reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Retry(Exception):
    """Raised by a handler: deliver the message again, ``after`` a time or after the group's backoff."""

    def __init__(self, after: Span | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.after = after
        self.reason = reason


def order_for_outcome(error: BaseException | None) -> Order | None:
    """The order for a handler's outcome; ``None`` if it was cancelled: the caller then decides."""
    match error:
        case None:
            return ACK
        case Reject():
            return to_reject(error.reason)
        case Retry():
            return to_nack(error.after, error.reason)
        case asyncio.CancelledError() | KeyboardInterrupt() | SystemExit() | GeneratorExit():
            return None
        case _:
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return to_nack(None, text)


def to_nack(delay: Span | None, reason: str) -> Order:
    return Order(pb.VERB_NACK, None if delay is None else to_ms(delay), reason[:MAX_REASON_LENGTH])


def to_reject(reason: str) -> Order:
    return Order(pb.VERB_REJECT, None, reason[:MAX_REASON_LENGTH])


def to_ms(span: Span) -> int:
    """Whole milliseconds, rounded up."""
    duration = timedelta(seconds=to_seconds(span))
    found = -(-duration // _MS)
    if not 0 <= found <= MAX_VISIBILITY_MS:
        raise InvalidRequest(f"the time is {duration}; up to {timedelta(milliseconds=MAX_VISIBILITY_MS)} is allowed")
    return found


def to_seconds(span: Span) -> float:
    """Convert and check a time span given by the user."""
    if isinstance(span, timedelta):
        seconds = span.total_seconds()
    elif isinstance(span, int | float) and not isinstance(span, bool):
        seconds = float(span)
    else:
        raise InvalidRequest(f"the time is {span!r}; give seconds as a number, or a timedelta")
    if not 0 <= seconds <= _MAX_S:
        raise InvalidRequest(f"the time is {span!r}; 0 to {_MAX_S:,} seconds are allowed")
    return seconds
