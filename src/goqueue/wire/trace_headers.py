"""Headers that carry the trace context from producer to consumer."""

from __future__ import annotations

from goqueue.model.message import Headers
from goqueue.wire.trace_context import TRACEPARENT, TRACESTATE, TraceParent

_LONGEST_STATE = 512
"""Length that the standard asks to propagate; longer values may be dropped."""
_MOST_OWN_BYTES = 60_000
_BYTES_AROUND = 4
"""Bytes that the encoding adds to each header's name and value."""


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
