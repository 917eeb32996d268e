"""Errors as gRPC knows them: a status from the error table, and the stable code in the trailing metadata."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from goqueue.api.calls import failures
from goqueue.api.calls.conversion import retry_after_ms
from goqueue.model.errors import GoQueueError
from goqueue.model.logging import tracing
from goqueue.wire.trace_context import TRACEPARENT, parse_traceparent

CODE_KEY = "goqueue-code"
RETRIABLE_KEY = "goqueue-retriable"
RETRY_AFTER_KEY = "goqueue-retry-after-ms"

_LONGEST_TEXT = 2_000
"""It travels in a header, where every byte may take three; of larger headers a client sees nothing but a failure."""

Context = grpc.aio.ServicerContext[Any, Any]


async def abort(context: Context, error: GoQueueError) -> None:
    """End the call with this error. Does not return."""
    metadata = [(CODE_KEY, error.code), (RETRIABLE_KEY, "true" if error.retriable else "false")]
    if after_ms := retry_after_ms(error):
        metadata.append((RETRY_AFTER_KEY, str(after_ms)))
    await context.abort(grpc.StatusCode[error.grpc_status], _shortened(str(error)), trailing_metadata=tuple(metadata))


def _shortened(text: str) -> str:
    encoded = text.encode(errors="replace")
    if len(encoded) <= _LONGEST_TEXT:
        return text
    return encoded[:_LONGEST_TEXT].decode(errors="ignore") + "…"


def unexpected(error: Exception, method: str, context: Context) -> GoQueueError:
    """What a call is answered with that failed in an unknown way; the log names the trace that it belongs to."""
    with tracing(_trace_id(context)):
        return failures.unexpected(error, method)


def _trace_id(context: Context) -> str:
    """The trace that the call belongs to, if it says so."""
    for name, value in context.invocation_metadata() or ():
        if name == TRACEPARENT:
            parent = parse_traceparent(value if isinstance(value, bytes) else value.encode())
            return "" if parent is None else parent.trace_id
    return ""
