"""Which frames of a read are not what they should be."""

from __future__ import annotations

import numpy as np

from goqueue.broker.partition import Partition
from goqueue.wire.batch import Columns, FrameRun, damaged_places


def unsound_places(partition: Partition, run: FrameRun, columns: Columns, first: int, end: int) -> set[int]:
    """Frames that fail their checksum, or tell an offset that cannot be theirs: the checksum does not cover it.

    ``run`` is what a read from ``first`` on found before ``end``: its offsets rise, and each leaves room for those
    before and behind it.
    """
    unsound = set(damaged_places(run, columns))
    offsets = columns["offset"].astype(np.int64)
    least = np.arange(first, first + len(offsets))
    if (
        not ((offsets < least) | (offsets > least + (end - first - len(offsets)))).any()
        and (np.diff(offsets) > 0).all()
    ):
        if unsound:
            partition.note_damage([first + place for place in unsound])
        return unsound
    at = first
    for place, offset in enumerate(offsets.tolist()):
        if place in unsound or not at <= offset < end - (len(offsets) - 1 - place):
            unsound.add(place)
            at += 1
        else:
            at = offset + 1
    partition.note_damage([first + place for place in unsound])
    return unsound
