"""Keeping the last value of every key.

A pass first reads the last offset of each key from the segments that were appended since the pass before, then rewrites
the sealed segments below that point without superseded messages. It is a generator: it yields after about a millisecond
of work, so that appends go on, and it yields functions that wait for the disk, to be run in a thread. It may be
abandoned at any step.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.logging import get_logger
from goqueue.storage.files.files import File, Files
from goqueue.storage.log.compaction_choice import (
    STEP_BYTES,
    STEP_MESSAGES,
    Chooser,
    CompactionRules,
    Kept,
    Latest,
    Step,
    learn,
)
from goqueue.storage.log.index_file import LANE_MAGIC, TIME_MAGIC, time_entries, whole_index, with_footer
from goqueue.storage.log.lane_index import sealed_entries
from goqueue.storage.log.log import Log
from goqueue.storage.log.scan import MOST_OFFSETS
from goqueue.storage.log.segment import Segment
from goqueue.storage.log.swap import COMPACTED, Swap, carry_out, conclude, decide_swap, revoke_swaps

log = get_logger(__name__)


def dirty_ratio(log: Log, below: int) -> float:
    """The fraction of the sealed bytes that no pass has seen."""
    sealed = _sealed_below(log, below)
    total = sum(segment.size for segment, _ in sealed)
    return sum(segment.size for segment, end in sealed if end > log.cleaned_to) / total if total else 0.0


def compact(log: Log, rules: CompactionRules) -> Iterator[Step]:
    """One pass over ``log``. If the log is truncated the pass ends at its next step, as what it knows may be wrong."""
    abandon(log)
    truncations = log.truncations
    for step in _pass(log, rules):
        yield step
        if log.truncations != truncations:
            abandon(log)
            return


def abandon(log: Log) -> None:
    """Remove the unfinished output of a pass. The caller that drops a pass must call this."""
    revoke_swaps(log.open_files.disk, log.folder)


def _pass(log: Log, rules: CompactionRules) -> Iterator[Step]:
    sealed = _sealed_below(log, rules.below)
    dirty = [segment for segment, end in sealed if end > log.cleaned_to]
    if not dirty:
        return
    latest = Latest(rules.max_keys)
    yield from learn(latest, dirty, log.cleaned_to, rules.aborted)
    tombstones_before_ns = log.now_ns() - rules.tombstone_retention_ms * NANOS_PER_MS
    group: _Group | None = None
    for segment, _ in sealed:
        if segment.base >= latest.until:
            break
        kept = Kept()
        chooser = Chooser(log, rules, latest, drop_tombstones=segment.summary()[1] < tombstones_before_ns)
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
    # The next pass must see again what supersedes a message that had to stay for now.
    log.cleaned_to = max(log.cleaned_to, min(latest.until, *latest.owed, MOST_OFFSETS))


def _sealed_below(log: Log, below: int) -> list[tuple[Segment, int]]:
    """The sealed segments wholly below ``below``, each with the offset at which the next one begins."""
    return [(segment, following.base) for segment, following in pairwise(log.segments) if following.base <= below]


class _Group:
    """Segments that are rewritten into one new file."""

    def __init__(self, owner: Log, rules: CompactionRules) -> None:
        self._log = owner
        self._rules = rules
        self._segments: list[Segment] = []
        self._kept: list[Kept] = []
        self._output: File | None = None
        self.size = 0

    @property
    def _disk(self) -> Files:
        return self._log.open_files.disk

    def is_before(self, segment: Segment) -> bool:
        """Whether ``segment`` directly follows the last segment of the group."""
        places = self._log.segments
        return places.index(segment) == places.index(self._segments[-1]) + 1

    def add(self, segment: Segment, kept: Kept) -> Iterator[Step]:
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
            if pending_size >= STEP_BYTES or len(pending) >= STEP_MESSAGES:
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
        # No other code runs until the next yield: names and segments change together.
        for segment in self._segments:
            segment.close()
        carry_out(self._disk, self._log.folder, swap)
        fresh, end = None, self._segments[-1].below
        if not swap.empty:
            owner = self._log
            fresh = Segment(
                owner.open_files, owner.folder, first.base, owner.now_ns, sealed=True, below=end, lost=owner.lost
            )
        self._log.replace_segments(self._segments, fresh)
        self._rules.on_replaced(first.base, end)
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
