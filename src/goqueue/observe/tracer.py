"""Recorder of trace events: the latest stay in memory, and all of them until they are written."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from goqueue.model.runs import Offsets, Runs, add_run, pairs, to_runs
from goqueue.observe.trace_event import TraceEvent, runs_of

SAMPLE_BLOCK = 1_024
"""Sampling decides for blocks of neighbouring offsets, since events cover ranges."""
MOST_PENDING = 100_000
"""Limit on the events waiting to be written. Beyond it, if the disk is too slow, new events are only counted."""
_MOST_BLOCKS = 1_024
"""Limit on the blocks of one event. An event that covers more is kept whole: sampling each block would be slow."""
_MOST_WEIGHT = 100
"""Average memory of an event: events of scattered messages are larger, and fewer of them are kept."""
_WHOLE = 1 << 32


class Numbered(NamedTuple):
    """Consecutive events; ``first`` is the number of the first of them since the start."""

    first: int
    events: list[TraceEvent]


class Tracer:
    """Used on one event loop. The code that writes events empties ``pending``."""

    def __init__(self, sampling: float, memory_events: int, *, keeps_pending: bool) -> None:
        self.sampling = sampling
        self.recent: deque[TraceEvent] = deque()
        self.pending: list[TraceEvent] = []
        self.events = 0
        """Events since the start."""
        self.unwritten = 0
        self._keeps_pending = keeps_pending
        self._threshold = int(sampling * _WHOLE)
        self.is_on = self._threshold > 0
        """Whether any event is recorded."""
        self._memory_events = memory_events
        self._weight = 0
        self._pending_weight = 0
        self._pending_first = 0
        self._is_full = False
        """After one event was dropped, so are further ones until the queue is written: pending events have no gaps."""
        self._taken = Numbered(0, [])

    def note(self, event: TraceEvent) -> None:
        if self._threshold == _WHOLE:
            self._keep(event)
        elif event.to:
            for part in self._sampled_copies(event):
                self._keep(part)
        elif offsets := self._sampled(event.place, event.offsets):
            self._keep(msgspec.structs.replace(event, offsets=offsets))

    def _keep(self, event: TraceEvent) -> None:
        size = weight(event)
        self.recent.append(event)
        self._weight += size
        while len(self.recent) > self._memory_events or (
            self._weight > self._memory_events * _MOST_WEIGHT and len(self.recent) > 1
        ):
            self._weight -= weight(self.recent.popleft())
        if self._keeps_pending:
            self._is_full |= len(self.pending) >= MOST_PENDING or self._pending_weight > MOST_PENDING * _MOST_WEIGHT
            if self._is_full:
                self.unwritten += 1
            else:
                if not self.pending:
                    self._pending_first = self.events
                self.pending.append(event)
                self._pending_weight += size
        self.events += 1

    def take_pending(self) -> Numbered:
        """Events to be written; they stay readable until ``written`` is called."""
        self._taken = Numbered(self._pending_first, self.pending)
        self.pending, self._pending_weight, self._is_full = [], 0, False
        return self._taken

    def written(self) -> None:
        self._taken = Numbered(0, [])

    def in_memory(self) -> Numbered:
        """All events held here. Earlier events are in files, or lost."""
        first = self.events - len(self.recent)
        older: list[TraceEvent] = []
        known_from = first
        for part in (self._taken, Numbered(self._pending_first, self.pending)):
            # Events came so fast that memory evicted them before they were written.
            missing = part.events[: max(0, first - part.first)]
            if missing:
                known_from = min(known_from, part.first)
                older += missing
        return Numbered(known_from, older + list(self.recent))

    def is_sampled(self, place: str, offset: int) -> bool:
        return _mark(place, offset // SAMPLE_BLOCK) < self._threshold

    def _sampled(self, place: str, offsets: Offsets) -> Offsets:
        """The sampled offsets: the same share for every event, so that a message's trace is complete or absent.

        An event that covers very many offsets, as a commit may, is recorded for messages that are not sampled as well.
        """
        kept: Runs = []
        if self._threshold == 0:
            return kept
        runs = runs_of(offsets)
        if _block_count(runs) > _MOST_BLOCKS:
            return offsets
        for first, end in pairs(runs):
            while first < end:
                border = min(end, (first // SAMPLE_BLOCK + 1) * SAMPLE_BLOCK)
                if self.is_sampled(place, first):
                    add_run(kept, first, border)
                first = border
        return kept

    def _sampled_copies(self, event: TraceEvent) -> Iterator[TraceEvent]:
        """Events for stretches of copies, each its own: a copy belongs to a message by its position."""
        originals = event.order or [
            offset for first, end in pairs(runs_of(event.offsets)) for offset in range(first, end)
        ]
        part: list[int] = []
        for place, offset in enumerate([*originals, -1]):
            if offset >= 0 and self.is_sampled(event.place, offset):
                part.append(offset)
            elif part:
                ascending = sorted(part)
                yield msgspec.structs.replace(
                    event,
                    offsets=to_runs(ascending),
                    first_copy=event.first_copy + place - len(part),
                    order=[] if part == ascending else part,
                )
                part = []


def weight(event: TraceEvent) -> int:
    """Memory of an event, in units of about one number."""
    return 10 + len(event.offsets) + len(event.order)


def _block_count(runs: Runs) -> int:
    """Number of blocks that the runs touch; neighbouring runs may share one."""
    found, counted = 0, -1
    for first, end in pairs(runs):
        last = (end - 1) // SAMPLE_BLOCK
        found += last - max(first // SAMPLE_BLOCK, counted + 1) + 1
        counted = last
    return found


@lru_cache(maxsize=4_096)
def _mark(place: str, block: int) -> int:
    # No checksum: checksums of consecutive numbers are not evenly distributed.
    return int.from_bytes(blake2b(f"{place}/{block}".encode(), digest_size=4).digest())
