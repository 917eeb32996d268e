"""The headers in which a message carries its trace from whoever publishes it to whoever gets it."""

from __future__ import annotations

from goqueue.model.message import Headers
from goqueue.wire.trace_context import TRACEPARENT, TRACESTATE, TraceParent

_LONGEST_STATE = 512
"""What the standard asks everyone to pass on; more may be left out."""
_MOST_OWN_BYTES = 60_000
_BYTES_AROUND = 4
"""Around each header's name and value, when they are packed."""


def trace_headers(parent: TraceParent, state: bytes = b"") -> Headers:
    """``state`` is the tracing systems' own, and means nothing here."""
    named = (TRACEPARENT, str(parent).encode())
    return (named, (TRACESTATE, state)) if 0 < len(state) <= _LONGEST_STATE else (named,)


def in_trace(own: Headers, trace: Headers) -> Headers:
    """A message's own headers and those of a trace, unless its own name one already.

    Headers that fill the room they have stay as they are: no message is refused because of its trace.
    """
    if not own:
        return trace
    if any(name == TRACEPARENT for name, _ in own):
        return own
    size = sum(len(name.encode(errors="replace")) + len(value) + _BYTES_AROUND for name, value in own)
    return own if size > _MOST_OWN_BYTES else (*own, *trace)
