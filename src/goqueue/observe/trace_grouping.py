"""Grouping of messages with the same events, without a loop over messages.

The ends of events' offset ranges divide a partition into stretches; all offsets of a stretch have the same events.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from goqueue.model.runs import run_count, size_of, unpacked
from goqueue.observe.trace_event import CUT, DELETED, PUBLISH, TraceEvent, runs_of, split_place

_BEHIND_ALL = 1 << 70
_CLOCK_SET_BACK_NS = 3_600 * 10**9
"""If the clock is set back further, events of topics created meanwhile are discarded."""

MOST_EDGES = 100_000
"""Limit on the range boundaries considered in one search."""
MOST_MET = 1_000_000
"""Limit on the events considered in one search, each counted once per stretch that it covers."""
MOST_OF_ONE = 500
"""Limit on the events of one message: its first, and the latest of the others."""


class Stretch(msgspec.Struct, frozen=True, gc=False):
    """Offsets of one partition that share their events, in the order in which these were recorded.

    (No dataclass, and no list in it: there are so many that garbage collection would block the process.)
    """

    place: str
    first: int
    end: int
    events: tuple[TraceEvent, ...]

    @property
    def last_ns(self) -> int:
        return self.events[-1].at


@dataclass(slots=True)
class Atlas:
    """Stretches of every partition."""

    stretches: dict[str, list[Stretch]] = field(default_factory=dict)
    copies: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Where the broker wrote copies of messages, in order: first offset and end of each."""
    is_complete: bool = True

    def events_at(self, place: str, offset: int) -> tuple[TraceEvent, ...]:
        there = self.stretches.get(place, [])
        at = bisect_right(there, offset, key=lambda each: each.first) - 1
        return there[at].events if at >= 0 and offset < there[at].end else ()

    def is_copy(self, place: str, offset: int) -> bool:
        """Whether the offset is a known copy."""
        there = self.copies.get(place, [])
        at = bisect_right(there, (offset, _BEHIND_ALL)) - 1
        return at >= 0 and offset < there[at][1]


def survey(newest_first: Iterable[TraceEvent], most_edges: int = MOST_EDGES) -> Atlas:
    """Group events into stretches, up to the limits."""
    atlas = Atlas()
    by_place: dict[str, list[TraceEvent]] = {}
    edges = 0
    for event in newest_first:
        # Copies are handled one by one, so each counts.
        edges += _edges(event) if not event.to else _edges(event) + size_of(event.offsets)
        if edges > most_edges:
            atlas.is_complete = False
            break
        by_place.setdefault(event.place, []).append(event)
        if event.to:
            atlas.copies.setdefault(event.to, []).append((event.first_copy, event.first_copy + size_of(event.offsets)))
    for ranges in atlas.copies.values():
        ranges.sort()
    room = MOST_MET
    # ``by_place`` has the partitions with the latest events first.
    for place, events in by_place.items():
        # Recorded order, not order of time: the clock may have been set back.
        events.reverse()
        found, room = _stretches(place, events, room)
        if found:
            atlas.stretches[place] = found
        if room < 0:
            atlas.is_complete = False
    return atlas


def _edges(event: TraceEvent) -> int:
    return 2 * run_count(unpacked(event.offsets)[1]) if isinstance(event.offsets, str) else len(event.offsets)


def _stretches(place: str, events: Sequence[TraceEvent], room: int) -> tuple[list[Stretch], int]:
    """Stretches from the highest offset down until ``room`` is used up. ``events`` are in the order of recording."""
    edges: list[int] = []
    numbers: list[int] = []
    for number, event in enumerate(events):
        runs = runs_of(event.offsets)
        edges += runs
        numbers += [number] * len(runs)
    # At equal offsets, going down, the range that begins there is closed before the range that ends there is opened.
    is_begin = np.tile(np.array([1, 0], np.int64), len(edges) // 2)
    every = np.array(edges, np.int64)
    order = np.argsort(every * 2 + is_begin)[::-1]
    active: list[int] = []
    found: list[Stretch] = []
    above = -1
    for edge, number, begins in zip(
        every[order].tolist(), np.array(numbers)[order].tolist(), is_begin[order].tolist(), strict=True
    ):
        if active and edge != above:
            room -= len(active)
            if room < 0:
                break
            met = since_published(tuple(events[each] for each in active))
            found.append(Stretch(place, edge, above, abridged(met)))
        above = edge
        if begins:
            active.remove(number)
        else:
            insort(active, number)
    found.reverse()
    return found, room


def of_the_latest(newest_first: Iterable[TraceEvent], made_ns: Mapping[str, int]) -> Iterator[TraceEvent]:
    """Events without those of deleted topics whose names are in use again.

    Times alone do not decide: the clock may have been set back. ``made_ns``: creation times of existing topics.
    """
    over: set[str] = set()
    deleted: set[str] = set()
    for event in newest_first:
        if event.place in over:
            continue
        since_ns = made_ns.get(split_place(event.place)[0])
        if since_ns is not None and event.at < since_ns - _CLOCK_SET_BACK_NS:
            # The deletion of the earlier topic may be missing: it was not written in time, or is no longer kept.
            continue
        if event.event == DELETED:
            if since_ns is not None or event.place in deleted:
                over.add(event.place)
                continue
            deleted.add(event.place)
        yield event


def abridged(events: tuple[TraceEvent, ...]) -> tuple[TraceEvent, ...]:
    return events if len(events) <= MOST_OF_ONE else events[:1] + events[-(MOST_OF_ONE - 1) :]


def since_published(events: tuple[TraceEvent, ...]) -> tuple[TraceEvent, ...]:
    """Events without those of an earlier message at the same offset that a crash cut from the log."""
    is_cut = True
    for at in range(len(events) - 1, 0, -1):
        if events[at].event == PUBLISH:
            return events[at:]
        # The last cut may concern this message itself.
        if events[at].event != CUT:
            is_cut = False
        elif not is_cut:
            return events[at + 1 :]
    return events


def since_copied(events: tuple[TraceEvent, ...]) -> tuple[TraceEvent, ...]:
    """The same for a record that is a copy and has no publish event of its own."""
    for at in range(len(events) - 1, -1, -1):
        if events[at].event in (PUBLISH, CUT):
            return events[at + 1 :]
    return events
