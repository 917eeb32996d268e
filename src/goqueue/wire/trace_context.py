"""Trace id of a message: set by the producer, or else derived from the message's position.

A producer sets it in the header ``traceparent``, as in W3C Trace Context. Otherwise the trace id is computed from
topic, partition and offset, and these can be computed back from it: every message can be found by its trace id, however
old it is, and nothing is stored for that::

    0  topic       5   of the SHA-256 of its name
    5  partition   3
    8  offset      8   mixed, so that samplers which read these bytes see random bits

Copies that the broker makes of a message (when it is due, as a dead letter, redriven) stay in its trace.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goqueue.model.message import Headers
from goqueue.wire.internal_headers import DELAYED_OFFSET, TRACE

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
SAMPLED = 1
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_PARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_LONGEST_PARENT = 512
_MOST_DIGITS = 19
_LONGEST_STATE = 512
"""Length that the standard asks to propagate; longer values may be dropped."""
_MOST_OWN_BYTES = 60_000
_BYTES_AROUND = 4
"""Bytes that the encoding adds to each header's name and value."""
_NO_TRACE = b"0" * 32
_NO_SPAN = b"0" * 16
_OFFSET_MASK = (1 << 64) - 1
_TOPIC_BITS = 40
_PARTITION_BITS = 24
# Mixing is reversible: an odd factor by its inverse, a shift by half the width by itself.
_FACTOR = 0x9E3779B97F4A7C15
_INVERSE = pow(_FACTOR, -1, 1 << 64)


class TraceParent(NamedTuple):
    """Fields of a ``traceparent``, in lower-case hexadecimal."""

    trace_id: str
    span_id: str
    flags: int

    @property
    def is_sampled(self) -> bool:
        return bool(self.flags & SAMPLED)

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"


class DerivedPlace(NamedTuple):
    """Position encoded in a derived trace id: ``topic`` is the mark of the topic's name."""

    topic: int
    partition: int
    offset: int


def parse_traceparent(value: bytes) -> TraceParent | None:
    """Parse a ``traceparent``; ``None`` for values that the standard requires receivers to ignore."""
    if len(value) > _LONGEST_PARENT or (found := _PARENT.fullmatch(value)) is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == b"ff" or trace_id == _NO_TRACE or span_id == _NO_SPAN or (version == b"00" and more is not None):
        return None
    return TraceParent(trace_id.decode(), span_id.decode(), int(flags, 16))


def traceparent_in(headers: Headers) -> TraceParent | None:
    """The ``traceparent`` set by the message's producer; the first header of that name counts."""
    for name, value in headers:
        if name == TRACEPARENT:
            return parse_traceparent(value)
    return None


def trace_headers(parent: TraceParent, state: bytes = b"") -> Headers:
    """Headers for a trace context. ``state`` is passed through unread for tracing systems."""
    named = (TRACEPARENT, str(parent).encode())
    return (named, (TRACESTATE, state)) if 0 < len(state) <= _LONGEST_STATE else (named,)


def in_trace(own: Headers, trace: Headers) -> Headers:
    """A message's headers together with the trace headers, unless it has a trace of its own.

    If they would exceed the limit, the headers stay unchanged: no message is refused because of its trace.
    """
    if not own:
        return trace
    if any(name == TRACEPARENT for name, _ in own):
        return own
    size = sum(len(name.encode(errors="replace")) + len(value) + _BYTES_AROUND for name, value in own)
    return own if size > _MOST_OWN_BYTES else (*own, *trace)


def is_trace_id(text: str) -> bool:
    return _TRACE_ID.fullmatch(text) is not None and text != _NO_TRACE.decode()


def trace_id_of(headers: Headers, topic: str, partition: int, offset: int) -> str:
    """Trace id of a message, in 32 hexadecimal digits."""
    if not headers:
        return derived_trace_id(topic, partition, offset)
    parent = traceparent_in(headers)
    if parent is not None:
        return parent.trace_id
    for name, value in headers:
        if name == TRACE and is_trace_id(text := value.decode("ascii", "replace")):
            return text
        if name == DELAYED_OFFSET and value.isdigit() and len(value) <= _MOST_DIGITS:
            offset = int(value)
    return derived_trace_id(topic, partition, offset)


def derived_trace_id(topic: str, partition: int, offset: int) -> str:
    """Trace id of a message whose producer set none."""
    upper = topic_mark(topic) << _PARTITION_BITS | partition
    return f"{upper:016x}{_mixed(offset ^ upper):016x}"


def derived_trace_ids(topic: str, partition: int, offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Derived trace ids for many offsets at once: the upper and the lower half of each."""
    upper = topic_mark(topic) << _PARTITION_BITS | partition
    made = np.empty((len(offsets), 2), np.uint64)
    made[:, 0] = upper
    lower = offsets.astype(np.uint64) ^ np.uint64(upper)
    lower ^= lower >> np.uint64(32)
    lower *= np.uint64(_FACTOR)
    made[:, 1] = lower ^ lower >> np.uint64(32)
    return made


def place_of(trace_id: str) -> DerivedPlace:
    """Position encoded in a derived trace id. Other trace ids give a position that hardly any message has."""
    upper, lower = int(trace_id[:16], 16), int(trace_id[16:], 16)
    offset = _unmixed(lower) ^ upper
    return DerivedPlace(upper >> _PARTITION_BITS, upper & ((1 << _PARTITION_BITS) - 1), offset)


@lru_cache(maxsize=4_096)
def topic_mark(topic: str) -> int:
    """Mark that stands for a topic's name in derived trace ids."""
    mark = int.from_bytes(sha256(topic.encode()).digest()[: _TOPIC_BITS // 8])
    # A trace id of all zeros is invalid.
    return mark or 1


def derived_span_id(trace_id: str, *parts: object) -> str:
    """A span id derived from the given parts, so that spans can refer to each other without sharing state."""
    text = "/".join([trace_id, *map(str, parts)])
    digest = blake2b(text.encode(), digest_size=8).hexdigest()
    return digest if digest != _NO_SPAN.decode() else "0" * 15 + "1"


def _mixed(number: int) -> int:
    number ^= number >> 32
    number = number * _FACTOR & _OFFSET_MASK
    return number ^ number >> 32


def _unmixed(number: int) -> int:
    number ^= number >> 32
    number = number * _INVERSE & _OFFSET_MASK
    return number ^ number >> 32
