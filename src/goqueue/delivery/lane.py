"""One lane of a group's queue, as long as something in it is not done."""

from __future__ import annotations

from collections import deque

import msgspec

from goqueue.delivery.acked_offsets import AckedDump, AckedOffsets
from goqueue.delivery.in_flight_batch import READY, InFlightBatch


class LaneDump(msgspec.Struct, frozen=True, array_like=True):
    """As it goes into a snapshot."""

    lane: int
    cursor: int
    acked: AckedDump


class Lane:
    """Each message of the lane below ``cursor`` is done, in a batch, moving, or parked until its key is free.

    Offsets of other lanes below the cursor count as done here: that keeps the runs of what is done few.
    """

    __slots__ = ("acked", "cursor", "outstanding", "ready")

    def __init__(self, start: int) -> None:
        self.cursor = start
        self.acked = AckedOffsets(start)
        self.outstanding = 0
        """How many of its messages are in batches."""
        self.ready: deque[InFlightBatch] = deque()

    def undone(self, start: int = 0) -> int:
        """How many of its messages below the cursor, from ``start`` on, are not done."""
        acked = self.acked
        first = max(acked.prefix, start)
        if first >= self.cursor:
            return 0
        done = acked.above_from(first)
        if done and acked.end > self.cursor:
            done -= acked.above_from(self.cursor)
        return self.cursor - first - done

    def done_beyond(self) -> int:
        """How many are done although the cursor has not come to them: it was set back."""
        acked = self.acked
        return max(0, acked.prefix - self.cursor) + (acked.above_from(self.cursor) if acked.above else 0)

    def first_ready(self) -> InFlightBatch | None:
        """What is to be delivered again next."""
        ready = self.ready
        while ready and not is_ready(ready[0]):
            ready.popleft()
        return ready[0] if ready else None

    def ready_count(self, most: int) -> int:
        """How many messages are to be delivered again; ``most`` stands for more."""
        count = 0
        for batch in self.ready:
            if is_ready(batch):
                count += batch.bits.bit_count()
                if count >= most:
                    return most
        return count

    def dump(self, number: int) -> LaneDump:
        return LaneDump(number, self.cursor, self.acked.dump())

    @classmethod
    def load(cls, dump: LaneDump) -> Lane:
        lane = cls(dump.cursor)
        lane.acked = AckedOffsets.load(dump.acked)
        return lane


def is_ready(batch: InFlightBatch) -> bool:
    return batch.bits != 0 and batch.member is None and batch.at_ns == READY
