"""Which messages compaction keeps: the last one of every key, and what else must stay for now.

Transactions: a pass considers only records below every open transaction. It drops aborted records and markers, and
turns committed records into plain ones, which need no marker.

Delayed messages: a delayed record is no version of its key, and stays while it is pending. The message that it became
when it was due, or the record that cancels it, stays until the delayed record is gone: otherwise a start would take
that for pending again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from goqueue.model.offset_runs import OffsetRuns
from goqueue.storage.log.lane_index import lane_column
from goqueue.storage.log.log import Log
from goqueue.storage.log.segment import Segment
from goqueue.wire.batch import Columns, FrameRun
from goqueue.wire.delayed import fired_origin
from goqueue.wire.frame import CHECKSUM_FROM, FLAGS_AGAIN_AT, FLAGS_AT, HEADER_SIZE, INVISIBLE, Flag
from goqueue.wire.producer_frames import as_plain, stamped_places

Step = Callable[[], None] | None
"""Work for a thread, or ``None`` to let others run."""

STEP_BYTES = 128 << 10
STEP_MESSAGES = 1_500
_STEP_LOOKUPS = 50
_STEP_REWRITES = 100
_LONGEST_PLAIN_KEY = 16
_OF_DELAYS = np.uint8(INVISIBLE | Flag.FIRED)


def _always(offset: int) -> bool:
    return True


def _nothing(low: int, high: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """What a pass may remove. It considers only messages below the offset ``below``: what lies above may still be taken
    back, or belong to an open transaction."""

    below: int
    tombstone_retention_ms: int
    max_keys: int
    is_pending: Callable[[int], bool] = _always
    """Whether the delayed record at an offset must stay: it waits, or the record of its end is not durable yet."""
    aborted: OffsetRuns = field(default_factory=OffsetRuns)
    """Records of aborted transactions, which are dropped. No transaction is open below ``below``."""
    on_replaced: Callable[[int, int], None] = _nothing
    """Called in the step in which the segments between two offsets are replaced by what the pass left of them."""


@dataclass(slots=True)
class Latest:
    """The last offset of every key seen, up to (not including) ``until``."""

    max_keys: int
    until: int = 0
    offsets: dict[bytes, int] = field(default_factory=dict)
    owed: set[int] = field(default_factory=set)
    """Offsets of messages that supersede one which has to stay for now: their tombstones stay as long."""

    def full(self) -> bool:
        return len(self.offsets) >= self.max_keys


def learn(latest: Latest, dirty: list[Segment], cleaned_to: int, aborted: OffsetRuns) -> Iterator[Step]:
    """Add the keys of segments that no pass has seen, until there are ``max_keys``."""
    for segment in dirty:
        for _, run in _runs(segment):
            columns = run.columns()
            offsets = columns["offset"].tolist()
            seen = (columns["flags"] & np.uint8(INVISIBLE)) == 0
            if (never_seen := aborted.mask(columns["offset"].astype(np.int64))) is not None:
                seen &= ~never_seen
            keys = _keys(run, columns["key_length"])
            for key, offset, is_seen in zip(keys, offsets, seen.tolist(), strict=True):
                if key and offset >= cleaned_to and is_seen:
                    latest.offsets[key] = offset
            latest.until = offsets[-1] + 1
            yield None
            if latest.full():
                return


@dataclass(slots=True)
class Kept:
    """What stays of one segment: byte ranges, and the columns for its new index."""

    pieces: list[tuple[int, int] | bytes] = field(default_factory=list)
    """Byte ranges that stay as they are, and frames that were written anew."""
    lengths: list[NDArray[np.int64]] = field(default_factory=list)
    timestamps: list[NDArray[np.int64]] = field(default_factory=list)
    offsets: list[NDArray[np.int64]] = field(default_factory=list)
    lanes: list[NDArray[np.uint8]] = field(default_factory=list)
    size: int = 0
    dropped: int = 0
    rewritten: int = 0

    @property
    def is_changed(self) -> bool:
        return bool(self.dropped or self.rewritten)

    def take(
        self, position: int, run: FrameRun, columns: Columns, keep: NDArray[np.bool_], anew: dict[int, bytes]
    ) -> None:
        """Add the frames of a run that stay. The run lies at ``position``; ``anew`` has the frames that are replaced,
        by their index in the run."""
        starts, ends = run.positions[keep].astype(np.int64), run.ends()[keep].astype(np.int64)
        if len(starts):
            lengths = ends - starts
            # Adjacent frames are copied as one range.
            edges = starts[1:] != ends[:-1]
            written: dict[int, bytes] = {}
            if anew:
                rank = np.cumsum(keep) - 1
                written = {int(rank[place]): frame for place, frame in anew.items() if keep[place]}
                for at, frame in written.items():
                    lengths[at] = len(frame)
                    edges[max(0, at - 1) : at + 1] = True
            breaks = np.flatnonzero(edges) + 1
            firsts = np.append(0, breaks)
            lasts = np.append(breaks, len(starts)) - 1
            ranges = zip((starts[firsts] + position).tolist(), (ends[lasts] + position).tolist(), strict=True)
            self.pieces += [written.get(first, piece) for first, piece in zip(firsts.tolist(), ranges, strict=True)]
            self.rewritten += len(written)
            self.lengths.append(lengths)
            self.timestamps.append(columns["timestamp"][keep].astype(np.int64))
            self.offsets.append(columns["offset"][keep].astype(np.int64))
            self.lanes.append(lane_column(columns)[keep])
            self.size += int(lengths.sum())
        self.dropped += len(run) - len(starts)


class Chooser:
    """Decides what stays of one segment."""

    def __init__(self, log: Log, rules: CompactionRules, latest: Latest, *, drop_tombstones: bool) -> None:
        self._log = log
        self._rules = rules
        self._latest = latest
        self._drop_tombstones = drop_tombstones

    def choose(self, segment: Segment, kept: Kept) -> Iterator[Step]:
        latest = self._latest
        for position, run in _runs(segment):
            columns = run.columns()
            flags, offsets = columns["flags"], columns["offset"].astype(np.int64)
            newest = np.array([latest.offsets.get(key, -1) for key in _keys(run, columns["key_length"])], np.int64)
            # This keeps whatever lies behind the keys that were learnt, too.
            keep = newest <= offsets
            tombstones: list[int] = []
            if self._drop_tombstones:
                old = ((flags & np.uint8(Flag.TOMBSTONE)) != 0) & (offsets < latest.until)
                tombstones = np.flatnonzero(keep & old).tolist()
                keep &= ~old
            if (flags & _OF_DELAYS).any():
                yield from self._keep_delays(run, columns, newest, keep)
            for place in tombstones:
                if int(offsets[place]) in latest.owed:
                    keep[place] = True
            anew: dict[int, bytes] = {}
            yield from self._clean_transactions(run, columns, keep, anew)
            kept.take(position, run, columns, keep, anew)
            yield None

    def _clean_transactions(
        self, run: FrameRun, columns: Columns, keep: NDArray[np.bool_], anew: dict[int, bytes]
    ) -> Iterator[Step]:
        """Drop aborted records and markers, and make what stays of producers' batches plain."""
        aborted = self._rules.aborted.mask(columns["offset"].astype(np.int64))
        if aborted is not None:
            keep &= ~aborted
        marked = np.flatnonzero(columns["flags"] & np.uint8(Flag.TRANSACTIONAL)).tolist()
        starts, ends, checksums = run.positions.tolist(), run.ends().tolist(), columns["checksum"].tolist()
        for number, place in enumerate(sorted({*stamped_places(run, columns), *marked})):
            if number % _STEP_REWRITES == _STEP_REWRITES - 1:
                yield None
            if not keep[place]:
                continue
            frame = bytes(run.frames[starts[place] : ends[place]])
            if crc32c(frame[CHECKSUM_FROM:]) != checksums[place] or frame[FLAGS_AT] != frame[FLAGS_AGAIN_AT]:
                # With a new checksum, a damaged frame would look whole.
                continue
            if frame[FLAGS_AT] & Flag.CONTROL and frame[FLAGS_AT] & Flag.TRANSACTIONAL:
                # Its transaction lies before it, and is plain or gone.
                keep[place] = False
            else:
                anew[place] = as_plain(frame)

    def _keep_delays(
        self, run: FrameRun, columns: Columns, newest: NDArray[np.int64], keep: NDArray[np.bool_]
    ) -> Iterator[Step]:
        """Correct ``keep`` for delayed records, and for the records of their end."""
        flags, offsets, ends = columns["flags"], columns["offset"], run.ends()
        for number, place in enumerate(np.flatnonzero(flags & _OF_DELAYS).tolist()):
            if number % _STEP_LOOKUPS == _STEP_LOOKUPS - 1:
                yield None
            offset = int(offsets[place])
            if flags[place] & Flag.DELAYED:
                keep[place] = self._rules.is_pending(offset)
            elif flags[place] & Flag.CONTROL or not keep[place]:
                end = int(ends[place])
                original = fired_origin(bytes(run.frames[end - int(columns["headers_length"][place]) : end]))
                if flags[place] & Flag.CONTROL:
                    # An empty one only took the place of a message that violated its schema.
                    is_empty = not (columns["headers_length"][place] or columns["value_length"][place])
                    keep[place] = not is_empty and (original is None or self._log.has(original))
                elif original is not None and self._log.has(original):
                    keep[place] = True
                    if newest[place] > offset:
                        self._latest.owed.add(int(newest[place]))


def _short(key: bytes) -> bytes:
    """The form of a key in memory: long keys are replaced by a hash without known collisions."""
    return key if len(key) < _LONGEST_PLAIN_KEY else blake2b(key, digest_size=_LONGEST_PLAIN_KEY).digest()


def _keys(run: FrameRun, key_lengths: NDArray[np.uint16]) -> list[bytes]:
    starts = (run.positions + np.uint32(HEADER_SIZE)).tolist()
    frames = run.frames
    return [
        _short(bytes(frames[start : start + length]))
        for start, length in zip(starts, key_lengths.tolist(), strict=True)
    ]


def _runs(segment: Segment) -> Iterator[tuple[int, FrameRun]]:
    """All frames of a segment in small runs, each with its position in the file."""
    place, end_place = 0, segment.place_of(1 << 62)
    while place < end_place:
        found = segment.locate(place, STEP_BYTES, STEP_MESSAGES, end_place)
        run = found.load()
        yield found.position, run
        place += len(run)
