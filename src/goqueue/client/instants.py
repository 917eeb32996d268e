"""Python's datetimes as Unix nanoseconds, without a detour over floats."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from goqueue.model.errors import InvalidRequest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_nanoseconds(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise InvalidRequest("a datetime needs its zone here, such as datetime.now(UTC)")
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000


def from_nanoseconds(moment_ns: int) -> datetime:
    """What a datetime cannot hold, below a microsecond, is cut off."""
    return _EPOCH + timedelta(microseconds=moment_ns // 1_000)
