"""The step of a publish that does not wait: known or new, whose turn it is, append, note.

Between looking whether a batch or a dedup id is known and appending there is no await, so two requests never both find
that it is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import NamedTuple

import numpy as np

from goqueue.broker.partitions.dedup_ids import FirstOne
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.publishing.schema_rejects import Refused, SchemaRejects
from goqueue.broker.transactions.open_transactions import OpenTransaction
from goqueue.model.clock import NANOS_PER_MS, Clock
from goqueue.model.errors import DuplicateSequence, InvalidMessage, Overloaded
from goqueue.model.message import HIDDEN
from goqueue.wire.batch import CheckedBatch, FrameRun, lanes_in, select_frames
from goqueue.wire.internal_headers import DEDUP_ID, ProducerStamp

_NO_DUPLICATES: Mapping[int, FirstOne] = {}


class Appended(NamedTuple):
    """Where a batch is. Those of its messages that are no duplicates lie one behind the other from ``first`` on."""

    first: int
    acknowledged: asyncio.Future[None]
    duplicates: Mapping[int, FirstOne] = _NO_DUPLICATES
    """By their place in the batch: messages that were not stored again."""
    may_be_delayed: bool = True
    """Whether any message of the batch may wait for its due time."""

    def places(self, count: int, partition: int) -> Iterable[tuple[int, int]]:
        """The partition and offset of each message of a batch of ``count``, which went to this partition."""
        if not self.duplicates:
            return zip(repeat(partition), range(self.first, self.first + count), strict=False)
        return self._places_among_duplicates(count, partition)

    def _places_among_duplicates(self, count: int, partition: int) -> Iterator[tuple[int, int]]:
        offset = self.first
        for place in range(count):
            known = self.duplicates.get(place)
            if known is not None:
                yield known
            else:
                yield partition, offset
                offset += 1


@dataclass(eq=False, repr=False)
class Appender:
    _refusals: SchemaRejects
    _check_producer: Callable[[int, int], None]
    """Raises for an id that nobody has, and for an epoch that is over."""
    _max_producers: int
    _clock: Clock
    known_batches: int = field(default=0, init=False)
    """Batches that were sent again, and answered with where they are."""

    def append(
        self,
        topic: Topic,
        number: int,
        batch: CheckedBatch,
        refused: Refused,
        ids: Mapping[int, bytes],
        transaction: OpenTransaction | None = None,
    ) -> Appended:
        """``ids`` are dedup ids by place."""
        stamp, may_be_delayed = batch.producer, type(batch.lanes) is not int or batch.lanes == HIDDEN
        if transaction is not None:
            transaction.check_batch(stamp)
        if ids and (stamp is not None or transaction is not None):
            raise InvalidMessage(
                f"a message has a dedup id ({DEDUP_ID!r}) and its batch a producer's sequence or a transaction; these "
                "know a duplicate by themselves: send it without the one or the other"
            )
        if stamp is not None:
            if transaction is not None:
                self._check_ended(topic, number, transaction)
            known = self._known(topic, number, stamp, transaction)
            if known is not None:
                acknowledged = self._known_again(topic, number, known, batch, refused, transaction)
                return Appended(known, acknowledged, may_be_delayed=may_be_delayed)
        duplicates = self._known_ids(topic, ids) if ids else _NO_DUPLICATES
        letters = refused.reasons if refused.target is not None else {}
        if len(duplicates) == len(batch.positions):
            return Appended(-1, self._all_known(topic, duplicates), duplicates)
        if duplicates:
            batch, refused = _without(batch, refused, duplicates)
        if len(ids) > len(duplicates):
            topic.dedup.check_room(len(ids) - len(duplicates))
        if refused.reasons and refused.target is not None:
            is_repeatable = stamp is not None or len(ids) == len(batch) + len(duplicates)
            first, acknowledged = self._refusals.append(
                topic, number, batch, refused, self._clock.now_ns(), is_repeatable=is_repeatable
            )
        else:
            partition = topic.partitions[number]
            first = partition.append(batch, in_transaction=transaction is not None)
            acknowledged = self._acknowledged(topic, number, first + len(batch.positions), transaction)
        if transaction is not None:
            transaction.touch(topic, number, first, len(batch))
        appended = Appended(first, acknowledged, duplicates, may_be_delayed)
        if ids:
            # What became a dead letter is not known by its id: sent again it is one once more, rather than lost.
            new_ids = {place: each for place, each in ids.items() if place not in letters}
            self._note_ids(topic, number, new_ids, appended, len(batch) + len(duplicates))
            if duplicates:
                appended = appended._replace(acknowledged=_both(acknowledged, self._all_known(topic, duplicates)))
        return appended

    def _check_ended(self, topic: Topic, number: int, transaction: OpenTransaction) -> None:
        """Of a producer a partition holds one transaction at a time: the next would end with the one before."""
        partition = topic.partitions[number]
        is_open = partition.producers.state.open_of(transaction.producer_id) is not None
        if is_open and partition not in transaction.touched:
            raise Overloaded(
                f"the last transaction of producer {transaction.producer_id} has ended, and that could not be written "
                f"to partition {number} of {topic.name!r} so far",
                retry_after_s=1,
            )

    def _known(
        self, topic: Topic, number: int, stamp: ProducerStamp, transaction: OpenTransaction | None
    ) -> int | None:
        """Where a producer's batch is, if it was stored before."""
        self._check_producer(stamp.producer_id, stamp.epoch)
        state = topic.partitions[number].producers.state
        known = state.find(*stamp)
        if known is None:
            if stamp.producer_id not in state.known and len(state.known) >= self._max_producers:
                state.forget(0, self._max_producers - 1)
            return None
        if transaction is None and state.is_aborted(known):
            raise DuplicateSequence(
                f"producer {stamp.producer_id} has used sequence {stamp.first_sequence} in a transaction that was "
                "aborted"
            )
        records = state.open_of(stamp.producer_id)
        if transaction is not None and (records is None or known < records.first):
            raise DuplicateSequence(
                f"producer {stamp.producer_id} has used sequence {stamp.first_sequence} in a transaction that has ended"
            )
        self.known_batches += 1
        return known

    def _acknowledged(
        self, topic: Topic, number: int, end: int, transaction: OpenTransaction | None
    ) -> asyncio.Future[None]:
        # In a transaction nothing is promised before it is committed: what was written by then is made safe first.
        return _done() if transaction is not None else topic.partitions[number].acknowledge(end)

    def _known_again(
        self,
        topic: Topic,
        number: int,
        first: int,
        batch: CheckedBatch,
        refused: Refused,
        transaction: OpenTransaction | None,
    ) -> asyncio.Future[None]:
        """When a batch counts that is stored already."""
        if refused.reasons and refused.target is not None:
            return self._refusals.again(topic, number, batch, first, refused, self._clock.now_ns())
        return self._acknowledged(topic, number, first + len(batch), transaction)

    # Dedup ids

    def _known_ids(self, topic: Topic, ids: Mapping[int, bytes]) -> Mapping[int, FirstOne]:
        since_ns = self._clock.now_ns() - topic.settings.dedup_window_ms * NANOS_PER_MS
        seen: set[bytes] = set()
        found: dict[int, FirstOne] = {}
        for place, dedup_id in ids.items():
            if dedup_id in seen:
                raise InvalidMessage(f"dedup id {dedup_id[:60]!r} stands twice in one batch")
            seen.add(dedup_id)
            first = topic.dedup.find(dedup_id, since_ns)
            if first is not None:
                found[place] = first
        return found

    def _note_ids(self, topic: Topic, number: int, ids: Mapping[int, bytes], appended: Appended, count: int) -> None:
        now_ns = self._clock.now_ns()
        topic.partitions[number].producers.stored_ids(appended.first)
        for place, (_, offset) in enumerate(appended.places(count, number)):
            dedup_id = ids.get(place)
            if dedup_id is not None and place not in appended.duplicates:
                topic.dedup.add(dedup_id, number, offset, now_ns)

    def _all_known(self, topic: Topic, duplicates: Mapping[int, FirstOne]) -> asyncio.Future[None]:
        """Done when the first ones are as durable as promised: they may have come just before."""
        ends: dict[int, int] = {}
        for partition, offset in duplicates.values():
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        waits = [topic.partitions[partition].acknowledge(end) for partition, end in ends.items()]
        return waits[0] if len(waits) == 1 else _both(*waits)


def _without(batch: CheckedBatch, refused: Refused, duplicates: Mapping[int, FirstOne]) -> tuple[CheckedBatch, Refused]:
    """What is left of a batch, and of what does not fit in it."""
    kept = [place for place in range(len(batch)) if place not in duplicates]
    run = select_frames(FrameRun(memoryview(batch.frames), batch.positions), np.array(kept, np.int64))
    frames = bytearray(run.frames)
    reasons = {at: refused.reasons[place] for at, place in enumerate(kept) if place in refused.reasons}
    made = CheckedBatch(frames, run.positions, batch.max_timestamp_ns, lanes_in(frames, run.positions))
    return made, replace(refused, reasons=reasons)


def _done() -> asyncio.Future[None]:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done


def _both(*waits: asyncio.Future[None]) -> asyncio.Future[None]:
    async def all_of_them() -> None:
        await asyncio.gather(*waits)

    return asyncio.ensure_future(all_of_them())
