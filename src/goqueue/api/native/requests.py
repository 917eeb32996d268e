"""What every kind of request does: it is decoded, and its failures are answered and counted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from goqueue.api.calls.failures import unexpected
from goqueue.api.native.host import Requester
from goqueue.broker.operations import Endpoint
from goqueue.model.errors import GoQueueError, InvalidRequest

Kind = TypeVar("Kind", bound=Message)


def decoded(kind: type[Kind], data: bytes | memoryview, what: str) -> Kind:
    try:
        return kind.FromString(bytes(data))
    except DecodeError as error:
        raise InvalidRequest(f"{what} cannot be read: {error}") from None


def known(error: Exception, what: str) -> GoQueueError:
    """The error to answer with."""
    return error if isinstance(error, GoQueueError) else unexpected(error, what)


async def run_stream(
    connection: Requester, operation: int, correlation: int, endpoint: Endpoint, work: Callable[[], Awaitable[None]]
) -> None:
    """Do a stream's work as one of the streams that may be open; answer with the error that ends it, if one does."""
    code = "CANCELLED"
    try:
        with connection.server.stream_slot():
            await work()
        code = "OK"
    except Exception as error:
        failure = known(error, endpoint.name)
        code = failure.grpc_status
        connection.fail(operation, correlation, failure)
    finally:
        connection.end_stream(correlation)
        # How long a stream was open says nothing: it has no duration.
        endpoint.count(code)
