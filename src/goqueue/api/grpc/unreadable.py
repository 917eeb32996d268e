"""Requests that cannot be read: refused by the call they are meant for, as any other bad input is.

Left to gRPC, a single call would end with an unknown error and a traceback in the log, and a stream as if all was well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import grpc.aio
from google.protobuf.message import DecodeError

from goqueue.model.errors import InvalidRequest

_OURS = "/goqueue."


class Unreadable(NamedTuple):
    """In place of a request."""

    reason: str


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
        return handler._replace(request_deserializer=_or_unreadable(handler.request_deserializer))


def _or_unreadable(load: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def loaded(data: bytes) -> Any:
        try:
            return load(data)
        except DecodeError as error:
            return Unreadable(str(error))

    return loaded


def check_readable(request: Any) -> Any:
    if type(request) is Unreadable:
        raise InvalidRequest(f"the request is no message of the kind that this call takes: {request.reason}")
    return request
