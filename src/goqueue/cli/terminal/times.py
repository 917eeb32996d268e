"""Durations and instants: parsed from options (``10m``, ``2026-01-31T12:00:00Z``, ``2026-01-31 12:00`` in local time),
and as text for a terminal (``14:03:07.250``, ``1.31 s``, ``3h12m``).

Errors name the option and the limit that was exceeded.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

import typer

from goqueue.model.clock import NANOS_PER_MS, NANOS_PER_SECOND
from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import shown
from goqueue.model.units import format_duration_ms, parse_duration_ms, parse_instant_ns

LONGEST_MS = 3_650 * 86_400_000
"""Ten years; a longer duration is taken for a typing error."""
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_DURATION = re.compile(r"([0-9.]+(ms|s|m|h|d))+")


def duration_ms(option: str, text: str, *, least_ms: int = 0, most_ms: int = LONGEST_MS) -> int:
    """Parse a duration such as ``250ms``, ``30s``, ``1h30m`` or ``7d``."""
    try:
        found = parse_duration_ms(text)
    except InvalidRequest as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
    if not least_ms <= found <= most_ms:
        most = f"{most_ms // 86_400_000}d" if most_ms % 86_400_000 == 0 else format_duration_ms(most_ms)
        limits = f"{format_duration_ms(least_ms)} to {most}" if least_ms else f"at most {most}"
        raise typer.BadParameter(f"{shown(text)} is out of range; {limits}", param_hint=option)
    return found


def instant_ns(option: str, text: str) -> int:
    """Parse an RFC 3339 instant into Unix nanoseconds; without a zone, it is in this machine's local time."""
    try:
        return parse_instant_ns(text)
    except InvalidRequest as error:
        try:
            return parse_instant_ns(datetime.fromisoformat(text).astimezone().isoformat())
        except (ValueError, OverflowError, InvalidRequest):
            raise typer.BadParameter(str(error), param_hint=option) from None


def since_ns(option: str, text: str) -> int:
    """The instant that lies the given duration ago, by this machine's clock."""
    return time.time_ns() - duration_ms(option, text) * NANOS_PER_MS


def past_ns(option: str, text: str) -> int:
    """Parse an instant, or a duration back from now (``7d``), which is cut at the epoch."""
    return max(0, since_ns(option, text)) if _DURATION.fullmatch(text) else instant_ns(option, text)


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
