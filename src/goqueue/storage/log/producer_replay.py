"""What follows from the stamps and markers in a partition's log, and the file that saves reading all of them again.

The broker learns by this at a start; whoever reads a data folder without a broker learns the same by the same rules.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from goqueue.model.offset_runs import OffsetRuns
from goqueue.model.producer_sequences import Producer, Producers, SentBatch
from goqueue.model.runs import ascending_to_runs, pairs
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.wire.batch import Columns, FrameRun
from goqueue.wire.frame import CHECKSUM_FROM, HEADER_SIZE, Flag
from goqueue.wire.internal_headers import ProducerStamp, producer_stamp
from goqueue.wire.producer_frames import read_marker, stamped_places

FILE_NAME = "producers"
_OF_TRANSACTIONS = np.uint8(Flag.TRANSACTIONAL | Flag.CONTROL)


class ProducersFile(msgspec.Struct):
    """What the records below ``as_of`` tell. The broker keeps more in it; this is what readers need."""

    as_of: int
    producers: dict[int, Producer]
    aborted: bytes
    aborted_delayed: bytes

    def state(self) -> Producers:
        """Raises ``ValueError`` if there is nonsense in it."""
        made = Producers(self.producers, OffsetRuns.load(self.aborted), OffsetRuns.load(self.aborted_delayed))
        made.look_for_open()
        return made


def first_stamp(point: RecoveryPoint | None) -> int:
    """Where to begin without a file."""
    if point is None:
        return 0
    # A point that does not know of producers is from before there were any.
    return point.base + point.count if point.producers_from < 0 else point.producers_from


@dataclass(slots=True)
class _Batch:
    """A transaction's batch whose frames go on in what is read next."""

    producer_id: int
    first: int
    end: int


class ProducerReplay:
    """Follows a log frame by frame, in order."""

    def __init__(self, state: Producers, start_offset: int, now_ns: int = 0) -> None:
        self.state = state
        self.start_offset = start_offset
        self.changes = 0
        """How often something changed."""
        self._now_ns = now_ns
        self._open_batch: _Batch | None = None

    @property
    def is_inside_a_batch(self) -> bool:
        """Whether a transaction's batch goes on in the frames that come next."""
        return self._open_batch is not None

    def follow(self, run: FrameRun, columns: Columns) -> None:
        offsets = columns["offset"].astype(np.int64)
        ends = run.ends()
        loose = (columns["flags"] & _OF_TRANSACTIONS) == np.uint8(Flag.TRANSACTIONAL)
        self._cover(loose, offsets)
        for place in stamped_places(run, columns):
            stamp = _sound_stamp(run, columns, place, int(ends[place]))
            if stamp is None:
                continue
            first = int(offsets[place])
            self._go_on(columns, offsets, first)
            self.changes += 1
            flags = int(columns["flags"][place])
            marker = read_marker(flags, stamp)
            if marker is not None:
                self.state.ended(marker.producer_id, marker.epoch, is_commit=marker.is_commit)
                continue
            batch = SentBatch(stamp.first_sequence, stamp.message_count, first)
            self.state.stored(stamp.producer_id, stamp.epoch, batch, self._now_ns)
            if flags & Flag.TRANSACTIONAL:
                self._open_batch = _Batch(stamp.producer_id, first, first + stamp.message_count)
                self._cover(loose, offsets)
        self._go_on(columns, offsets, int(offsets[-1]) + 1)
        if loose.any():
            # A power loss took the front of their batch, and what would have told how it ended.
            for first, end in pairs(ascending_to_runs(offsets[loose].tolist())):
                self.state.aborted.add(first, end)
            self.changes += 1

    def _cover(self, loose: NDArray[np.bool_], offsets: NDArray[np.int64]) -> None:
        """Frames of the batch that is being read belong to a transaction that is known."""
        batch = self._open_batch
        if batch is not None:
            low, high = np.searchsorted(offsets, (batch.first, batch.end)).tolist()
            loose[low:high] = False

    def _go_on(self, columns: Columns, offsets: NDArray[np.int64], upto: int) -> None:
        """The frames before ``upto`` that belong to the transaction's batch that is being read."""
        batch = self._open_batch
        if batch is None:
            return
        known = self.state.open_of(batch.producer_id)
        if known is not None and known.end <= self.start_offset <= batch.first:
            # Its end was told by a marker that is gone: retention stops at what is open.
            self.state.ended(batch.producer_id, 0, is_commit=True)
            known = None
        at = max(batch.first, 0 if known is None else known.end)
        low, high = np.searchsorted(offsets, (at, min(upto, batch.end))).tolist()
        if low < high:
            hidden = np.flatnonzero(columns["flags"][low:high] & np.uint8(Flag.DELAYED)) + low
            end = int(offsets[high - 1]) + 1
            runs = ascending_to_runs(offsets[hidden].tolist())
            self.state.opened(batch.producer_id, int(offsets[low]), end, runs)
        if upto >= batch.end:
            self._open_batch = None


def _sound_stamp(run: FrameRun, columns: Columns, place: int, end: int) -> ProducerStamp | None:
    """The stamp of a frame that is whole; it ends at ``end``."""
    start = int(run.positions[place])
    if end - start < HEADER_SIZE or crc32c(run.frames[start + CHECKSUM_FROM : end]) != int(columns["checksum"][place]):
        return None
    return producer_stamp(run.frames[end - int(columns["headers_length"][place]) : end])
