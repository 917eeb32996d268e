"""Remembering events: the latest in memory, and all of them until they are written."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from goqueue.model.runs import Offsets, Runs, add_run, pairs, to_runs
from goqueue.observe.trace_event import TraceEvent, runs_of, weight

SAMPLE_BLOCK = 1_024
"""Neighbours are traced together or not at all: what happens to them happens in ranges."""
MOST_PENDING = 100_000
"""Events that wait to be written. If the disk is slower for so long, the newest are not written, and counted."""
_MOST_BLOCKS = 1_024
"""Of one event. One that covers more is kept whole: to tell of each block would take long, and much room."""
_MOST_WEIGHT = 100
"""Of an event in memory, on average: those of scattered messages are larger, and fewer of them are kept."""
_WHOLE = 1 << 32


@dataclass(frozen=True, slots=True)
class TraceFigures:
    """Counted since the start."""

    events: int
    unwritten: int


class Numbered(NamedTuple):
    """Events that were noted one after the other; ``first`` is the number of the first of them since the start."""

    first: int
    events: list[TraceEvent]


class Tracer:
    """Used by one event loop. ``pending`` is emptied by whoever writes."""

    def __init__(self, sampling: float, memory_events: int, *, keeps_pending: bool) -> None:
        self.sampling = sampling
        self.recent: deque[TraceEvent] = deque()
        self.pending: list[TraceEvent] = []
        self.events = 0
        self.unwritten = 0
        self._keeps_pending = keeps_pending
        self._threshold = int(sampling * _WHOLE)
        self._memory_events = memory_events
        self._weight = 0
        self._pending_weight = 0
        self._pending_first = 0
        self._is_full = False
        """Once an event was not taken, no more are until the others are gone: what waits has no gaps."""
        self._taken = Numbered(0, [])

    @property
    def is_on(self) -> bool:
        return self._threshold > 0

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
        """What is to be written; it is known until ``written`` says that it is."""
        self._taken = Numbered(self._pending_first, self.pending)
        self.pending, self._pending_weight, self._is_full = [], 0, False
        return self._taken

    def written(self) -> None:
        self._taken = Numbered(0, [])

    def in_memory(self) -> Numbered:
        """All that is known here. What was noted before the first of them is in files, or nowhere."""
        first = self.events - len(self.recent)
        older: list[TraceEvent] = []
        known_from = first
        for part in (self._taken, Numbered(self._pending_first, self.pending)):
            # Noted so fast that memory has lost them again before they were written.
            missing = part.events[: max(0, first - part.first)]
            if missing:
                known_from = min(known_from, part.first)
                older += missing
        return Numbered(known_from, older + list(self.recent))

    def figures(self) -> TraceFigures:
        return TraceFigures(self.events, self.unwritten)

    def is_sampled(self, place: str, offset: int) -> bool:
        return _mark(place, offset // SAMPLE_BLOCK) < self._threshold

    def _sampled(self, place: str, offsets: Offsets) -> Offsets:
        """What of them is traced: the same share of every event, so that a message's story is whole or not there.

        Of an event that covers very many, as a commit may, messages that are not traced have this one event.
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
        """Which copy is of which message is told by their order, so each stretch of copies is an event of its own."""
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


def _block_count(runs: Runs) -> int:
    """How many blocks they touch; neighbours may share one."""
    found, counted = 0, -1
    for first, end in pairs(runs):
        last = (end - 1) // SAMPLE_BLOCK
        found += last - max(first // SAMPLE_BLOCK, counted + 1) + 1
        counted = last
    return found


@lru_cache(maxsize=4_096)
def _mark(place: str, block: int) -> int:
    # Not a checksum: those of numbers that follow one another are not spread evenly.
    return int.from_bytes(blake2b(f"{place}/{block}".encode(), digest_size=4).digest())
