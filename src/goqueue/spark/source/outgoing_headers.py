"""Headers and delays of rows, encoded as the header bytes of frames."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goqueue.client.connection.instants import Span
from goqueue.model.errors import InvalidMessage, MessageTooLarge
from goqueue.model.message import Headers
from goqueue.wire.delayed import MAX_DELAY_NS, MAX_DELAYED_HEADERS_BYTES, due_header
from goqueue.wire.frame import MAX_HEADERS_BYTES, encode_headers
from goqueue.wire.internal_headers import RESERVED_PREFIX
from goqueue.wire.producer_frames import STAMP_BYTES

_US = timedelta(microseconds=1)
_NS_PER_US = 1_000
_NS_PER_S = 1_000_000_000
_MAX_NS = (1 << 63) - 1


def packed_headers(
    headers: pa.Array | None, delay: pa.Array | None, deliver_at: pa.Array | None, count: int
) -> tuple[pa.Array | None, NDArray[np.int64] | None]:
    """Encoded headers per row, or ``None`` if no row has any; and the indices of delayed rows, or ``None``."""
    due_headers = _due_headers(delay, deliver_at)
    if headers is None and not due_headers:
        return None, None
    given: list[Headers] = [()] * count if headers is None else [_pairs(each) for each in headers.to_pylist()]
    for row, due in due_headers.items():
        given[row] = (*given[row], due)
    packed = [encode_headers(each) if each else b"" for each in given]
    if not any(packed):
        return None, None
    for row, each in enumerate(packed):
        most = (MAX_DELAYED_HEADERS_BYTES if row in due_headers else MAX_HEADERS_BYTES) - STAMP_BYTES
        if len(each) > most:
            raise MessageTooLarge(f"the headers of a row have {len(each)} bytes; {most} are allowed")
    return pa.array(packed, pa.binary()), np.fromiter(due_headers, np.int64, len(due_headers)) if due_headers else None


def _pairs(given: object) -> Headers:
    """Headers from a list of (name, value), or from a map."""
    if not given:
        return ()
    assert isinstance(given, list)
    pairs: list[tuple[str, bytes]] = []
    for each in given:
        if each is None:
            raise InvalidMessage("a header is null; leave it out: filter(headers, h -> h IS NOT NULL)")
        name, value = (each["name"], each["value"]) if isinstance(each, dict) else each
        if name is None:
            raise InvalidMessage("a header has no name")
        if value is None:
            raise InvalidMessage(f"header {name[:60]!r} has no value; leave it out, or give it an empty one")
        if name.startswith(RESERVED_PREFIX):
            raise InvalidMessage(
                f"header {name[:60]!r} is not allowed; names that begin with {RESERVED_PREFIX!r} are the broker's. "
                f"Drop them: filter(headers, h -> NOT startswith(h.name, '{RESERVED_PREFIX}'))"
            )
        pairs.append((name, value.encode() if isinstance(value, str) else value))
    return tuple(pairs)


def _due_headers(delay: pa.Array | None, deliver_at: pa.Array | None) -> dict[int, tuple[str, bytes]]:
    """The due-time header by row. A row whose delay is null or not in the future is not delayed."""
    if deliver_at is not None:
        moments = deliver_at.cast(pa.int64()).to_pylist()
        return {row: due_header(_instant_ns(at)) for row, at in enumerate(moments) if at is not None and at > 0}
    if delay is None:
        return {}
    spans = [0 if each is None else _delay_ns(each) for each in delay.to_pylist()]
    return {row: due_header(span, relative=True) for row, span in enumerate(spans) if span > 0}


def _delay_ns(delay: Span | Decimal) -> int:
    """Nanoseconds of a delay given as any numeric type in seconds, or as an interval."""
    if isinstance(delay, timedelta):
        span = delay // _US * _NS_PER_US
    elif not math.isfinite(delay):
        raise InvalidMessage(f"a delay is {delay} seconds; it must be a number")
    else:
        # Rounded up to a nanosecond, so it is never early. Clamped first: a huge value might become infinite.
        span = math.ceil(min(delay, MAX_DELAY_NS) * _NS_PER_S)
    shown = delay if isinstance(delay, timedelta) else f"{delay} seconds"
    if span > MAX_DELAY_NS:
        raise InvalidMessage(f"a delay is {shown}; at most {MAX_DELAY_NS // _NS_PER_S} seconds (200 years) are allowed")
    if span < 0:
        raise InvalidMessage(f"a delay is {shown}; it must be 0 or more, or null. Use greatest(delay, 0)")
    return span


def _instant_ns(microseconds: int) -> int:
    if microseconds > _MAX_NS // _NS_PER_US:
        raise InvalidMessage("a deliver_at lies after what 64 bits of nanoseconds hold (the year 2262)")
    return microseconds * _NS_PER_US
