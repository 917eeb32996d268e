"""Instants and durations as text for a terminal: ``14:03:07.250``, ``1.31 s``, ``3h12m``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from goqueue.model.clock import NANOS_PER_MS, NANOS_PER_SECOND
from goqueue.model.units import parse_instant_ns

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


@dataclass(frozen=True, slots=True)
class Times:
    """Formats instants in the time zone ``zone``, or in this machine's zone if it is None."""

    zone: tzinfo | None = None

    def moment(self, at_ns: int) -> datetime:
        whole = datetime.fromtimestamp(at_ns // NANOS_PER_SECOND, UTC)
        return whole.replace(microsecond=at_ns % NANOS_PER_SECOND // 1_000).astimezone(self.zone)

    def clock(self, at_ns: int) -> str:
        return self.moment(at_ns).strftime("%H:%M:%S.") + f"{at_ns % NANOS_PER_SECOND // NANOS_PER_MS:03d}"

    def day(self, at_ns: int) -> str:
        return self.moment(at_ns).date().isoformat()

    def zone_name(self, at_ns: int) -> str:
        offset = self.moment(at_ns).strftime("%z")
        return "UTC" if offset == "+0000" else f"UTC{offset[:3]}:{offset[3:5]}"

    def later(self, instant: str, seen_ns: int, *, exact: bool = False) -> str:
        """An instant relative to ``seen_ns``: the time of day, and the date if the two are on different days."""
        at_ns = parse_instant_ns(instant)
        clock = self.clock(at_ns) if exact else self.clock(at_ns)[:8]
        return clock if self.day(at_ns) == self.day(seen_ns) else f"{self.day(at_ns)} {clock}"


def duration(span_ns: int) -> str:
    """Format a duration with about three digits: ``0.4 ms``, ``44 ms``, ``1.31 s``, ``30.0 s``, ``12m05s``, ``3h12m``,
    ``4d03h``."""
    sign, span_ns = ("-", -span_ns) if span_ns < 0 else ("", span_ns)
    if span_ns < 999_500_000:
        # Show fractions of a millisecond, and ``0 ms`` only for exactly zero.
        tenths = span_ns / NANOS_PER_MS
        return sign + (f"{tenths:.1f} ms" if 0 < span_ns < 9_950_000 else f"{tenths:.0f} ms")
    seconds = span_ns / NANOS_PER_SECOND
    if seconds < 59.95:
        return sign + (f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s")
    whole = round(seconds)
    if whole < _HOUR:
        return f"{sign}{whole // _MINUTE}m{whole % _MINUTE:02}s"
    if whole < _DAY:
        return f"{sign}{whole // _HOUR}h{whole % _HOUR // _MINUTE:02}m"
    return f"{sign}{whole // _DAY}d{whole % _DAY // _HOUR:02}h"
