"""Every error leaves as ``{error, code, retriable}`` with the status of its row in the error table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.openapi.datastructures import ResponseSpec

from goqueue.api.http.bodies.allowed_methods import allowed
from goqueue.api.http.bodies.message_schemas import ErrorResponse
from goqueue.api.http.bodies.query import LENIENT
from goqueue.api.http.bodies.registry_media import named
from goqueue.broker.operations.failures import disk_failure
from goqueue.model.errors import (
    BodyTooLarge,
    GoQueueError,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    UnsupportedMediaType,
)
from goqueue.model.logging import get_logger, tracing
from goqueue.wire.trace_context import parse_traceparent

log = get_logger(__name__)

RawHeaders = Iterable[tuple[bytes, bytes]]

_BY_STATUS: dict[int, type[GoQueueError]] = {
    404: NotFound,
    405: MethodNotAllowed,
    413: BodyTooLarge,
    415: UnsupportedMediaType,
}
_MEANINGS = {
    400: "The request is wrong; nothing was changed.",
    403: "The name is kept for the broker, or the request comes from another site's page or is for another host.",
    404: "There is no such topic, partition, group, member, delayed message, producer or transaction.",
    406: "The client takes none of the names for JSON that the registry has.",
    409: "It exists already, or is not as the request takes it to be.",
    410: "The receipt is void: the message was settled, or delivered again.",
    413: "A message or the body is too large.",
    415: "The body has another content type or encoding than is taken.",
    416: "The offset was removed or is not there yet.",
    422: "The schema or the message is not as it should be; nothing was changed.",
    429: "As many delayed messages wait, dedup ids are remembered or transactions are open as the broker allows.",
    501: "This version does not have the feature.",
    503: "Too much at once, stopping, or a failed disk.",
    507: "The disk is nearly full.",
}


def documented(*statuses: int) -> dict[int, ResponseSpec]:
    """For a route's OpenAPI: the errors it may answer with. Every route may be busy or stopping."""
    return {
        status: ResponseSpec(ErrorResponse, generate_examples=False, description=_MEANINGS[status])
        for status in {*statuses, 400, 403, 503}
    }


def error_body(error: GoQueueError, *, to_registry: bool = False) -> bytes:
    """``to_registry``: the client is one of the schema registry's, and looks for what these know in every error."""
    body = ErrorResponse(str(error), error.code, error.retriable)
    if error.registry_code or to_registry:
        body.error_code, body.message = error.registry_code or error.http_status, str(error)
    return msgspec.json.encode(body)


def error_headers(error: GoQueueError) -> dict[str, str]:
    return {} if error.retry_after_s is None else {"Retry-After": str(max(1, round(error.retry_after_s)))}


def answer_error(request: Request[Any, Any, Any], error: GoQueueError) -> Response[bytes]:
    options = getattr(request.scope.get("route_handler"), "opt", {})
    to_registry = bool(options.get(LENIENT))
    body = error_body(error, to_registry=to_registry)
    kind = error_media_type(request.scope["headers"], to_registry=to_registry)
    return Response(body, status_code=error.http_status, headers=error_headers(error), media_type=kind)


def error_media_type(headers: RawHeaders, *, to_registry: bool) -> str:
    """Clients of the registry that ask for one of its names for JSON get it for errors as well."""
    return named(headers) if to_registry else "application/json"


def answer_framework_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """What the framework refuses before a handler runs: an unknown path, a body that does not fit its type."""
    kind = _BY_STATUS.get(error.status_code)
    if kind is not None:
        answer = answer_error(request, kind(f"{request.method} {request.url.path[:200]}: {error.detail}"))
        if error.status_code == MethodNotAllowed.http_status and error.headers:
            listed = next((value for name, value in error.headers.items() if name.lower() == "allow"), "")
            answer.headers["allow"] = allowed(listed, request.scope["path"])
        return answer
    if error.status_code < InternalError.http_status:
        return answer_error(request, InvalidRequest(_explain(error)))
    return answer_unexpected(request, error)


def answer_unexpected(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    return answer_error(request, unexpected(error, request.method, request.url.path, request.scope["headers"]))


def unexpected(error: Exception, method: str, path: str, headers: RawHeaders) -> GoQueueError:
    """A failing disk is told as such; all else is a defect: the log has the story, the caller gets no internals."""
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


def answer_too_deep(request: Request[Any, Any, Any], _: RecursionError) -> Response[bytes]:
    return answer_error(request, InvalidRequest("body: it is nested too deeply"))


def answer_not_text(request: Request[Any, Any, Any], _: UnicodeDecodeError) -> Response[bytes]:
    return answer_error(request, InvalidRequest("body: it is not UTF-8"))


def _explain(error: HTTPException) -> str:
    parts = []
    for item in error.extra if isinstance(error.extra, list) else []:
        if isinstance(item, dict):
            where = item.get("key") or item.get("source") or "request"
            # The framework's name for the body, and what it says when there is none.
            where = "body" if where == "data" else where
            message = "it is missing" if item.get("message") == "'data'" else item.get("message", "")
            parts.append(f"{where}: {message}")
    return "; ".join(parts) or str(error.detail)


EXCEPTION_HANDLERS: dict[int | type[Exception], Any] = {
    GoQueueError: answer_error,
    HTTPException: answer_framework_error,
    RecursionError: answer_too_deep,
    UnicodeDecodeError: answer_not_text,
    Exception: answer_unexpected,
}
