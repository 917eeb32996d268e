"""Durations, sizes, instants and counts as people write them: ``1h30m``, ``64MiB``, RFC 3339, ``3 files``."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fractions import Fraction

from goqueue.model.clock import NANOS_PER_SECOND
from goqueue.model.errors import InvalidRequest

_DURATION_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION_PART = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(ms|s|m|h|d)", re.ASCII)
_MAX_DURATION_LENGTH = 200
_SIZE_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([a-zA-Z]{0,3})", re.ASCII)
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_INSTANT_LIMIT_NS = 1 << 63
_LONGEST_INSTANT = 100


def parse_duration_ms(text: str) -> int:
    """``"1h30m"`` -> 5_400_000, to the nearest millisecond. Bare numbers are refused, since they have no unit."""
    position, total = 0, Fraction(0)
    # A text of a megabyte would take seconds to add up.
    stripped = text.strip() if len(text) <= _MAX_DURATION_LENGTH else ""
    while match := _DURATION_PART.match(stripped, position):
        total += Fraction(match[1]) * _DURATION_UNITS_MS[match[2]]
        position = match.end()
    if position == 0 or position != len(stripped):
        raise InvalidRequest(f"{text[:40]!r} is not a duration; write it like '250ms', '30s', '1h30m' or '7d'")
    return round(total)


def format_duration_ms(milliseconds: int) -> str:
    """The shortest exact text of a duration that is not negative: 5_400_000 -> ``"1h30m"``."""
    if milliseconds == 0:
        return "0s"
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, milliseconds = divmod(milliseconds, _DURATION_UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def parse_size_bytes(text: str) -> int:
    """``"64MiB"`` -> 67_108_864, to the nearest byte."""
    match = _SIZE.fullmatch(text.strip())
    unit = _SIZE_UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise InvalidRequest(f"{text[:40]!r} is not a size; write it like '4096', '64MiB' or '1GB'")
    return round(Fraction(match[1]) * unit)


def format_size_bytes(size: int) -> str:
    """The shortest exact text: 67_108_864 -> ``"64MiB"``."""
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def parse_instant_ns(text: str) -> int:
    """An RFC 3339 instant with its zone -> Unix nanoseconds, in 64 bits; digits below a nanosecond are dropped."""
    match = _INSTANT.fullmatch(text) if len(text) <= _LONGEST_INSTANT else None
    try:
        if match is None:
            raise ValueError
        moment = datetime.fromisoformat(f"{match[1]}T{match[2]}{match[4].upper()}")
        seconds = round(moment.timestamp())
    except (ValueError, OverflowError):
        raise InvalidRequest(
            f"{text[:60]!r} is not an instant; write it like '2026-01-31T12:00:00Z' (with the zone)"
        ) from None
    instant_ns = seconds * NANOS_PER_SECOND + int((match[3] or "").ljust(9, "0"))
    if not -_INSTANT_LIMIT_NS <= instant_ns < _INSTANT_LIMIT_NS:
        raise InvalidRequest(f"{text[:60]!r} is out of range; an instant lies between the years 1678 and 2261")
    return instant_ns


def format_instant_ns(instant_ns: int) -> str:
    """Unix nanoseconds -> RFC 3339 in UTC, with as many digits as it needs."""
    seconds, nanos = divmod(instant_ns, NANOS_PER_SECOND)
    text = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()
    return f"{text}.{nanos:09d}".rstrip("0") + "Z" if nanos else text + "Z"


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 trace file``, ``6,000 trace files``; ``many`` is the plural if it is not formed by adding an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
