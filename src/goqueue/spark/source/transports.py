"""Transports to the data: a broker, from anywhere, or the files of a data folder (``file_transport``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql.datasource import InputPartition

from goqueue.client.connection.instants import from_nanoseconds
from goqueue.client.connection.topics import TopicInfo
from goqueue.model.errors import OffsetOutOfRange
from goqueue.spark.source.clients import client_for
from goqueue.spark.source.positions import Bounds, Place, Range
from goqueue.wire.batch import FrameRun


class Split(InputPartition):
    """What one task reads. It is pickled: everything that the task must know is in it."""

    range: Range

    def read(self) -> Iterator[FrameRun]:
        """The visible frames of the range, in order."""
        raise NotImplementedError


class Way(Protocol):
    """What planning needs to know."""

    def topics(self) -> list[str]: ...

    def bounds(self, topics: Iterable[str]) -> dict[Place, Bounds]: ...

    def offset_at(self, place: Place, instant_ns: int) -> int: ...

    def split(self, part: Range) -> Split: ...


class BrokerWay:
    def __init__(self, brokers: tuple[str, ...], *, uncommitted: bool, fail_on_data_loss: bool) -> None:
        self._brokers = brokers
        self._uncommitted = uncommitted
        self._fail_on_data_loss = fail_on_data_loss

    def topics(self) -> list[str]:
        return client_for(self._brokers).list_topics()

    def describe(self, topic: str) -> TopicInfo:
        return client_for(self._brokers).describe_topic(topic)

    def bounds(self, topics: Iterable[str]) -> dict[Place, Bounds]:
        found: dict[Place, Bounds] = {}
        for topic in topics:
            told = self.describe(topic)
            for number, each in enumerate(told.partitions):
                end = each.latest_offset if self._uncommitted else each.stable_end
                found[Place(topic, number)] = Bounds(each.earliest_offset, end, each.size_bytes, told.id)
        return found

    def offset_at(self, place: Place, instant_ns: int) -> int:
        return client_for(self._brokers).find_offset(place.topic, place.partition, from_nanoseconds(instant_ns))

    def split(self, part: Range) -> Split:
        return BrokerSplit(self._brokers, part, self._uncommitted, self._fail_on_data_loss)


@dataclass(frozen=True)
class BrokerSplit(Split):
    brokers: tuple[str, ...]
    range: Range
    uncommitted: bool
    fail_on_data_loss: bool

    def read(self) -> Iterator[FrameRun]:
        place, low, high = self.range
        client = client_for(self.brokers)
        isolation = "read_uncommitted" if self.uncommitted else "read_committed"
        try:
            for batch in client.read_batches(place.topic, place.partition, low, isolation=isolation):  # type: ignore[arg-type]
                run = batch.run
                if run.offset_at(0) > low:
                    # A gap may be what compaction left, or what retention took since this was planned.
                    self._check_gone(low)
                low = batch.next_offset
                if low < high:
                    yield run
                    continue
                within = _below(run, high)
                if within is not None:
                    yield within
                return
        except OffsetOutOfRange as error:
            self._check_gone(low, error)
            low = max(low, self._earliest())
            if low < high:
                yield from BrokerSplit(self.brokers, Range(place, low, high), self.uncommitted, False).read()
            return
        self._check_end(high)

    def _earliest(self) -> int:
        place = self.range.place
        return client_for(self.brokers).describe_topic(place.topic).partitions[place.partition].earliest_offset

    def _check_end(self, high: int) -> None:
        """Nothing more came. That is so if what is left is nothing that a reader sees; else it was there once."""
        place = self.range.place
        found = client_for(self.brokers).describe_topic(place.topic).partitions[place.partition]
        end = found.latest_offset if self.uncommitted else found.stable_end
        if self.fail_on_data_loss and end < high:
            raise OffsetOutOfRange(
                f"{place} was to be read up to offset {high} and ends at {end}: messages were lost, or the topic was "
                "made anew. Set failOnDataLoss=false to go on without them"
            )

    def _check_gone(self, low: int, error: OffsetOutOfRange | None = None) -> None:
        earliest = self._earliest()
        if self.fail_on_data_loss and earliest > low:
            raise OffsetOutOfRange(
                f"messages of {self.range.place} were removed by retention while they were read: offset {low} is gone, "
                f"the earliest is {earliest}. Set failOnDataLoss=false to go on without them"
            ) from error


def _below(run: FrameRun, high: int) -> FrameRun | None:
    """The frames of a run that lie below an offset."""
    count = int((run.columns()["offset"] < high).sum())
    return run.part(0, count) if count else None
