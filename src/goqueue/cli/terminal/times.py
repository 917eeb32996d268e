"""Parses durations and instants of options: ``10m``, ``2026-01-31T12:00:00Z``, ``2026-01-31 12:00`` (local time).

Errors name the option and the limit that was exceeded.
"""

from __future__ import annotations

import re
import time
from datetime import datetime

import typer

from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import shown
from goqueue.model.units import format_duration_ms, parse_duration_ms, parse_instant_ns

LONGEST_MS = 3_650 * 86_400_000
"""Ten years; a longer duration is taken for a typing error."""
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
