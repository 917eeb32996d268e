"""Connection to one broker: what clients need of it, whatever protocol it speaks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

from goqueue.model import errors
from goqueue.model.errors import GoQueueError
from goqueue.wire.native.message import Piece
from goqueue.wire.proto import goqueue_pb2 as pb


class Connection(Protocol):
    """Opens on first use. Every error that it raises is a ``GoQueueError``."""

    address: str
    topics: Any
    metadata: Any
    groups: Any
    delays: Any
    schemas: Any
    transactions: Any

    async def call(self, method: Any, request: Any, *, timeout_ms: int | None = None) -> Any:
        """A call with one answer, a method of one of the services above; bounded by the request timeout."""

    async def publish(
        self,
        topic: str,
        partition: int,
        acks: pb.Acks.ValueType,
        batch: Sequence[Piece],
        transaction_id: str = "",
        begin: pb.Begin | None = None,
    ) -> pb.Stored:
        """Store a batch; return its position."""

    def fetch(self, request: pb.FetchRequest) -> AsyncGenerator[tuple[pb.FetchResponse, memoryview], None]:
        """Responses, each with its batch."""

    def subscribe(self) -> Any:
        """A new subscription stream for one group member; the caller has to end it."""

    def note_cut_short(self) -> None:
        """Note that a stream of this connection did not end properly."""

    async def close(self, *, at_exit: bool = False) -> None:
        """End what is under way. With ``at_exit`` the process ends, and no task is to be woken."""


class NotConnected(errors.BrokerUnavailable):
    """The request was never sent, so it was not carried out."""


def to_exception(error: pb.Error) -> GoQueueError:
    found = errors.error_from(error.code, error.message, error.retry_after_ms / 1_000 if error.retry_after_ms else None)
    if isinstance(found, errors.SchemaViolation):
        found.misfits = dict(error.misfits)
    return found
