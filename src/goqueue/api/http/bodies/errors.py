"""Every error leaves as ``{error, code, retriable}`` with the status of its row in the error table."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from goqueue.api.http.bodies.answer import JSON, Answer
from goqueue.api.http.bodies.message_schemas import ErrorResponse
from goqueue.broker.operations.failures import disk_failure
from goqueue.model.errors import GoQueueError, InternalError, InvalidRequest
from goqueue.model.logging import get_logger, tracing
from goqueue.wire.trace_context import parse_traceparent

log = get_logger(__name__)

RawHeaders = Iterable[tuple[bytes, bytes]]


def error_answer(error: GoQueueError, media_type: str = JSON, *, to_registry: bool = False) -> Answer:
    return Answer(error_body(error, to_registry=to_registry), error.http_status, media_type, error_headers(error))


def error_body(error: GoQueueError, *, to_registry: bool = False) -> bytes:
    """``to_registry``: with the fields that clients of schema registries look for in every error."""
    body = ErrorResponse(str(error), error.code, error.retriable)
    if error.registry_code or to_registry:
        body.error_code, body.message = error.registry_code or error.http_status, str(error)
    return msgspec.json.encode(body)


def error_headers(error: GoQueueError) -> dict[str, str]:
    return {} if error.retry_after_s is None else {"Retry-After": str(max(1, round(error.retry_after_s)))}


def known_error(error: Exception, method: str, path: str, headers: RawHeaders) -> GoQueueError:
    """An error of the table for any exception of a route.

    A failing disk is reported as such. Anything else unknown is a defect: the log has the traceback, the caller gets no
    internals.
    """
    match error:
        case GoQueueError():
            return error
        case RecursionError():
            return InvalidRequest("body: it is nested too deeply")
        case UnicodeDecodeError():
            return InvalidRequest("body: it is not UTF-8")
    with tracing(_trace_id(headers)):
        if (failed := disk_failure(error)) is not None:
            reason = getattr(error, "strerror", None) or str(error)
            log.error("the disk failed a request", error=reason, method=method, path=path)
            return failed
        log.error("request failed", exc_info=error, method=method, path=path)
    return InternalError("the broker could not answer; its log tells why")


def _trace_id(headers: RawHeaders) -> str:
    """The trace that the request belongs to, if it says so."""
    for name, value in headers:
        if name == b"traceparent":
            parent = parse_traceparent(value)
            return "" if parent is None else parent.trace_id
    return ""
