"""State derived from one partition's log: its producers and its delayed messages. It follows the log as its observer,
and saves both to their files."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from goqueue.broker.partitions.derived_files import save
from goqueue.broker.partitions.partition_delays import PartitionDelays
from goqueue.broker.partitions.partition_producers import DedupEntry, PartitionProducers
from goqueue.storage.log.durability import Durability
from goqueue.storage.log.log import Log
from goqueue.storage.log.observer import LogObserver


class DerivedState(LogObserver):
    """Answers the log's questions for producers and delays alike. Empty until both are recovered, producers first."""

    def __init__(self, log: Log, durability: Durability) -> None:
        self.producers = PartitionProducers(log)
        self.delays = PartitionDelays(log, self.producers, partial(durability.end, log))
        self._durability = durability
        log.observer = self

    def compacted(self, low: int, high: int) -> None:
        self.producers.compacted(low, high)

    def is_held(self, low: int, high: int) -> bool:
        return self.delays.keeps(low, high)

    def delays_from(self, end_offset: int) -> int:
        return self.delays.needed_from()

    def producers_from(self, end_offset: int) -> int:
        return self.producers.needed_from()

    def producers_known_to(self, end_offset: int) -> int:
        return self.producers.settled_below()

    async def save_producers(self, dedup: Iterable[DedupEntry]) -> bool:
        """Write the file of producers, with the partition's dedup ids; return whether it is there."""
        return await save(self._durability, self.producers, partial(self.producers.dump, dedup))

    async def save_delays(self) -> bool:
        """Write the file of delayed messages; return whether it is there."""
        return await save(self._durability, self.delays, self.delays.dump)
