"""Operations that read a topic by offset or by time."""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.broker.operations.caller import Caller
from goqueue.broker.operations.gate import Resource, ResourceOperations, operation
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.read import (
    Bounds,
    FramesRead,
    MessagesRead,
    find_damaged_frames,
    read_frames,
    read_messages,
    start_of,
    wait_for_any,
)
from goqueue.broker.runtime.time_slices import TimeSlice


@dataclass(frozen=True, slots=True)
class PartitionStart:
    """Where a read of one partition begins."""

    partition: int
    offset: int
    stable_end: int


@dataclass(frozen=True, slots=True)
class StartAt:
    """A position in a partition: its earliest message, or the one thing that is set here."""

    offset: int | None = None
    from_time_ns: int | None = None
    latest: bool = False

    def offset_in(self, partition: Partition) -> int:
        """As an offset. 0 means the earliest message, also when retention has moved it."""
        return partition.stable_end if self.latest else start_of(partition, self.offset, self.from_time_ns)


class ReadingOperations(ResourceOperations):
    """Reads by offset: they remove nothing and see only durable messages."""

    @operation("messages.read", Resource.TOPIC)
    async def read(
        self,
        caller: Caller,
        topic: str,
        partition: int,
        bounds: Bounds,
        *,
        offset: int | None = None,
        from_time_ns: int | None = None,
    ) -> MessagesRead:
        """Decoded messages in offset order."""
        source = self._host.topics.find(topic).partition(partition)
        found = await read_messages(source, start_of(source, offset, from_time_ns), bounds)
        source.note_read(len(found.messages), found.size_bytes)
        return found

    @operation("messages.fetch", Resource.TOPIC)
    async def read_frames(
        self,
        caller: Caller,
        topic: str,
        partition: int,
        bounds: Bounds,
        *,
        offset: int | None = None,
        from_time_ns: int | None = None,
        verify: bool = False,
    ) -> FramesRead:
        """Frames as they lie in the log, in one batch. With ``verify`` their checksums are looked at, and what is
        damaged is reported by the broker's health; the frames are the same."""
        source = self._host.topics.find(topic).partition(partition)
        found = await read_frames(source, start_of(source, offset, from_time_ns), bounds)
        if found.run is not None:
            source.note_read(len(found.run), len(found.run.frames))
            if verify:
                find_damaged_frames(source, found.run, found.run.columns())
        return found

    @operation("messages.wait", Resource.TOPIC)
    async def wait(
        self, caller: Caller, topic: str, partition: int, offset: int, wait_ms: int, *, uncommitted: bool = False
    ) -> None:
        """Return when there may be something to read from ``offset`` on, or after ``wait_ms``."""
        source = self._host.topics.find(topic).partition(partition)
        await wait_for_any([(source, offset)], wait_ms, uncommitted=uncommitted)

    @operation("messages.find_offset", Resource.TOPIC)
    def find_offset(self, caller: Caller, topic: str, partition: int, start: StartAt) -> int:
        """The offset at which a read from ``start`` begins."""
        return start.offset_in(self._host.topics.find(topic).partition(partition))

    @operation("messages.find_starts", Resource.TOPIC)
    async def find_starts(self, caller: Caller, topic: str, from_time_ns: int | None = None) -> list[PartitionStart]:
        """Where a read of each partition begins: at an instant, or at the earliest message."""
        starts = []
        stretch = TimeSlice()
        for number, each in enumerate(self._host.topics.find(topic).partitions):
            starts.append(PartitionStart(number, start_of(each, None, from_time_ns), each.stable_end))
            if stretch.is_over:
                await stretch.rest()
        return starts
