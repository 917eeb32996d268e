"""Durations and instants in requests: each is named when it is wrong, and bounded."""

from __future__ import annotations

from goqueue.broker.operations.limits import LATEST_DUE_NS
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import shown
from goqueue.model.units import format_duration_ms, parse_duration_ms, parse_instant_ns

_DAY_MS = 86_400_000


def bounded_ms(field: str, text: str, most_ms: int, least_ms: int = 0) -> int:
    """``text`` in milliseconds, or an error that names the field and what is allowed."""
    try:
        duration_ms = parse_duration_ms(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"{field}: {error}") from None
    if not least_ms <= duration_ms <= most_ms:
        bounds = f"{format_duration_ms(least_ms)} to {format_duration_ms(most_ms)}"
        raise InvalidRequest(f"{field} is {shown(text)}; {bounds} is allowed")
    return duration_ms


def due(delay: str | None, deliver_at: str | None, now_ns: int) -> tuple[int | None, int | None]:
    """``delay`` in milliseconds and ``deliverAt`` in nanoseconds, as the broker takes them."""
    # To a full day: a bound to the millisecond would be another one each time.
    most_ms = (LATEST_DUE_NS - now_ns) // NANOS_PER_MS // _DAY_MS * _DAY_MS
    delay_ms = None if delay is None else bounded_ms("delay", delay, most_ms)
    return delay_ms, None if deliver_at is None else instant_ns("deliverAt", deliver_at)


def instant_ns(field: str, text: str) -> int:
    """``text`` in nanoseconds since 1970, or an error that names the field."""
    try:
        return parse_instant_ns(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"{field}: {error}") from None
