"""What recovery points and the removal of old files need to know of a log."""

from __future__ import annotations

from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.log.log import Log


class Recoverable:
    """A log as its recovery points see it, if nothing is derived from it."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def recovery_point(self) -> RecoveryPoint:
        """The state right now; it may be stored once everything written before is on the disk."""
        return self.log.recovery_point()

    def point_saved(self, point: RecoveryPoint) -> None:
        """A point that was taken before is on the disk: remove the files that no start needs any more."""
        self.log.note_durable_start(point.start_offset)
        self.drop_unneeded()

    def drop_unneeded(self) -> int:
        """Remove the segments below the start that is on the disk; return how many."""
        return self.log.remove_segments(self.log.below_durable_start())
