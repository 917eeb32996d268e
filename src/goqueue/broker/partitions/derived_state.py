"""State derived from one partition's log: its producers and its delayed messages, each with a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from msgspec.structs import replace

from goqueue.broker.partitions.derived_files import save
from goqueue.broker.partitions.partition_delays import PartitionDelays
from goqueue.broker.partitions.partition_producers import DedupEntry, PartitionProducers
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.log.durability import Durability
from goqueue.storage.log.log import Log
from goqueue.storage.log.recoverable import Recoverable
from goqueue.storage.log.segment import Segment


class DerivedState(Recoverable):
    """Empty until both are recovered, producers first. Segments below the log's start stay as long as either needs
    them."""

    def __init__(self, log: Log, durability: Durability, acknowledged_end: Callable[[], int] | None = None) -> None:
        """``acknowledged_end`` returns the offset below which nothing is ever cut off."""
        super().__init__(log)
        self.producers = PartitionProducers(log, acknowledged_end)
        self.delays = PartitionDelays(log, self.producers, partial(durability.end, log))
        self._durability = durability

    def recovery_point(self) -> RecoveryPoint:
        return replace(
            self.log.recovery_point(),
            delays_from=self.delays.needed_from(),
            producers_from=self.producers.needed_from(),
        )

    def point_saved(self, point: RecoveryPoint) -> None:
        self.delays.point_saved(point)
        super().point_saved(point)

    def drop_unneeded(self) -> int:
        """Remove the segments below the start that is on the disk, but for those that delayed messages need."""
        gone: list[Segment] = []
        known_to: int | None = None
        for segment in self.log.below_durable_start():
            if self.delays.keeps(segment.base, segment.below):
                known_to = self.producers.settled_below()
            elif known_to is None or segment.below <= known_to:
                # Else it may tell how a transaction ended of which a segment before it has records.
                gone.append(segment)
        return self.log.remove_segments(gone)

    async def save_producers(self, dedup: Iterable[DedupEntry]) -> bool:
        """Write the file of producers, with the partition's dedup ids; return whether it is there."""
        return await save(self._durability, self.producers, partial(self.producers.dump, dedup))

    async def save_delays(self) -> bool:
        """Write the file of delayed messages; return whether it is there."""
        return await save(self._durability, self.delays, self.delays.dump)
