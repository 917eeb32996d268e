"""Conversion of datetimes and timedeltas to nanoseconds in integers, without rounding through floats."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import ceil, isfinite

from goqueue.model.errors import InvalidRequest

Instant = datetime | int
"""A datetime with a time zone, or Unix nanoseconds."""
Span = timedelta | float
"""A timedelta, or seconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_nanoseconds(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise InvalidRequest("a datetime needs its zone here, such as datetime.now(UTC)")
    return _nanoseconds(moment - _EPOCH)


def instant_ns(name: str, moment: Instant) -> int:
    """Convert and check an instant given by the user."""
    if isinstance(moment, datetime):
        return to_nanoseconds(moment)
    if isinstance(moment, int) and not isinstance(moment, bool):
        return moment
    raise InvalidRequest(f"{name} is {moment!r}; give a datetime with its zone, or Unix nanoseconds as an int")


def span_ns(name: str, span: Span) -> int:
    """Convert and check a time span given by the user: at least 0, fractions of a nanosecond rounded up."""
    if isinstance(span, timedelta):
        return max(0, _nanoseconds(span))
    if isinstance(span, int) and not isinstance(span, bool):
        return max(0, span * 1_000_000_000)
    if isinstance(span, float) and isfinite(span_in_ns := span * 1e9):
        return max(0, ceil(span_in_ns))
    raise InvalidRequest(f"{name} is {span!r}; give seconds as a number, or a timedelta")


def _nanoseconds(span: timedelta) -> int:
    return (span.days * 86_400 + span.seconds) * 1_000_000_000 + span.microseconds * 1_000


def from_nanoseconds(moment_ns: int) -> datetime:
    """Truncated to microseconds, the resolution of a datetime."""
    return _EPOCH + timedelta(microseconds=moment_ns // 1_000)
