"""Operations that publish: messages that the broker encodes, and batches of frames that a client has encoded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from goqueue.broker.operations.caller import Caller
from goqueue.broker.operations.gate import Resource, ResourceOperations, Served, operation
from goqueue.broker.operations.transactions import TransactionRef, find_ongoing
from goqueue.broker.partitions.dedup_ids import FirstOne
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.publishing.appending import Appended
from goqueue.broker.publishing.schema_rejects import ALL_FIT, Refused
from goqueue.broker.transactions.open_transactions import OpenTransaction
from goqueue.model.errors import GoQueueError, InvalidRequest, ShuttingDown
from goqueue.model.fields import shown
from goqueue.model.producer_sequences import SEQUENCES
from goqueue.model.publishing import NewMessage, Outcome
from goqueue.wire.batch import FrameRun


@dataclass(slots=True)
class AppendedBatch:
    """A batch that is written and may not be durable yet."""

    _appended: Appended
    count: int
    _topic: Topic
    _number: int
    incarnation: int
    """Which life of its coordinator knows the batch's transaction; 0 without one."""
    first_offset: int = field(init=False)
    """Where those of its messages that are no duplicates begin."""
    duplicates: Mapping[int, FirstOne] = field(init=False)
    """By their index in the batch: messages that were not stored again, and where they are."""
    may_be_delayed: bool = field(init=False)
    """Whether there may be any due times."""

    def __post_init__(self) -> None:
        self.first_offset, _, self.duplicates, self.may_be_delayed = self._appended

    async def durable(self) -> None:
        """Return when the batch is as durable as its topic promises; raise if it never will be."""
        try:
            await self._appended.acknowledged
        except GoQueueError as error:
            # A deleted topic is no disk failure; the partition knows.
            raise self._topic.partition(self._number).reason(error) from None

    def when_durable(self, done: Callable[[GoQueueError | None], None]) -> None:
        """Call ``done`` when the batch is as durable as its topic promises, or with the reason why it never will be.

        At once if that is known by now; else as a callback of the event loop.
        """
        acknowledged = self._appended.acknowledged
        if acknowledged.done():
            done(self._failure(acknowledged))
        else:
            acknowledged.add_done_callback(lambda future: done(self._failure(future)))

    def _failure(self, acknowledged: asyncio.Future[None]) -> GoQueueError | None:
        if acknowledged.cancelled():
            return ShuttingDown("the broker has stopped", retry_after_s=1)
        error = acknowledged.exception()
        if error is None:
            return None
        if not isinstance(error, GoQueueError):
            raise error
        # A deleted topic is no disk failure; the partition knows.
        return self._topic.partition(self._number).reason(error)

    def forget(self) -> None:
        """No one waits for the batch: why it could not be made durable is only logged where that was found."""
        self._appended.acknowledged.add_done_callback(lambda each: each.cancelled() or each.exception())

    def due_times(self) -> list[int]:
        """When each message is due, 0 for one that is not delayed; empty if none is. To be asked right after."""
        partitions, places = self._topic.partitions, self._appended.places(self.count, self._number)
        found = [partitions[number].delays.due(offset) or 0 for number, offset in places]
        return found if any(found) else []


async def _when_appended(
    appended: Awaitable[Appended], count: int, topic: Topic, number: int, incarnation: int
) -> AppendedBatch:
    return AppendedBatch(await appended, count, topic, number, incarnation)


class PublishingOperations(ResourceOperations):
    """In a transaction readers see what was published once it is committed."""

    @operation("messages.publish", Resource.TOPIC, Served.WHILE_ACCEPTING)
    async def publish(
        self,
        caller: Caller,
        topic: str,
        messages: Sequence[NewMessage],
        transaction: OpenTransaction | None = None,
        sequence: int | None = None,
    ) -> list[Outcome]:
        """Store messages: one outcome for each, in order, when those that were stored are durable.

        ``sequence`` numbers the only message of a transactional publish, so that a retry is not stored again.
        """
        if sequence is not None and (transaction is None or len(messages) != 1 or not 0 <= sequence < SEQUENCES):
            raise InvalidRequest(
                f"sequence is {shown(sequence)}; it is a number from 0 to {SEQUENCES - 1}, for one message of a "
                "transaction"
            )
        found = self._host.topics.find(topic)
        return await self._host.publisher.publish(found, messages, transaction, sequence) if messages else []

    @operation("messages.check_target", Resource.TOPIC, Served.WHILE_ACCEPTING)
    def check_target(self, caller: Caller, topic: str, partition: int) -> None:
        """Raise unless there is such a partition: to be asked before the body of a batch is read."""
        self._host.topics.find(topic).partition(partition)

    @operation("messages.append", Resource.TOPIC, Served.WHILE_ACCEPTING)
    def append(
        self, caller: Caller, topic: str, partition: int, run: FrameRun, transaction: TransactionRef | None = None
    ) -> AppendedBatch | Awaitable[AppendedBatch]:
        """Write a batch that a client has encoded, whole or not at all, without waiting until it is durable.

        At once, unless it takes long to look through the batch, as when its values are checked against a schema.
        """
        host = self._host
        ongoing = None if transaction is None else find_ongoing(host.transactions, transaction)
        found = host.topics.find(topic)
        appended = host.publisher.append(found, partition, run, ongoing)
        incarnation = 0 if ongoing is None else ongoing.incarnation
        if isinstance(appended, Appended):
            return AppendedBatch(appended, len(run.positions), found, partition, incarnation)
        return _when_appended(appended, len(run.positions), found, partition, incarnation)

    @operation("messages.publish_frames", Resource.TOPIC, Served.WHILE_ACCEPTING)
    def publish_frames(self, caller: Caller, topic: str, partition: int, run: FrameRun) -> Coroutine[Any, Any, int]:
        """Store a batch that a client has encoded, whole or not at all; return its first offset when it is durable."""
        return self._host.publisher.publish_frames(self._host.topics.find(topic), partition, run)

    @operation("messages.validate_frames", Resource.TOPIC)
    def validate_frames(
        self, caller: Caller, topic: str, run: FrameRun, *, in_transaction: bool = False
    ) -> Coroutine[Any, Any, Refused]:
        """What of a batch violates its topic's schema; raises unless the topic makes that dead letters."""
        return self._host.publisher.refused_frames(self._host.topics.find(topic), run, in_transaction=in_transaction)

    @operation("messages.append_validated", Resource.TOPIC, Served.WHILE_ACCEPTING)
    def append_validated(
        self,
        caller: Caller,
        topic: str,
        partition: int,
        run: FrameRun,
        refused: Refused = ALL_FIT,
        transaction: OpenTransaction | None = None,
    ) -> Appended:
        """Write a batch without waiting; ``refused`` is what ``validate_frames`` has found in it just before."""
        return self._host.publisher.append_frames(self._host.topics.find(topic), partition, run, refused, transaction)
