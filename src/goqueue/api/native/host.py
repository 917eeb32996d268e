"""What requests need of their connection, and connections of their server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, NamedTuple, Protocol

from google.protobuf.message import Message as ProtoMessage

from goqueue.api.calls.subscription import Subscriptions
from goqueue.broker.operations import Caller, Endpoint, Operations
from goqueue.model.config import NativeConfig
from goqueue.model.errors import GoQueueError
from goqueue.wire.native.message import Piece


class CallTarget(NamedTuple):
    """What an operation's number stands for."""

    name: str
    method: Callable[[Caller, Any], Awaitable[ProtoMessage]]
    request: type[ProtoMessage]
    max_request_bytes: int
    endpoint: Endpoint


class Host(Protocol):
    """The server of a connection."""

    operations: Operations
    config: NativeConfig
    max_call_s: float
    calls: dict[int, CallTarget]
    subscriptions: Subscriptions
    publish_endpoint: Endpoint
    read_endpoint: Endpoint
    subscribe_endpoint: Endpoint

    def stream_slot(self) -> AbstractContextManager[None]:
        """One of the streams that may be open at once."""

    async def until_room(self) -> None:
        """Return when clients have read enough of all that was written."""

    def made_room(self) -> None:
        """A client has read what was written."""

    def connected(self, connection: Any) -> None:
        """A client has come."""

    def disconnected(self, connection: Any) -> None:
        """It has gone."""


class Requester(Protocol):
    """The connection of a request."""

    server: Host
    operations: Operations
    config: NativeConfig
    caller: Caller

    def begin(self) -> None:
        """A request was taken that will be answered."""

    def done(self) -> None:
        """One of them was answered."""

    def answer(
        self, operation: int, correlation: int, head: Piece = b"", payload: Sequence[Piece] = (), more: int = 0
    ) -> None:
        """Send an answer; ``more`` is the flag if others follow."""

    def fail(self, operation: int, correlation: int, error: GoQueueError) -> None:
        """Answer with an error."""

    async def until_writable(self) -> None:
        """Return when the client has read enough of what was written."""

    def sending(self) -> AbstractAsyncContextManager[None]:
        """Read a batch and write it, one stream after the other."""

    def end_stream(self, correlation: int) -> None:
        """A stream has ended."""
