"""OpenTelemetry trace context in message headers.

A message sent inside a span carries it as ``traceparent`` and ``tracestate``; a handler runs with that span as its
parent. The format is always W3C Trace Context, which the broker reads, whatever the program uses for other traffic.
OpenTelemetry is optional, and is imported only if the program has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from goqueue.model.message import NO_HEADERS, Headers
from goqueue.wire.trace_context import TRACEPARENT, TRACESTATE, TraceParent, trace_headers, traceparent_in

if TYPE_CHECKING:
    from opentelemetry.context import Context

_API = "opentelemetry.trace"
_UNCHANGED: AbstractContextManager[None] = nullcontext()


class Traced(Protocol):
    """Any received message."""

    @property
    def headers(self) -> Headers: ...


def current_trace() -> Headers:
    """Trace headers of the current span. Empty outside a span, or without OpenTelemetry."""
    api: Any = sys.modules.get(_API)
    # Another thread may be importing the module at this moment.
    current_span = getattr(api, "get_current_span", None)
    if current_span is None:
        return NO_HEADERS
    span = current_span().get_span_context()
    if not span.is_valid:
        return NO_HEADERS
    parent = TraceParent(f"{span.trace_id:032x}", f"{span.span_id:016x}", span.trace_flags)
    return trace_headers(parent, span.trace_state.to_header().encode() if span.trace_state else b"")


def extracted_context(message: Traced) -> Context:
    """An OpenTelemetry context with the span that a message was sent in, as parent for new spans.

    Empty if the message has no valid trace context. Needs OpenTelemetry.
    """
    return _extracted(message.headers, None)


def in_context_of(message: Traced) -> AbstractContextManager[None]:
    """A context manager in which new spans are children of the message's span; no effect if the message has none."""
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
