"""Buffer of received batches that have not been handed out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Any, Protocol

from goqueue.client.connection.backoff import Backoff
from goqueue.client.consumer.fair_order import Lineup
from goqueue.client.consumer.stream_source import Progress, TopicPartition
from goqueue.client.messages.schema_ids import learn_schemas
from goqueue.client.messages.serializers import Deserializer, SchemaReader
from goqueue.model.errors import GoQueueError

_FIRST_PAUSE_MS = 50
_LONGEST_PAUSE_MS = 1_000


class Parcel(Protocol):
    """Messages of one partition that arrived together."""

    place: TopicPartition
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


class Demand:
    """Callbacks about callers that wait for messages. This one ignores them."""

    def begins(self, messages: int) -> None:
        """The buffer is empty, and a caller waits for this many messages."""

    def met(self, messages: int) -> None:
        """Messages have arrived for a waiting caller."""

    def given_up(self, messages: int) -> None:
        """A waiting caller timed out or was cancelled."""


NO_DEMAND = Demand()


class Intake:
    """Opens received batches one after the other. Several tasks may take from it.

    ``records`` and ``last`` serve a fast path: a caller that gets a record from ``records`` only has to store it in
    ``last``.
    """

    def __init__(
        self,
        progress: Progress,
        deserializer: Deserializer | None,
        taken_up: Callable[[Parcel], None],
        demand: Demand = NO_DEMAND,
    ) -> None:
        """``demand`` is notified of waiting callers."""
        self._demand = demand
        self._progress = progress
        self._deserializer = deserializer
        self._unlearned: list[Parcel] | None = [] if isinstance(deserializer, SchemaReader) else None
        """Batches whose schemas may not be loaded yet; ``None`` if no schemas are needed."""
        self._learning = asyncio.Lock()
        self._taken_up = taken_up
        self._parcels: Lineup[Parcel] = Lineup()
        self._withheld: dict[TopicPartition, list[Parcel]] = {}
        self._current: Parcel | None = None
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

    def put(self, parcel: Parcel) -> None:
        if self._unlearned is not None:
            self._unlearned.append(parcel)
        held = self._withheld.get(parcel.place)
        if held is not None:
            held.append(parcel)
            return
        self._line_up(parcel)
        self._arrived.set()

    def _line_up(self, parcel: Parcel) -> None:
        current = self._current
        if self._parcels.put(parcel, current) and current is not None and not self._ended:
            self._parcels.put_back(current)
            self._current, self.records = None, iter(())

    def withhold(self, places: Collection[TopicPartition]) -> None:
        """Hold back messages of these partitions until ``release``."""
        for place in places:
            self._withheld.setdefault(place, [])

    def release(self, places: Collection[TopicPartition]) -> None:
        for place in places:
            for parcel in self._withheld.pop(place, ()):
                self._line_up(parcel)
        self._arrived.set()

    def hurry(self, places: Collection[TopicPartition]) -> None:
        """Hand out these partitions first."""
        first = [each for each in self._parcels if each.place in places]
        if first:
            self._parcels.set([*first, *(each for each in self._parcels if each.place not in places)])

    def drop(self, places: Collection[TopicPartition] | None = None) -> None:
        """Discard buffered messages of these partitions, or all."""
        kept: list[Parcel] = []
        for each in self._parcels:
            if places is None or each.place in places:
                self._taken_up(each)
            else:
                kept.append(each)
        self._parcels.set(kept)
        for place in list(self._withheld):
            if places is None or place in places:
                for each in self._withheld.pop(place):
                    self._taken_up(each)
        current = self._current
        if current is not None and (places is None or current.place in places):
            self.records = iter(())
            self._current = None
            self.last = None
            self._taken_up(current)
        self._moved.set()

    def forget_answers(self) -> None:
        """After a new stream: batches of the previous one give no credit when they are consumed."""
        for each in (*self._parcels, *(each for some in self._withheld.values() for each in some)):
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
        for parcel in (*self._parcels, *(each for some in self._withheld.values() for each in some)):
            rest += self._rest_of(parcel)
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

    async def take(self, most: int) -> list[Any]:
        """At least one record, or none at the end; up to ``most`` if they are available without waiting."""
        found: list[Any] = []
        if self.last is not None and self._current is not None:
            self._progress.hand_out(self._current.place, self.last.offset + 1)
        self._finish()
        in_hand = self._progress.in_hand
        if self._deferred is not None:
            error, self._deferred = self._deferred, None
            raise error
        while len(found) < most:
            some: list[Any] = []
            try:
                some.extend(islice(self.records, most - len(found)))
            except Exception as problem:
                if not found and not some:
                    raise
                # Hand out the records before the error first.
                self._deferred = problem
            if some and self._current is not None:
                found += some
                in_hand.setdefault(self._current.place, some[0].offset)
                self._progress.hand_out(self._current.place, some[-1].offset + 1)
            if self._deferred is not None:
                break
            if some:
                continue
            self._close_current()
            if (found and not self._parcels) or not await self._advance(most - len(found)):
                break
        return found

    def _close_current(self) -> None:
        """Close the open batch: it is used up, its turn is over, or the buffer has ended and its rest will not be
        handed out."""
        current = self._current
        if current is None:
            return
        self._current = None
        if not self._ended and current.has_more:
            self._parcels.put_back(current)
            return
        if not self._ended:
            self._progress.hand_out(current.place, current.next_offset)
        elif self.last is not None:
            self._progress.hand_out(current.place, self.last.offset + 1)
        self._taken_up(current)

    def _finish(self) -> None:
        """The user asks for more, so the records in hand are finished."""
        self.last = None
        self._progress.in_hand.clear()
        self._moved.set()

    async def _advance(self, wanted: int) -> bool:
        """Open the next batch, waiting for one; return whether there is one. ``wanted``: number of messages waited
        for."""
        while not self._ended:
            if self._failure is not None:
                raise self._failure
            if self._unlearned:
                await self._learn_schemas(self._unlearned)
                continue
            if self._open_next():
                return True
            self._arrived.clear()
            self._demand.begins(wanted)
            try:
                await self._arrived.wait()
            except BaseException:
                self._demand.given_up(wanted)
                raise
            self._demand.met(wanted)
        return False

    async def _learn_schemas(self, unlearned: list[Parcel]) -> None:
        """Load the schemas of unopened batches, so that their values can be decoded without waiting."""
        async with self._learning:
            # Callers that waited for the lock find nothing left to load.
            seen = len(unlearned)
            ids = {each for parcel in unlearned for each in parcel.schema_ids()}
            try:
                await learn_schemas(
                    self._deserializer, ids, Backoff(_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS), goes_on=self._goes_on
                )
            except GoQueueError as error:
                if not error.retriable:
                    raise
            else:
                # More may have arrived meanwhile.
                del unlearned[:seen]

    def _goes_on(self) -> bool:
        return not self._ended and self._failure is None

    def _open_next(self) -> bool:
        """Whether a batch is open; another task may have opened one meanwhile."""
        if self._current is None and self._parcels:
            parcel, most = self._parcels.take()
            rest = self._rest_of(parcel)
            self.records = rest if most is None else islice(rest, most)
            self._current = parcel
        return self._current is not None

    def _rest_of(self, parcel: Parcel) -> Iterator[Any]:
        if parcel.rest is None:
            parcel.rest = parcel.open(self._deserializer)
        return parcel.rest

    # Queries

    @property
    def waiting(self) -> int:
        """Queues only: number of messages buffered and not handed out."""
        return sum(each.waiting for each in self._in_order())

    def _in_order(self) -> list[Any]:
        return [*([] if self._current is None else [self._current]), *self._parcels]

    def take_beyond(self, keep: int) -> list[Any]:
        """Queues only: remove and return the buffered messages after the first ``keep``."""
        beyond: list[Any] = []
        for parcel in self._in_order():
            gone = parcel.cut(max(0, keep))
            if gone and self._current is not None and parcel is self._current:
                self.records = self._rest_of(parcel)
            beyond += gone
            keep -= parcel.waiting
        self._parcels.set([each for each in self._parcels if each.has_more])
        return beyond

    def positions(self, *, finished: bool) -> dict[TopicPartition, int]:
        return self._progress.positions(self.last, finished=finished)

    def is_drained(self, place: TopicPartition) -> bool:
        """Whether all buffered records of a partition were handed out and finished."""
        current = self._current
        return (
            (current is None or current.place != place)
            and place not in self._progress.in_hand
            and all(each.place != place for each in self._parcels)
            and not self._withheld.get(place)
        )

    async def moved(self) -> None:
        """Wait until the user asks for more."""
        self._moved.clear()
        await self._moved.wait()
