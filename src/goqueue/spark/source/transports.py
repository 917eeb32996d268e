"""Transports for reading: the protocol, and the one over a broker's API (``file_transport`` reads files instead)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql.datasource import InputPartition

from goqueue.client.connection.instants import from_nanoseconds
from goqueue.client.connection.topics import TopicInfo
from goqueue.model.errors import OffsetOutOfRange
from goqueue.spark.source.clients import client_for
from goqueue.spark.source.positions import Bounds, Range, TopicPartition
from goqueue.wire.batch import FrameRun


class Split(InputPartition):
    """The input of one task. It is pickled, so it contains everything that the task needs."""

    range: Range

    def read(self) -> Iterator[FrameRun]:
        """Yield the visible frames of the range, in offset order."""
        raise NotImplementedError


class Transport(Protocol):
    """Metadata that planning needs, and the creation of splits."""

    def topics(self) -> list[str]: ...

    def bounds(self, topics: Iterable[str]) -> dict[TopicPartition, Bounds]: ...

    def offset_at(self, tp: TopicPartition, instant_ns: int) -> int: ...

    def split(self, part: Range) -> Split: ...


class BrokerTransport:
    """Reads through a broker."""

    def __init__(self, brokers: tuple[str, ...], *, uncommitted: bool, fail_on_data_loss: bool) -> None:
        self._brokers = brokers
        self._uncommitted = uncommitted
        self._fail_on_data_loss = fail_on_data_loss

    def topics(self) -> list[str]:
        return client_for(self._brokers).list_topics()

    def describe(self, topic: str) -> TopicInfo:
        return client_for(self._brokers).describe_topic(topic)

    def bounds(self, topics: Iterable[str]) -> dict[TopicPartition, Bounds]:
        found: dict[TopicPartition, Bounds] = {}
        for topic in topics:
            info = self.describe(topic)
            for number, each in enumerate(info.partitions):
                end = each.latest_offset if self._uncommitted else each.stable_end
                found[TopicPartition(topic, number)] = Bounds(each.earliest_offset, end, each.size_bytes, info.id)
        return found

    def offset_at(self, tp: TopicPartition, instant_ns: int) -> int:
        return client_for(self._brokers).find_offset(tp.topic, tp.partition, from_nanoseconds(instant_ns))

    def split(self, part: Range) -> Split:
        return BrokerSplit(self._brokers, part, self._uncommitted, self._fail_on_data_loss)


@dataclass(frozen=True)
class BrokerSplit(Split):
    """An offset range that a task reads from a broker."""

    brokers: tuple[str, ...]
    range: Range
    uncommitted: bool
    fail_on_data_loss: bool

    def read(self) -> Iterator[FrameRun]:
        tp, low, high = self.range
        client = client_for(self.brokers)
        isolation = "read_uncommitted" if self.uncommitted else "read_committed"
        try:
            for batch in client.read_batches(tp.topic, tp.partition, low, isolation=isolation):  # type: ignore[arg-type]
                run = batch.run
                if run.offset_at(0) > low:
                    # A gap is left by compaction, or by retention since planning; only the latter is an error.
                    self._check_gone(low)
                low = batch.next_offset
                if low < high:
                    yield run
                    continue
                head = _below(run, high)
                if head is not None:
                    yield head
                return
        except OffsetOutOfRange as error:
            self._check_gone(low, error)
            low = max(low, self._earliest())
            if low < high:
                yield from BrokerSplit(self.brokers, Range(tp, low, high), self.uncommitted, False).read()
            return
        self._check_end(high)

    def _earliest(self) -> int:
        tp = self.range.tp
        return client_for(self.brokers).describe_topic(tp.topic).partitions[tp.partition].earliest_offset

    def _check_end(self, high: int) -> None:
        """Raise if the partition now ends before ``high``: messages that planning saw are lost.

        If it does not, the rest of the range holds only frames that readers never see.
        """
        tp = self.range.tp
        found = client_for(self.brokers).describe_topic(tp.topic).partitions[tp.partition]
        end = found.latest_offset if self.uncommitted else found.stable_end
        if self.fail_on_data_loss and end < high:
            raise OffsetOutOfRange(
                f"{tp} was to be read up to offset {high} and ends at {end}: messages were lost, or the topic was "
                "made anew. Set failOnDataLoss=false to go on without them"
            )

    def _check_gone(self, low: int, error: OffsetOutOfRange | None = None) -> None:
        earliest = self._earliest()
        if self.fail_on_data_loss and earliest > low:
            raise OffsetOutOfRange(
                f"messages of {self.range.tp} were removed by retention while they were read: offset {low} is gone, "
                f"the earliest is {earliest}. Set failOnDataLoss=false to go on without them"
            ) from error


def _below(run: FrameRun, high: int) -> FrameRun | None:
    """The frames of a run below an offset; ``None`` if there are none."""
    count = int((run.columns()["offset"] < high).sum())
    return run.part(0, count) if count else None
