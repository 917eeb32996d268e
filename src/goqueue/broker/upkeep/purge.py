"""Removing what a topic holds: the beginning of its partitions moves, as retention moves it, only at once."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from goqueue.broker.groups.group_service import GroupService
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.checkpoints import Checkpoints
from goqueue.broker.shards.start_moves import note_starts
from goqueue.broker.upkeep.producer_files import ProducerFiles
from goqueue.model.errors import DiskFull, InvalidRequest, Overloaded, StorageFailed, TopicNotFound
from goqueue.model.logging import get_logger
from goqueue.storage.log import lanes
from goqueue.storage.log.recoverable import Recoverable

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PurgedPartition:
    """Where a partition began and where it begins now. ``delayed``: how many messages wait and will still come."""

    partition: int
    earliest_before: int
    earliest: int
    removed: int
    delayed: int


class Host(Protocol):
    """What purging needs of a broker."""

    groups: GroupService
    producer_files: ProducerFiles

    def topic(self, name: str) -> Topic: ...

    def recoverables(self) -> Iterable[Recoverable]: ...


async def purge(
    host: Host, checkpoints: Checkpoints, name: str, number: int | None, before_ns: int | None
) -> list[PurgedPartition]:
    """Remove all messages of a topic, or of one partition, that readers can see now; those before an instant if given.

    When this returns nothing of it comes back, whatever happens to the machine. What is delayed and what belongs to
    transactions that are open stays. What follows from it stays known: dedup ids in their window are duplicates still.
    For groups it is as after retention: they go on behind it, and what they had in flight of it does not come again.
    """
    topic = host.topic(name)
    if topic.settings.cleanup == "compact":
        # Whoever reads it relies on finding the last value of every key.
        raise InvalidRequest(
            f"topic {topic.name!r} is compacted, so it keeps the last value of every key; send tombstones for the keys "
            "that are to go, or set its cleanup to 'delete' before it is purged"
        )
    chosen = range(len(topic.partitions)) if number is None else [number]
    partitions = {each: topic.partition(each) for each in chosen}
    for partition in partitions.values():
        _check_sound(partition)
    starts = {index: _start(partition, before_ns) for index, partition in partitions.items()}
    for index, start in starts.items():
        partition = partitions[index]
        if start > partition.log.start_offset and not await host.producer_files.cover(topic, index, start):
            _check_sound(partition)
            raise StorageFailed(
                f"what producers have sent to partition {partition.place} cannot be noted, so nothing was removed; "
                "purge it again when the disk takes writes"
            )
    for partition in partitions.values():
        _check_sound(partition)
    moving = {index: start for index, start in starts.items() if start > partitions[index].log.start_offset}
    await note_starts(host.groups.shards.map, topic, moving)
    for partition in partitions.values():
        _check_sound(partition)
    purged = [_purge(host, index, partition, starts[index]) for index, partition in partitions.items()]
    # Files are removed after that, and who reads files goes by it. Even if nothing was moved: an earlier purge may have
    # moved it and not got this far.
    await checkpoints.save(list(host.recoverables()))
    for each, partition in zip(purged, partitions.values(), strict=True):
        _check_sound(partition)
        point = checkpoints.point(partition.log.folder)
        if point is None or point.start_offset < each.earliest:
            raise StorageFailed(
                f"recovery points cannot be written: what was removed from {topic.name!r} is still in its files; purge "
                "it again when the disk takes writes"
            )
        host.groups.start_moved(topic, each.partition)
    removed = sum(each.removed for each in purged)
    log.info("topic purged", topic=topic.name, partitions=len(purged), messages=removed)
    return purged


def _check_sound(partition: Partition) -> None:
    if partition.closed:
        raise TopicNotFound("the topic was deleted")
    if partition.log.failure is not None:
        raise StorageFailed(f"partition {partition.place} takes no more writes: {partition.log.failure}")


def _start(partition: Partition, before_ns: int | None) -> int:
    """Nothing that readers cannot see yet is removed."""
    stable = partition.stable_end
    return stable if before_ns is None else min(partition.log.offset_at(before_ns), stable)


def _purge(host: Host, number: int, partition: Partition, start: int) -> PurgedPartition:
    owned, before = partition.log, partition.log.start_offset
    # Retention may have got further meanwhile.
    start = max(start, before)
    removed = lanes.visible(owned, before, start) - partition.producers.state.aborted.count(before, start)
    if start == owned.end_offset:
        # Files go as a whole, and the last one is in use. On a full disk it goes when the next one is begun.
        with suppress(DiskFull, Overloaded):
            owned.roll()
    owned.move_start(start)
    return PurgedPartition(number, before, start, removed, len(partition.delays))
