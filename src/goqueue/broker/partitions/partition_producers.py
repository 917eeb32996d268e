"""The idempotent producers of one partition, derived from its log; a file saves a start from reading all of it.

Stamps, markers and dedup ids are all in the log. The file holds the state derived from everything below an offset, and
a start reads on from there. Compaction removes stamps, so it stays below the offset that the file covers. The start of
the log stays below it too: the file is written before retention or a purge moves the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

import msgspec
import numpy as np

from goqueue.broker.partitions.derived_files import SAVE_BEHIND, Loaded, load
from goqueue.model.logging import get_logger
from goqueue.model.message import HIDDEN
from goqueue.model.producer_sequences import OpenRecords, Producers, SentBatch
from goqueue.model.producer_undo import Change, ProducerUndo
from goqueue.model.runs import Runs, ascending_to_runs
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.files.files import Files
from goqueue.storage.log.log import Log
from goqueue.storage.log.producer_replay import FILE_NAME, ProducerReplay, ProducersFile, first_stamp
from goqueue.wire.batch import CheckedBatch, Columns, FrameRun
from goqueue.wire.frame import Flag
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.producer_frames import Marker, dedup_ids

log = get_logger(__name__)

_SCAN_BYTES = 1 << 20
_DIGEST_BYTES = 16
_MOST_UNSETTLED = 64
"""Beyond so many changes that could be cut off when last looked at, they are looked at again."""
_OLDEST_ID_NS = 86_400 * 10**9
"""No topic remembers dedup ids for longer."""


class DedupEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message that was published with a dedup id, of which a digest is kept."""

    digest: bytes
    offset: int
    at_ns: int


def digest_of(dedup_id: bytes) -> bytes:
    return blake2b(dedup_id, digest_size=_DIGEST_BYTES).digest()


class _File(ProducersFile):
    dedup: list[DedupEntry] = msgspec.field(default_factory=list)


def _decode(payload: bytes) -> Loaded[tuple[Producers, list[DedupEntry]]]:
    """The file's state is the producers and the dedup ids."""
    kept = msgspec.msgpack.decode(payload, type=_File)
    return kept.as_of, (kept.state(), kept.dedup)


class PartitionProducers:
    def __init__(self, owner_log: Log, acknowledged_end: Callable[[], int] | None = None) -> None:
        """``acknowledged_end`` returns the offset below which nothing is ever cut off; if there is none, everything
        durable stays."""
        self.log = owner_log
        self.state = Producers()
        self._undo = ProducerUndo()
        self._acknowledged_end = acknowledged_end or (lambda: owner_log.durable_offset)
        self.saved_at = 0
        """The offset up to which the file covers the log."""
        self.changes = 0
        """How often something changed since the file was written."""
        self.found_ids: list[DedupEntry] = []
        """After a start: dedup ids found in the log behind what the file covers."""
        self.loaded_ids: list[DedupEntry] = []
        """After a start: dedup ids found in the file."""
        self.has_ids = False
        """Whether the topic remembers any dedup id of this partition."""
        self._nobody_below = 0
        """No producer was known when the log ended here: nothing below is needed, whether or not there is a file."""

    @property
    def is_empty(self) -> bool:
        state = self.state
        return not (state.known or len(state.aborted) or len(state.aborted_delayed) or self.has_ids)

    def needed_from(self) -> int:
        """The offset below which nothing is needed to know everything, whether or not there is a file."""
        if self.is_empty:
            self._nobody_below = self.log.end_offset
        return self._nobody_below

    @property
    def first_open(self) -> int | None:
        return self.state.first_open

    # Changing

    def stored(self, stamp: ProducerStamp, first: int, batch: CheckedBatch, now_ns: int, *, is_open: bool) -> None:
        """A producer's batch was appended just now."""
        self._stored(stamp, first, now_ns)
        if is_open:
            self.state.opened(stamp.producer_id, first, first + len(batch.positions), _delayed(batch, first))

    def _stored(self, stamp: ProducerStamp, first: int, now_ns: int) -> None:
        self._begin_at(first)
        self.changes += 1
        batch = SentBatch(stamp.first_sequence, stamp.message_count, first)
        before = self.state.stored(stamp.producer_id, stamp.epoch, batch, now_ns)
        self._note((first, stamp.producer_id, before, None, False))

    def stored_ids(self, first: int) -> None:
        """Messages with dedup ids were appended just now, from this offset on."""
        self._begin_at(first)
        self.has_ids = True
        self.changes += 1

    def _begin_at(self, first: int) -> None:
        """Something comes to be known by what lies at this offset. The next recovery point would be too late to tell
        that it is the first: the start may have moved since the last one, so that less is left than it asks for."""
        if self.is_empty:
            self._nobody_below = first

    def ended(self, marker: Marker) -> OpenRecords | None:
        """A marker was appended just now."""
        self.changes += 1
        before, opened = self.state.then(marker.producer_id), self.state.open_of(marker.producer_id)
        self._note((self.log.end_offset - 1, marker.producer_id, before, opened, marker.is_commit))
        return self.state.ended(marker.producer_id, marker.epoch, is_commit=marker.is_commit)

    def _note(self, change: Change) -> None:
        self._undo.changes.append(change)
        if len(self._undo.changes) > _MOST_UNSETTLED:
            self._undo.settle(self._acknowledged_end())

    def cut(self, end: int) -> Iterator[None]:
        """The log was cut. Until this has come to its end, what lay behind is still known in part."""
        self.changes += 1
        self._nobody_below = min(self._nobody_below, end)
        return self._undo.take_back(self.state, end)

    def forget(self, silent_since_ns: int, most: int, *, has_ids: bool) -> None:
        """Forget producers that were silent for long, and those beyond ``most``."""
        self.changes += self.state.forget(silent_since_ns, most)
        self.has_ids = has_ids

    def compacted(self, low: int, high: int) -> None:
        """Compaction has removed what was aborted between two offsets; it is not counted any more."""
        self.state.drop_between(low, high)

    @property
    def _needs_file(self) -> bool:
        """A file that is there is believed by the next start, be it of those who are forgotten by now."""
        return self.saved_at > 0 or not self.is_empty

    def is_due(self) -> bool:
        """Whether so much lies behind the file that it should be written."""
        return self._needs_file and self.log.end_offset - self.saved_at > SAVE_BEHIND

    def holds_up_compaction(self) -> bool:
        """Whether there is something for compaction to do that waits for the file."""
        return self._needs_file and len(self.log.segments) > 1 and self.log.active.base > self.saved_at

    def holds_up_files(self) -> bool:
        """Whether segments wait to be removed until the file is written."""
        below_start = self.log.below_durable_start()
        return self._needs_file and any(segment.below > self.saved_at for segment in below_start)

    def settled_below(self) -> int:
        """Stamps, markers and what was aborted may go below this."""
        return self.saved_at if self._needs_file else self.log.end_offset

    def is_known_below(self, offset: int) -> bool:
        """Whether the log below this can go and the next start knows as much as with it."""
        return not self._needs_file or self.saved_at >= offset

    # Recovery

    def recover(self, files: Files, point: RecoveryPoint | None, now_ns: int) -> None:
        """Learn everything: from the file, and from the log behind it."""
        self._nobody_below = first_stamp(point)
        self._undo = ProducerUndo()
        at = self._nobody_below
        start = self.log.segments[0].base
        loaded = load(files, self, "producers", _decode)
        if loaded is not None:
            self.saved_at, (self.state, self.loaded_ids) = loaded
            at = self.saved_at
            # Retention stops at what is open, so what seems to be open below the start has ended.
            self.changes += self.state.close_below(self.log.start_offset)
        elif point is None:
            # Nothing tells of anybody below: the next recovery point must not ask for what is gone.
            self._nobody_below = start
        at = max(at, start)
        replay = ProducerReplay(self.state, self.log.start_offset, now_ns)
        while (found := self.log.read_kept(at, _SCAN_BYTES, 1 << 20)) is not None:
            run = found.load()
            columns = run.columns()
            replay.follow(run, columns)
            self._find_ids(run, columns, now_ns)
            at = found.next_offset
        self.changes += replay.changes
        closed = self.state.close_below(self.log.start_offset)
        if closed:
            log.warning("markers of transactions are gone", folder=str(self.log.folder), transactions=closed)
        # What compaction has seen holds nothing any more that was aborted.
        self.state.drop_below(max(start, min(self.log.cleaned_to, self.log.end_offset)))
        if self.log.options.compacted:
            # A crash may have come between the end of a compaction and the point that tells of it.
            self.state.keep_aborted(self.log.has)
        self.has_ids = bool(self.found_ids or self.loaded_ids)

    @property
    def path(self) -> Path:
        return self.log.folder / FILE_NAME

    def _find_ids(self, run: FrameRun, columns: Columns, now_ns: int) -> None:
        """A message that was delayed and has become visible is known by the record that it was until then.

        When they came is known no better than when the last message of their segment did.
        """
        found = dedup_ids(run)
        if not found:
            return
        offsets = columns["offset"]
        at_ns = min(now_ns, self.log.segments[self.log.segment_at(int(offsets[0]))].summary()[1])
        if at_ns < now_ns - _OLDEST_ID_NS:
            return
        fired = columns["flags"] & np.uint8(Flag.FIRED) != 0
        # A message's own time is its producer's, and mostly the better guess.
        sent_ns = np.minimum(columns["timestamp"].astype(np.int64), at_ns)
        self.found_ids += [
            DedupEntry(digest_of(each), int(offsets[at]), int(sent_ns[at]))
            for at, each in found.items()
            if not fired[at]
        ]

    # The file

    def dump(self, dedup: Iterable[DedupEntry]) -> tuple[int, bytes]:
        """What to write once everything that is in the log now is on the disk, and up to where it tells."""
        state = self.state
        state.drop_below(self.log.segments[0].base)
        as_of = self.log.end_offset
        kept = _File(as_of, state.known, state.aborted.dump(), state.aborted_delayed.dump(), list(dedup))
        return as_of, msgspec.msgpack.encode(kept)

    def saved(self, as_of: int, changes: int) -> None:
        self.saved_at = as_of
        self.changes -= changes


def _delayed(batch: CheckedBatch, first: int) -> Runs:
    if isinstance(batch.lanes, int):
        return [first, first + len(batch)] if batch.lanes == HIDDEN else []
    return ascending_to_runs((np.flatnonzero(batch.lanes == HIDDEN) + first).tolist())
