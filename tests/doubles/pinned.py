"""A log of which something pending needs files that lie below its start."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.log.log import Log
from goqueue.storage.log.recoverable import Recoverable
from goqueue.storage.log.segment import Segment


class Pinned(Recoverable):
    def __init__(self, log: Log, pending: Collection[int]) -> None:
        """``pending`` are offsets, and may change."""
        super().__init__(log)
        self.pending = pending

    def recovery_point(self) -> RecoveryPoint:
        return replace(self.log.recovery_point(), delays_from=min(self.pending, default=self.log.end_offset))

    def drop_unneeded(self) -> int:
        return self.log.remove_segments(each for each in self.log.below_durable_start() if not self.holds(each))

    def drop_below_start(self, durable_start: int) -> int:
        self.log.note_durable_start(durable_start)
        return self.drop_unneeded()

    def holds(self, segment: Segment) -> bool:
        return any(segment.base <= offset < segment.below for offset in self.pending)
