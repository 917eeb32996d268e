"""Durations in requests: each is named when it is wrong, and bounded."""

from __future__ import annotations

from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import shown
from goqueue.model.units import format_duration_ms, parse_duration_ms


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
