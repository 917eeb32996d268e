"""Keeping the last value of every key.

A pass first learns the last offset of each key in what was appended since the pass before, then rewrites the sealed
segments below that point without what is superseded. It is a generator: between two steps of about a millisecond it
hands control back, so appends go on, and it hands out work that waits for the disk as functions to be run elsewhere.
It may be dropped at any step.

Transactions: only what lies below every open one is looked at. What was aborted goes, and what was committed becomes
plain, so that markers can go.

Delayed messages: an original is no version of its key, and stays while it is pending. The record that it became when it
was due, and the one that cancels it, stay until the original is gone: else a start would take it for pending again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import pairwise

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.logging import get_logger
from goqueue.model.offset_runs import OffsetRuns
from goqueue.storage.files.files import File, Files
from goqueue.storage.log.index_file import LANE_MAGIC, TIME_MAGIC, time_entries, whole_index, with_footer
from goqueue.storage.log.lane_index import lane_column, sealed_entries
from goqueue.storage.log.log import Log
from goqueue.storage.log.scan import MOST_OFFSETS
from goqueue.storage.log.segment import Segment
from goqueue.storage.log.swap import COMPACTED, Swap, carry_out, conclude, decide_swap, revoke_swaps
from goqueue.wire.batch import Columns, FrameRun
from goqueue.wire.delayed import fired_origin
from goqueue.wire.frame import CHECKSUM_FROM, FLAGS_AGAIN_AT, FLAGS_AT, HEADER_SIZE, INVISIBLE, Flag
from goqueue.wire.producer_frames import as_plain, stamped_places

log = get_logger(__name__)

Step = Callable[[], None] | None
"""Work for a thread, or ``None`` to let others run."""

_STEP_BYTES = 128 << 10
_STEP_MESSAGES = 1_500
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
    """``below``: only messages under this offset are looked at, so that nothing unsettled is touched."""

    below: int
    tombstone_retention_ms: int
    max_keys: int
    is_pending: Callable[[int], bool] = _always
    """Of the offset of a delayed message: whether its firing or its cancelling is not yet durable."""
    aborted: OffsetRuns = field(default_factory=OffsetRuns)
    """Records of transactions that were aborted. They go, and no transaction is open below ``below``."""
    on_replaced: Callable[[int, int], None] = _nothing
    """Called in the step in which the segments between two offsets are replaced by what the pass left of them."""


def dirty_ratio(log: Log, below: int) -> float:
    """The share of the sealed bytes that no pass has seen."""
    sealed = _settled(log, below)
    total = sum(segment.size for segment, _ in sealed)
    return sum(segment.size for segment, end in sealed if end > log.cleaned_to) / total if total else 0.0


def compact(log: Log, rules: CompactionRules) -> Iterator[Step]:
    """One pass over ``log``. Ends at the next step if the log is cut back: what the pass has learnt is void then."""
    abandon(log)
    truncations = log.truncations
    for step in _pass(log, rules):
        yield step
        if log.truncations != truncations:
            abandon(log)
            return


def abandon(log: Log) -> None:
    """Take back and remove what a pass has half made. Called by whoever drops one."""
    revoke_swaps(log.open_files.disk, log.folder)


def _pass(log: Log, rules: CompactionRules) -> Iterator[Step]:
    sealed = _settled(log, rules.below)
    dirty = [segment for segment, end in sealed if end > log.cleaned_to]
    if not dirty:
        return
    latest = _Latest(rules.max_keys)
    yield from _learn(latest, dirty, log.cleaned_to, rules.aborted)
    tombstones_before_ns = log.now_ns() - rules.tombstone_retention_ms * NANOS_PER_MS
    group: _Group | None = None
    for segment, _ in sealed:
        if segment.base >= latest.until:
            break
        kept = _Kept()
        chooser = _Chooser(log, rules, latest, drop_tombstones=segment.summary()[1] < tombstones_before_ns)
        yield from chooser.choose(segment, kept)
        if group is not None and (group.size + kept.size > log.options.segment_bytes or not group.is_before(segment)):
            yield from group.finish()
            group = None
        if group is None and not kept.is_changed and kept.size > log.options.segment_bytes // 2:
            continue
        group = group or _Group(log, rules)
        yield from group.add(segment, kept)
    if group is not None:
        yield from group.finish()
    # What had to stay for now must be found superseded by the next pass too.
    log.cleaned_to = max(log.cleaned_to, min(latest.until, *latest.owed, MOST_OFFSETS))


def _settled(log: Log, below: int) -> list[tuple[Segment, int]]:
    """The sealed segments that lie wholly under ``below``, each with the offset at which the next one begins."""
    return [(segment, following.base) for segment, following in pairwise(log.segments) if following.base <= below]


def _short(key: bytes) -> bytes:
    """What stands for a key in memory: long ones by a hash that nobody can make collide."""
    return key if len(key) < _LONGEST_PLAIN_KEY else blake2b(key, digest_size=_LONGEST_PLAIN_KEY).digest()


@dataclass(slots=True)
class _Latest:
    """The last offset of every key seen, up to (not including) ``until``."""

    max_keys: int
    until: int = 0
    offsets: dict[bytes, int] = field(default_factory=dict)
    owed: set[int] = field(default_factory=set)
    """The offsets of those that supersede something which has to stay for now. As tombstones they must not go first."""

    def full(self) -> bool:
        return len(self.offsets) >= self.max_keys


@dataclass(slots=True)
class _Kept:
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
        """Note which frames of a run stay; it lies at ``position``. Those at the places ``anew`` look different."""
        starts, ends = run.positions[keep].astype(np.int64), run.ends()[keep].astype(np.int64)
        if len(starts):
            lengths = ends - starts
            # Neighbours that both stay are copied as one range.
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


def _runs(segment: Segment) -> Iterator[tuple[int, FrameRun]]:
    """All frames of a segment in small runs, each with its position in the file."""
    place, end_place = 0, segment.place_of(1 << 62)
    while place < end_place:
        found = segment.locate(place, _STEP_BYTES, _STEP_MESSAGES, end_place)
        run = found.load()
        yield found.position, run
        place += len(run)


def _keys(run: FrameRun, key_lengths: NDArray[np.uint16]) -> list[bytes]:
    starts = (run.positions + np.uint32(HEADER_SIZE)).tolist()
    frames = run.frames
    return [
        _short(bytes(frames[start : start + length]))
        for start, length in zip(starts, key_lengths.tolist(), strict=True)
    ]


def _learn(latest: _Latest, dirty: list[Segment], cleaned_to: int, aborted: OffsetRuns) -> Iterator[Step]:
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


class _Chooser:
    """Decides what stays of one segment."""

    def __init__(self, log: Log, rules: CompactionRules, latest: _Latest, *, drop_tombstones: bool) -> None:
        self._log = log
        self._rules = rules
        self._latest = latest
        self._drop_tombstones = drop_tombstones

    def choose(self, segment: Segment, kept: _Kept) -> Iterator[Step]:
        latest = self._latest
        for position, run in _runs(segment):
            columns = run.columns()
            flags, offsets = columns["flags"], columns["offset"].astype(np.int64)
            newest = np.array([latest.offsets.get(key, -1) for key in _keys(run, columns["key_length"])], np.int64)
            # What lies behind all that was learnt stays by this as well.
            keep = newest <= offsets
            tombstones: list[int] = []
            if self._drop_tombstones:
                old = ((flags & np.uint8(Flag.TOMBSTONE)) != 0) & (offsets < latest.until)
                tombstones = np.flatnonzero(keep & old).tolist()
                keep &= ~old
            if (flags & _OF_DELAYS).any():
                yield from self._heed_delays(run, columns, newest, keep)
            for place in tombstones:
                if int(offsets[place]) in latest.owed:
                    keep[place] = True
            anew: dict[int, bytes] = {}
            yield from self._heed_transactions(run, columns, keep, anew)
            kept.take(position, run, columns, keep, anew)
            yield None

    def _heed_transactions(
        self, run: FrameRun, columns: Columns, keep: NDArray[np.bool_], anew: dict[int, bytes]
    ) -> Iterator[Step]:
        """Drop what was aborted, and markers; what stays of producers' batches is plain from now on."""
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
                # Written anew, it would look whole.
                continue
            if frame[FLAGS_AT] & Flag.CONTROL and frame[FLAGS_AT] & Flag.TRANSACTIONAL:
                # What it tells of lies before it, and is plain or gone.
                keep[place] = False
            else:
                anew[place] = as_plain(frame)

    def _heed_delays(
        self, run: FrameRun, columns: Columns, newest: NDArray[np.int64], keep: NDArray[np.bool_]
    ) -> Iterator[Step]:
        """Correct ``keep`` for originals of delayed messages, and for what tells of their end."""
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
                    # An empty one tells nothing: it only stood in for a message that was refused.
                    is_empty = not (columns["headers_length"][place] or columns["value_length"][place])
                    keep[place] = not is_empty and (original is None or self._log.has(original))
                elif original is not None and self._log.has(original):
                    keep[place] = True
                    if newest[place] > offset:
                        self._latest.owed.add(int(newest[place]))


class _Group:
    """Segments that are rewritten into one new file."""

    def __init__(self, owner: Log, rules: CompactionRules) -> None:
        self._log = owner
        self._rules = rules
        self._segments: list[Segment] = []
        self._kept: list[_Kept] = []
        self._output: File | None = None
        self.size = 0

    @property
    def _disk(self) -> Files:
        return self._log.open_files.disk

    def is_before(self, segment: Segment) -> bool:
        """Whether ``segment`` directly follows the last one taken."""
        places = self._log.segments
        return places.index(segment) == places.index(self._segments[-1]) + 1

    def add(self, segment: Segment, kept: _Kept) -> Iterator[Step]:
        source = segment.files().log
        if self._output is None:
            path = segment.log_path
            self._output = self._disk.open(path.with_name(path.name + COMPACTED), create=True)
            self._output.truncate(0)
        pending: list[bytes] = []
        pending_size = 0
        for piece in kept.pieces:
            data = piece if isinstance(piece, bytes) else source.read(piece[0], piece[1] - piece[0])
            pending.append(data)
            pending_size += len(data)
            if pending_size >= _STEP_BYTES or len(pending) >= _STEP_MESSAGES:
                self._write(pending)
                pending_size = 0
                yield None
        self._write(pending)
        self._segments.append(segment)
        self._kept.append(kept)

    def _write(self, pending: list[bytes]) -> None:
        data = b"".join(pending)
        if self._output is not None and data:
            self._output.write(self.size, data)
        self.size += len(data)
        pending.clear()

    def finish(self) -> Iterator[Step]:
        """Make the new files durable, then put them in the place of the old ones."""
        first = self._segments[0]
        dropped = sum(kept.dropped for kept in self._kept)
        if self._output is None or (len(self._segments) == 1 and not self._kept[0].is_changed):
            self._disk.remove(first.log_path.with_name(first.log_path.name + COMPACTED))
            return
        outputs = [self._output, *self._write_indexes(first)]
        for output in outputs:
            yield output.sync
        # A manifest must never be there without the files it names.
        yield partial(self._disk.sync_dir, self._log.folder)
        swap = Swap([segment.base for segment in self._segments], empty=self.size == 0)
        yield partial(decide_swap, self._disk, self._log.folder, swap)
        # From here to the last line nothing else runs: names and segments change together.
        for segment in self._segments:
            segment.close()
        carry_out(self._disk, self._log.folder, swap)
        fresh = None
        if not swap.empty:
            fresh = Segment(self._log.open_files, self._log.folder, first.base, self._log.now_ns, sealed=True)
        self._log.replace_segments(self._segments, fresh)
        self._rules.on_replaced(first.base, self._segments[-1].below)
        yield partial(conclude, self._disk, self._log.folder, swap)
        log.info(
            "compacted",
            folder=str(self._log.folder),
            segments=len(self._segments),
            messages_dropped=dropped,
            bytes_now=self.size,
        )

    def _write_indexes(self, first: Segment) -> list[File]:
        if not self.size:
            return []
        lengths, timestamps, offsets = (
            np.concatenate([column for kept in self._kept for column in getattr(kept, name)])
            for name in ("lengths", "timestamps", "offsets")
        )
        positions = np.cumsum(lengths) - lengths
        appended_ns = max(segment.summary()[1] for segment in self._segments)
        times = time_entries(timestamps, offsets, -1, appended_ns, self.size)
        lanes = sealed_entries(np.concatenate([column for kept in self._kept for column in kept.lanes]))
        made = []
        for path, content in (
            (first.index_path, whole_index(positions, offsets, first.base, self.size)),
            (first.times.path, with_footer(TIME_MAGIC, times, self.size)),
            (first.lanes.path, with_footer(LANE_MAGIC, lanes, self.size)),
        ):
            file = self._disk.open(path.with_name(path.name + COMPACTED), create=True)
            file.truncate(0)
            file.write(0, content)
            made.append(file)
        return made
