"""Durations, sizes and instants as people write them: ``1h30m``, ``64MiB``, RFC 3339."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from goqueue.model.errors import InvalidRequest
from goqueue.model.ports import NANOS_PER_SECOND

_DURATION_UNITS_MS = {
    "ms": 1.0,
    "s": 1_000.0,
    "m": 60_000.0,
    "h": 3_600_000.0,
    "d": 86_400_000.0,
}
_DURATION_PART = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(ms|s|m|h|d)", re.ASCII)
_SIZE_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([a-zA-Z]{0,3})", re.ASCII)
_FRACTION = re.compile(r"\.(\d{1,9})\d*", re.ASCII)


def parse_duration_ms(text: str) -> int:
    """``"1h30m"`` -> 5_400_000. Bare numbers are refused: nobody knows their unit."""
    position, total = 0, 0.0
    stripped = text.strip()
    while match := _DURATION_PART.match(stripped, position):
        total += float(match[1]) * _DURATION_UNITS_MS[match[2]]
        position = match.end()
    if position == 0 or position != len(stripped):
        raise InvalidRequest(f"{text[:40]!r} is not a duration; write it like '250ms', '30s', '1h30m' or '7d'")
    return round(total)


def format_duration_ms(milliseconds: int) -> str:
    """The shortest exact text: 5_400_000 -> ``"1h30m"``."""
    if milliseconds == 0:
        return "0s"
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, milliseconds = divmod(milliseconds, int(_DURATION_UNITS_MS[unit]))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def parse_size_bytes(text: str) -> int:
    """``"64MiB"`` -> 67_108_864."""
    match = _SIZE.fullmatch(text.strip())
    unit = _SIZE_UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise InvalidRequest(f"{text[:40]!r} is not a size; write it like '4096', '64MiB' or '1GB'")
    return round(float(match[1]) * unit)


def format_size_bytes(size: int) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def parse_instant_ns(text: str) -> int:
    """An RFC 3339 instant with its zone -> Unix nanoseconds, without rounding below the microsecond."""
    fraction = _FRACTION.search(text)
    whole = text[: fraction.start()] + text[fraction.end() :] if fraction else text
    try:
        moment = datetime.fromisoformat(whole)
        if moment.tzinfo is None:
            raise ValueError
        seconds = round(moment.timestamp())
    except (ValueError, OverflowError):
        raise InvalidRequest(
            f"{text[:60]!r} is not an instant; write it like '2026-01-31T12:00:00Z' (with the zone)"
        ) from None
    nanos = int(fraction[1].ljust(9, "0")) if fraction else 0
    return seconds * NANOS_PER_SECOND + nanos


def format_instant_ns(instant_ns: int) -> str:
    """Unix nanoseconds -> RFC 3339 in UTC, with as many digits as it needs."""
    seconds, nanos = divmod(instant_ns, NANOS_PER_SECOND)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{nanos:09d}".rstrip("0").rstrip(".") + "Z" if nanos else text + "Z"
