"""Requests that cannot be read: refused by the call they are meant for, as any other bad input is.

Left to gRPC, a single call would end with an unknown error and a traceback in the log, and a stream as if all was well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import grpc.aio
from google.protobuf.message import DecodeError

from goqueue.api.calls.limits import max_request_bytes
from goqueue.model.errors import BodyTooLarge, InvalidRequest

_OURS = "/goqueue.v1."
_WITH_MESSAGES = ("Messages.Publish", "Messages.PublishStream")


class Unreadable(NamedTuple):
    """In place of a request."""

    error: InvalidRequest


class HandOverUnreadable(grpc.aio.ServerInterceptor):
    """Lets calls see that there was a request."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(_OURS):
            return handler
        most = _most_bytes(handler_call_details.method)
        handler = handler._replace(request_deserializer=_or_unreadable(handler.request_deserializer, most))
        # Single answers come as bytes already (``calls.answered``).
        return handler if handler.unary_unary is None else handler._replace(response_serializer=None)


def _most_bytes(method: str) -> int | None:
    """``None``: as many as the server takes (``grpc.max_message_bytes``)."""
    call = method.removeprefix(_OURS).replace("/", ".")
    return None if call in _WITH_MESSAGES else max_request_bytes(call)


def _or_unreadable(load: Callable[[bytes], Any], most_bytes: int | None) -> Callable[[bytes], Any]:
    def loaded(data: bytes) -> Any:
        if most_bytes is not None and len(data) > most_bytes:
            return Unreadable(
                BodyTooLarge(f"the request has {len(data)} bytes; {most_bytes} are allowed for this call")
            )
        try:
            return load(data)
        except DecodeError as error:
            return Unreadable(InvalidRequest(f"the request is no message of the kind that this call takes: {error}"))

    return loaded


def check_readable(request: Any) -> Any:
    if type(request) is Unreadable:
        raise request.error
    return request
