"""Traces across the broker, for programs that use OpenTelemetry.

What is sent inside a span carries it as ``traceparent`` and ``tracestate``; a handler runs with it as its parent.
Always as W3C Trace Context, whatever the program has chosen for its other traffic: that is what the broker reads.
OpenTelemetry is neither needed nor imported here, until the program itself has.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from goqueue.model.message import NO_HEADERS, Headers
from goqueue.wire.trace_context import TRACEPARENT, TRACESTATE, TraceParent, traceparent_in
from goqueue.wire.trace_headers import trace_headers

if TYPE_CHECKING:
    from opentelemetry.context import Context

_API = "opentelemetry.trace"
_UNCHANGED: AbstractContextManager[None] = nullcontext()


class Traced(Protocol):
    """Any message that was received."""

    @property
    def headers(self) -> Headers: ...


def current_trace() -> Headers:
    """What tells of the span that the caller is in. Nothing if he is in none, or without OpenTelemetry."""
    api: Any = sys.modules.get(_API)
    # Another thread may be importing it at this moment.
    current_span = getattr(api, "get_current_span", None)
    if current_span is None:
        return NO_HEADERS
    span = current_span().get_span_context()
    if not span.is_valid:
        return NO_HEADERS
    parent = TraceParent(f"{span.trace_id:032x}", f"{span.span_id:016x}", span.trace_flags)
    return trace_headers(parent, span.trace_state.to_header().encode() if span.trace_state else b"")


def extracted_context(message: Traced) -> Context:
    """An OpenTelemetry context with the span that a message was sent in, for spans that are to be its children.

    If the message names none, or none that is valid, the context is empty. Needs OpenTelemetry.
    """
    return _extracted(message.headers, None)


def in_context_of(message: Traced) -> AbstractContextManager[None]:
    """Inside, spans are children of the one that the message was sent in; nothing changes if it names none."""
    if _API not in sys.modules or traceparent_in(message.headers) is None:
        return _UNCHANGED
    return _attached(message.headers)


@contextmanager
def _attached(headers: Headers) -> Iterator[None]:
    from opentelemetry import context

    token = context.attach(_extracted(headers, context.get_current()))
    try:
        yield
    finally:
        context.detach(token)


def _extracted(headers: Headers, onto: Context | None) -> Context:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str | list[str]] = {}
    parent = traceparent_in(headers)
    if parent is not None:
        carrier[TRACEPARENT] = str(parent)
        carrier[TRACESTATE] = [value.decode("latin-1") for name, value in headers if name == TRACESTATE]
    return TraceContextTextMapPropagator().extract(carrier, onto)
