"""Acks in transactions: messages leave their consumers and become part of a transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from goqueue.client.connection.directory import Directory
from goqueue.client.connection.retries import CallOutcome
from goqueue.client.consumer.delivery import Received, claims_of
from goqueue.client.consumer.leases import Lease
from goqueue.client.consumer.settler import Settler, portions
from goqueue.model.errors import InvalidRequest, StaleReceipt
from goqueue.wire.proto import goqueue_pb2 as pb


class AckRequestPart:
    """Messages of one consumer acked in one request; the consumer's leases no longer include them."""

    def __init__(
        self, context: Any, leases: list[Lease], by_lease: dict[Lease, list[int]], messages: list[Received[Any]]
    ) -> None:
        self.group: str = context.group
        self._settler: Settler = context.settler
        self._claims = [(lease, by_lease[lease]) for lease in leases]
        self._messages = messages

    def claims(self) -> list[pb.LeaseClaim]:
        return [lease.claim(offsets) for lease, offsets in self._claims]

    def return_to_consumer(self) -> None:
        """Return the messages to the consumer, unsettled: the transaction did not take them."""
        self._settler.reattach(self._claims)
        for message in self._messages:
            message._settled = False


def take_messages(messages: Received[Any] | Iterable[Received[Any]], directory: Directory) -> list[AckRequestPart]:
    """Take all of the messages from their consumers, or raise without any effect."""
    by_consumer = _group_by_consumer(messages, directory)
    for context, some in by_consumer.items():
        if any(message.settled for message in some):
            raise StaleReceipt("one of the messages is settled already, so it cannot be acked in a transaction")
        context.settler.check_in_hand([(message._lease, (message.offset,)) for message in some])
    found: list[AckRequestPart] = []
    for context, some in by_consumer.items():
        claims = claims_of(some)
        context.settler.detach(claims)
        by_lease = {lease: list(offsets) for lease, offsets in claims}
        of_lease: dict[Lease, list[Received[Any]]] = {}
        for message in some:
            of_lease.setdefault(message._lease, []).append(message)
        found += [
            AckRequestPart(context, leases, by_lease, [each for lease in leases for each in of_lease[lease]])
            for leases in portions(by_lease)
        ]
    return found


def _group_by_consumer(
    messages: Received[Any] | Iterable[Received[Any]], directory: Directory
) -> dict[Any, list[Received[Any]]]:
    by_consumer: dict[Any, list[Received[Any]]] = {}
    for message in messages if isinstance(messages, Iterable) else [messages]:
        if not isinstance(message, Received):
            raise InvalidRequest(
                f"{type(message).__name__} cannot be acked: that is for messages of a queue; offsets of a stream are "
                "committed (commit_offsets)"
            )
        context: Any = message._context
        if context.directory is not directory:
            raise InvalidRequest(
                f"{message!r} was received by a consumer of another client; a transaction takes messages of consumers "
                "of its own client only"
            )
        by_consumer.setdefault(context, []).append(message)
    return by_consumer


async def add_each(
    portions: list[AckRequestPart], add: Callable[[AckRequestPart, CallOutcome], Awaitable[None]]
) -> None:
    """Add the portions one by one; those whose request was not carried out are returned to their consumers."""
    try:
        while portions:
            outcome = CallOutcome()
            try:
                await add(portions[0], outcome)
            except BaseException:
                if outcome.maybe_done:
                    # The broker may hold them for the transaction; an abort releases them.
                    del portions[0]
                raise
            del portions[0]
    finally:
        for left in portions:
            left.return_to_consumer()
