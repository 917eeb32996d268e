"""Which frames of a read are not what they should be."""

from __future__ import annotations

from goqueue.broker.partitions.partition import Partition
from goqueue.wire.batch import Columns, FrameRun, damaged_places


def find_damaged_frames(partition: Partition, run: FrameRun, columns: Columns) -> set[int]:
    """Frames that fail their checksum; the partition knows of them from now on. Their offsets are right: a log knows
    them by position."""
    damaged = damaged_places(run, columns)
    if damaged:
        partition.note_damage(columns["offset"][damaged].tolist())
    return set(damaged)
