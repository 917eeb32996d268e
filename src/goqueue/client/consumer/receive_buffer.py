"""Buffer of received batches that have not been handed out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Any, Protocol

from goqueue.client.connection.retries import Backoff
from goqueue.client.consumer.fair_order import FairOrder
from goqueue.client.consumer.stream_source import Progress, TopicPartition
from goqueue.client.messages.schema_ids import load_schemas
from goqueue.client.messages.serializers import Deserializer, SchemaReader
from goqueue.model.errors import GoQueueError

_FIRST_PAUSE_MS = 50
_LONGEST_PAUSE_MS = 1_000


class ReceivedBatch(Protocol):
    """Messages of one partition that arrived together."""

    topic_partition: TopicPartition
    next_offset: int
    ends_answer: bool
    lane: int
    left: int
    rest: Iterator[Any] | None
    """The messages not yet handed out, once it is open."""

    @property
    def has_more(self) -> bool:
        """Whether it may hold messages beyond those handed out."""

    def schema_ids(self) -> Collection[int]:
        """Schema ids of the values."""

    def open(self, deserializer: Deserializer | None) -> Iterator[Any]: ...


class DemandListener:
    """Callbacks about callers that wait for messages. This one ignores them."""

    def wait_started(self, messages: int) -> None:
        """The buffer is empty, and a caller waits for this many messages."""

    def wait_satisfied(self, messages: int) -> None:
        """Messages have arrived for a waiting caller."""

    def wait_abandoned(self, messages: int) -> None:
        """A waiting caller timed out or was cancelled."""


NO_LISTENER = DemandListener()


class ReceiveBuffer:
    """Opens received batches one after the other. Several tasks may take from it.

    ``records`` and ``last`` serve a fast path: a caller that gets a record from ``records`` only has to store it in
    ``last``.
    """

    def __init__(
        self,
        progress: Progress,
        deserializer: Deserializer | None,
        on_consumed: Callable[[ReceivedBatch], None],
        listener: DemandListener = NO_LISTENER,
    ) -> None:
        """``listener`` is notified of waiting callers."""
        self._listener = listener
        self._progress = progress
        self._deserializer = deserializer
        self._unloaded: list[ReceivedBatch] | None = [] if isinstance(deserializer, SchemaReader) else None
        """Batches whose schemas may not be loaded yet; ``None`` if no schemas are needed."""
        self._loading = asyncio.Lock()
        self._on_consumed = on_consumed
        self._batches: FairOrder[ReceivedBatch] = FairOrder()
        self._held_back: dict[TopicPartition, list[ReceivedBatch]] = {}
        self._current: ReceivedBatch | None = None
        self._arrived = asyncio.Event()
        self._moved = asyncio.Event()
        self._failure: BaseException | None = None
        self._deferred: Exception | None = None
        self._ended = False
        self._rest: Iterator[Any] = iter(())
        """Rest of the batch that was open at the end."""
        self.records: Iterator[Any] = iter(())
        self.last: Any = None

    # Adding

    def put(self, batch: ReceivedBatch) -> None:
        if self._unloaded is not None:
            self._unloaded.append(batch)
        held = self._held_back.get(batch.topic_partition)
        if held is not None:
            held.append(batch)
            return
        self._add(batch)
        self._arrived.set()

    def _add(self, batch: ReceivedBatch) -> None:
        current = self._current
        if self._batches.put(batch, current) and current is not None and not self._ended:
            self._batches.put_back(current)
            self._current, self.records = None, iter(())

    def hold_back(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Hold back messages of these partitions until ``release``."""
        for topic_partition in topic_partitions:
            self._held_back.setdefault(topic_partition, [])

    def release(self, topic_partitions: Collection[TopicPartition]) -> None:
        for topic_partition in topic_partitions:
            for batch in self._held_back.pop(topic_partition, ()):
                self._add(batch)
        self._arrived.set()

    def prioritize(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Hand out these partitions first."""
        first = [each for each in self._batches if each.topic_partition in topic_partitions]
        if first:
            self._batches.set(
                [*first, *(each for each in self._batches if each.topic_partition not in topic_partitions)]
            )

    def drop(self, topic_partitions: Collection[TopicPartition] | None = None) -> None:
        """Discard buffered messages of these partitions, or all."""
        kept: list[ReceivedBatch] = []
        for each in self._batches:
            if topic_partitions is None or each.topic_partition in topic_partitions:
                self._on_consumed(each)
            else:
                kept.append(each)
        self._batches.set(kept)
        for topic_partition in list(self._held_back):
            if topic_partitions is None or topic_partition in topic_partitions:
                for each in self._held_back.pop(topic_partition):
                    self._on_consumed(each)
        current = self._current
        if current is not None and (topic_partitions is None or current.topic_partition in topic_partitions):
            self.records = iter(())
            self._current = None
            self.last = None
            self._on_consumed(current)
        self._moved.set()

    def forget_answers(self) -> None:
        """After a new stream: batches of the previous one give no credit when they are consumed."""
        for each in (*self._batches, *(each for some in self._held_back.values() for each in some)):
            each.ends_answer = False
        if self._current is not None:
            self._current.ends_answer = False

    def fail(self, error: BaseException) -> None:
        """Raise this error to all callers from now on."""
        self._failure = self._failure or error
        self._arrived.set()

    def end(self) -> None:
        """Return no messages from now on."""
        if not self._ended:
            self._ended = True
            if self._current is not None and self._current.rest is not None:
                self._rest = self._current.rest
            self.records = iter(())
        self._arrived.set()

    def take_back(self) -> list[Any]:
        """After the end: remove and return the messages that were not handed out."""
        rest = list(self._rest)
        for batch in (*self._batches, *(each for some in self._held_back.values() for each in some)):
            rest += self._rest_of_batch(batch)
        self.drop()
        return rest

    # Taking

    async def next(self) -> Any:
        """The next record; ``None`` at the end."""
        while True:
            for record in self.records:
                self.last = record
                return record
            self._close_current()
            self._finish()
            # Yield to other tasks even if records are always buffered.
            await asyncio.sleep(0)
            if not await self._advance(1):
                return None

    async def take(self, max_records: int) -> list[Any]:
        """At least one record, or none at the end; up to ``max_records`` if they are available without waiting."""
        found: list[Any] = []
        if self.last is not None and self._current is not None:
            self._progress.hand_out(self._current.topic_partition, self.last.offset + 1)
        self._finish()
        in_hand = self._progress.in_hand
        if self._deferred is not None:
            error, self._deferred = self._deferred, None
            raise error
        while len(found) < max_records:
            some: list[Any] = []
            try:
                some.extend(islice(self.records, max_records - len(found)))
            except Exception as problem:
                if not found and not some:
                    raise
                # Hand out the records before the error first.
                self._deferred = problem
            if some and self._current is not None:
                found += some
                in_hand.setdefault(self._current.topic_partition, some[0].offset)
                self._progress.hand_out(self._current.topic_partition, some[-1].offset + 1)
            if self._deferred is not None:
                break
            if some:
                continue
            self._close_current()
            if (found and not self._batches) or not await self._advance(max_records - len(found)):
                break
        return found

    def _close_current(self) -> None:
        """Close the open batch: it is used up, its turn is over, or the buffer has ended and its rest stays here."""
        current = self._current
        if current is None:
            return
        self._current = None
        if not self._ended and current.has_more:
            self._batches.put_back(current)
            return
        if not self._ended:
            self._progress.hand_out(current.topic_partition, current.next_offset)
        elif self.last is not None:
            self._progress.hand_out(current.topic_partition, self.last.offset + 1)
        self._on_consumed(current)

    def _finish(self) -> None:
        """The user asks for more, so the records handed out are finished."""
        self.last = None
        self._progress.in_hand.clear()
        self._moved.set()

    async def _advance(self, wanted: int) -> bool:
        """Open the next batch, if need be waiting for ``wanted`` messages; return whether there is one."""
        while not self._ended:
            if self._failure is not None:
                raise self._failure
            if self._unloaded:
                await self._load_schemas(self._unloaded)
                continue
            if self._open_next():
                return True
            self._arrived.clear()
            self._listener.wait_started(wanted)
            try:
                await self._arrived.wait()
            except BaseException:
                self._listener.wait_abandoned(wanted)
                raise
            self._listener.wait_satisfied(wanted)
        return False

    async def _load_schemas(self, unloaded: list[ReceivedBatch]) -> None:
        """Load the schemas of unopened batches, so that their values can be decoded without waiting."""
        async with self._loading:
            # Callers that waited for the lock find nothing left to load.
            seen = len(unloaded)
            ids = {each for batch in unloaded for each in batch.schema_ids()}
            try:
                await load_schemas(
                    self._deserializer, ids, Backoff(_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS), goes_on=self._is_active
                )
            except GoQueueError as error:
                if not error.retriable:
                    raise
            else:
                # More may have arrived meanwhile.
                del unloaded[:seen]

    def _is_active(self) -> bool:
        return not self._ended and self._failure is None

    def _open_next(self) -> bool:
        """Whether a batch is open; another task may have opened one meanwhile."""
        if self._current is None and self._batches:
            batch, max_records = self._batches.take()
            rest = self._rest_of_batch(batch)
            self.records = rest if max_records is None else islice(rest, max_records)
            self._current = batch
        return self._current is not None

    def _rest_of_batch(self, batch: ReceivedBatch) -> Iterator[Any]:
        if batch.rest is None:
            batch.rest = batch.open(self._deserializer)
        return batch.rest

    # Queries

    @property
    def waiting(self) -> int:
        """Queues only: number of messages buffered and not handed out."""
        return sum(each.waiting for each in self._in_order())

    def _in_order(self) -> list[Any]:
        return [*([] if self._current is None else [self._current]), *self._batches]

    def take_beyond(self, keep: int) -> list[Any]:
        """Queues only: remove and return the buffered messages after the first ``keep``."""
        beyond: list[Any] = []
        for batch in self._in_order():
            gone = batch.cut(max(0, keep))
            if gone and self._current is not None and batch is self._current:
                self.records = self._rest_of_batch(batch)
            beyond += gone
            keep -= batch.waiting
        self._batches.set([each for each in self._batches if each.has_more])
        return beyond

    def positions(self, *, finished: bool) -> dict[TopicPartition, int]:
        return self._progress.positions(self.last, finished=finished)

    def is_drained(self, topic_partition: TopicPartition) -> bool:
        """Whether all buffered records of a partition were handed out and finished."""
        current = self._current
        return (
            (current is None or current.topic_partition != topic_partition)
            and topic_partition not in self._progress.in_hand
            and all(each.topic_partition != topic_partition for each in self._batches)
            and not self._held_back.get(topic_partition)
        )

    async def moved(self) -> None:
        """Wait until the user asks for more."""
        self._moved.clear()
        await self._moved.wait()
