"""Batches of a stream, decoded when they are read, and the user's progress in each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from goqueue.client.consumer.reader import Record, records_of
from goqueue.client.messages.schema_ids import schema_ids
from goqueue.client.messages.serializers import Deserializer
from goqueue.model.errors import CorruptData
from goqueue.wire.batch import damaged_places, parse_batch
from goqueue.wire.proto import goqueue_pb2 as pb


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class StreamBatch:
    """Undecoded records of one partition."""

    __slots__ = ("_batch", "ends_answer", "lane", "left", "next_offset", "rest", "skip_below", "topic_partition")

    def __init__(self, delivery: pb.Delivery, *, ends_answer: bool) -> None:
        self.topic_partition = TopicPartition(delivery.topic, delivery.partition)
        self.next_offset = delivery.next_offset
        self.ends_answer = ends_answer
        self.skip_below = 0
        # A stream is read in offset order, whatever the lanes.
        self.lane = 0
        self.left = 0
        self.rest: Iterator[Record] | None = None
        self._batch = delivery.batch

    @property
    def has_more(self) -> bool:
        """Always handed out whole."""
        return False

    def schema_ids(self) -> set[int]:
        """Schema ids of the values."""
        return schema_ids(parse_batch(self._batch))

    def open(self, deserializer: Deserializer | None) -> Iterator[Record]:
        """Decode. Raises at a message that fails its checksum, after yielding all before it.

        An error of the deserializer does not end iteration: the next call yields the next record.
        """
        run = parse_batch(self._batch)
        damaged = damaged_places(run, run.columns())
        whole = run.part(0, damaged[0]) if damaged else run
        if self.skip_below and len(whole):
            offsets = whole.columns()["offset"]
            whole = whole.part(int(np.searchsorted(offsets, self.skip_below)), len(whole))
        records = records_of(whole, *self.topic_partition, deserializer)
        if not damaged:
            return records
        return _DamagedRecords(records, self.topic_partition, whole.offset_at(-1) if len(whole) else None)


class StreamArrivals:
    """Up to where the records of each partition have arrived, so that a new stream repeats none of them."""

    def __init__(self) -> None:
        self._received_to: dict[TopicPartition, int] = {}
        self._resumed_at: dict[TopicPartition, int] = {}

    def resume(self) -> None:
        """A new stream begins. A broker that does not know how much of the last one arrived begins it at the committed
        offsets."""
        self._resumed_at = dict(self._received_to)

    def takes(self, batch: StreamBatch) -> bool:
        """Whether the batch has records that have not arrived before; those that have are skipped."""
        resumed_at = self._resumed_at.get(batch.topic_partition)
        if resumed_at is not None:
            if batch.next_offset <= resumed_at:
                return False
            del self._resumed_at[batch.topic_partition]
            batch.skip_below = resumed_at
        self._received_to[batch.topic_partition] = batch.next_offset
        return True

    def forget(self, topic_partitions: Iterable[TopicPartition]) -> None:
        for topic_partition in topic_partitions:
            self._received_to.pop(topic_partition, None)
            self._resumed_at.pop(topic_partition, None)

    def forget_all(self) -> list[TopicPartition]:
        """Forget all partitions, and return them."""
        known = list(self._received_to)
        self.forget(known)
        return known

    def keep_only(self, owns: Callable[[TopicPartition], bool]) -> None:
        self.forget([each for each in self._received_to if not owns(each)])


class _DamagedRecords:
    """The records before a damaged message; then the error, on every further call."""

    def __init__(self, records: Iterator[Record], topic_partition: TopicPartition, last: int | None) -> None:
        self._records = records
        self._place = topic_partition
        self._last = last

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        for record in self._records:
            return record
        where = "the next message" if self._last is None else f"the message after offset {self._last}"
        raise CorruptData(
            f"{where} of {self._place.topic}/{self._place.partition} fails its checksum; to step over it, reset the "
            f"group's offset to behind it"
        )


class Progress:
    """The next offset to hand out, to finish and to commit, for each partition."""

    def __init__(self) -> None:
        self._handed_out: dict[TopicPartition, int] = {}
        self.in_hand: dict[TopicPartition, int] = {}
        """First offset of the records handed out last; everything below it is finished."""
        self._committed: dict[TopicPartition, int] = {}

    def hand_out(self, topic_partition: TopicPartition, next_offset: int) -> None:
        self._handed_out[topic_partition] = next_offset

    def positions(self, last: Record | None, *, finished: bool) -> dict[TopicPartition, int]:
        """Positions to commit. ``last``: the record handed out last, if records are taken one by one."""
        found = dict(self._handed_out)
        if last is not None:
            found[TopicPartition(last.topic, last.partition)] = last.offset + (not finished)
        elif finished:
            found.update(self.in_hand)
        return found

    def uncommitted(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Positions that are not committed yet."""
        return {each: offset for each, offset in positions.items() if self._committed.get(each) != offset}

    def committed(self, positions: Mapping[TopicPartition, int]) -> None:
        self._committed.update(positions)

    def forget(self, topic_partitions: Any) -> None:
        for topic_partition in topic_partitions:
            for known in (self._handed_out, self.in_hand, self._committed):
                known.pop(topic_partition, None)
