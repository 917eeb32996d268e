"""Which trace a message belongs to: the one that its producer names, or one of its own.

A producer names it in the header ``traceparent`` as W3C Trace Context has it. A message without one has a trace id
that is computed from where it lies, and from which that place can be computed again: so every message can be looked up
by its trace id, however old it is, and nothing has to be stored for that::

    0  topic       5   of the SHA-256 of its name
    5  partition   3
    8  offset      8   mixed, so that samplers which look at these bytes see noise

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
_NO_TRACE = b"0" * 32
_NO_SPAN = b"0" * 16
_OFFSET_MASK = (1 << 64) - 1
_TOPIC_BITS = 40
_PARTITION_BITS = 24
# An odd factor can be undone by its inverse, and a shift by half the width by itself: nothing is lost in mixing.
_FACTOR = 0x9E3779B97F4A7C15
_INVERSE = pow(_FACTOR, -1, 1 << 64)


class TraceParent(NamedTuple):
    """What a ``traceparent`` says, in lower-case hexadecimal."""

    trace_id: str
    span_id: str
    flags: int

    @property
    def is_sampled(self) -> bool:
        return bool(self.flags & SAMPLED)

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"


class DerivedPlace(NamedTuple):
    """What a computed trace id says of the message: ``topic`` is the mark of its topic's name."""

    topic: int
    partition: int
    offset: int


def parse_traceparent(value: bytes) -> TraceParent | None:
    """``None`` for anything that the standard tells receivers to ignore."""
    if len(value) > _LONGEST_PARENT or (found := _PARENT.fullmatch(value)) is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == b"ff" or trace_id == _NO_TRACE or span_id == _NO_SPAN or (version == b"00" and more is not None):
        return None
    return TraceParent(trace_id.decode(), span_id.decode(), int(flags, 16))


def traceparent_in(headers: Headers) -> TraceParent | None:
    """What the message's producer says; the first header of that name counts."""
    for name, value in headers:
        if name == TRACEPARENT:
            return parse_traceparent(value)
    return None


def is_trace_id(text: str) -> bool:
    return _TRACE_ID.fullmatch(text) is not None and text != _NO_TRACE.decode()


def trace_id_of(headers: Headers, topic: str, partition: int, offset: int) -> str:
    """The trace that a message belongs to, in 32 hexadecimal digits."""
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
    """The trace id of a message whose producer named none."""
    upper = topic_mark(topic) << _PARTITION_BITS | partition
    return f"{upper:016x}{_mixed(offset ^ upper):016x}"


def derived_trace_ids(topic: str, partition: int, offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The same for many offsets at once: for each the upper and the lower half."""
    upper = topic_mark(topic) << _PARTITION_BITS | partition
    made = np.empty((len(offsets), 2), np.uint64)
    made[:, 0] = upper
    lower = offsets.astype(np.uint64) ^ np.uint64(upper)
    lower ^= lower >> np.uint64(32)
    lower *= np.uint64(_FACTOR)
    made[:, 1] = lower ^ lower >> np.uint64(32)
    return made


def place_of(trace_id: str) -> DerivedPlace:
    """The opposite. For a trace id that was not computed so, the place is one that hardly any message has."""
    upper, lower = int(trace_id[:16], 16), int(trace_id[16:], 16)
    offset = _unmixed(lower) ^ upper
    return DerivedPlace(upper >> _PARTITION_BITS, upper & ((1 << _PARTITION_BITS) - 1), offset)


@lru_cache(maxsize=4_096)
def topic_mark(topic: str) -> int:
    """What stands for a topic's name in computed trace ids."""
    mark = int.from_bytes(sha256(topic.encode()).digest()[: _TOPIC_BITS // 8])
    # All zeros is no trace id.
    return mark or 1


def derived_span_id(trace_id: str, *parts: object) -> str:
    """A span id that can be computed again by whoever knows the same, so that spans can refer to each other."""
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
