"""Messages with the same story, found without looking at each.

The borders of events' ranges cut a partition's offsets into stretches; everything in a stretch has met the same events.
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
"""A clock that is set back further takes events of the topics that were made meanwhile with it."""

MOST_EDGES = 100_000
"""More borders than these are not looked at in one search."""
MOST_MET = 1_000_000
"""Nor more events than these, each counted once for every stretch that met it."""
MOST_OF_ONE = 500
"""Events of one message: its first, and the latest of the others."""


class Stretch(msgspec.Struct, frozen=True, gc=False):
    """Offsets of one place that share their events, which are in the order in which they were noted.

    (No dataclass, and no list in it: there are so many that looking for garbage among them would hold everyone up.)
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
    """The stretches of every place."""

    stretches: dict[str, list[Stretch]] = field(default_factory=dict)
    copies: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Where the broker put copies of messages, in order: each first offset and end."""
    is_complete: bool = True

    def events_at(self, place: str, offset: int) -> tuple[TraceEvent, ...]:
        there = self.stretches.get(place, [])
        at = bisect_right(there, offset, key=lambda each: each.first) - 1
        return there[at].events if at >= 0 and offset < there[at].end else ()

    def is_copy(self, place: str, offset: int) -> bool:
        """Whether a copy is known to have been put there."""
        there = self.copies.get(place, [])
        at = bisect_right(there, (offset, _BEHIND_ALL)) - 1
        return at >= 0 and offset < there[at][1]


def survey(newest_first: Iterable[TraceEvent], most_edges: int = MOST_EDGES) -> Atlas:
    """Put events together, as many as are worth it."""
    atlas = Atlas()
    by_place: dict[str, list[TraceEvent]] = {}
    edges = 0
    for event in newest_first:
        # Copies are looked at one by one.
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
    # Those where something happened last come first, as they are in ``by_place``.
    for place, events in by_place.items():
        # Not by their times: the clock may have been set back.
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
    """``events`` come as they were noted. From the highest offset down, for as long as there is room."""
    edges: list[int] = []
    numbers: list[int] = []
    for number, event in enumerate(events):
        runs = runs_of(event.offsets)
        edges += runs
        numbers += [number] * len(runs)
    # At the same offset, what begins there ends (going down) before what ends there begins.
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
    """Names are used again: what happened in a topic before it was deleted happened in another.

    Not by times alone: the clock may have been set back. ``made_ns`` tells of the topics that there are.
    """
    over: set[str] = set()
    deleted: set[str] = set()
    for event in newest_first:
        if event.place in over:
            continue
        since_ns = made_ns.get(split_place(event.place)[0])
        if since_ns is not None and event.at < since_ns - _CLOCK_SET_BACK_NS:
            # Nothing may tell that the one before was deleted: that was not written in time, or is not kept.
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
    """Without what happened to a message that lay at the offset before this one, and that a crash took."""
    is_cut = True
    for at in range(len(events) - 1, 0, -1):
        if events[at].event == PUBLISH:
            return events[at:]
        # What was cut last may be this very message.
        if events[at].event != CUT:
            is_cut = False
        elif not is_cut:
            return events[at + 1 :]
    return events


def since_copied(events: tuple[TraceEvent, ...]) -> tuple[TraceEvent, ...]:
    """The same of a record that is a copy, and was not published itself."""
    for at in range(len(events) - 1, -1, -1):
        if events[at].event in (PUBLISH, CUT):
            return events[at + 1 :]
    return events
