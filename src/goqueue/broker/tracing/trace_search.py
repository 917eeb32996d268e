"""Finding messages by what happened to them.

Ranges of messages with the same story are found first, from events alone; only those that are answered with are looked
at one by one.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from goqueue.broker.tracing.message_search import MessageSearch
from goqueue.broker.tracing.message_traces import MOST_COPIES, MessageTraces
from goqueue.broker.tracing.trace_assembly import assemble
from goqueue.broker.tracing.transaction_outcomes import Fate
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import shown
from goqueue.observe import trace_event as kinds
from goqueue.observe.trace import STATUSES, Place, Step, Trace, TracePage, in_order, status_of, step_of
from goqueue.observe.trace_event import TraceEvent, place_name, split_place
from goqueue.observe.trace_files import Budget, Wanted
from goqueue.observe.trace_grouping import MOST_EDGES, Atlas, Stretch, since_copied, survey

MAX_LIMIT = 1_000
MAX_SLOWER_MS = 10 * 365 * 86_400_000
MOST_LOOKED_AT = 20_000
"""Messages that one search looks at one by one, and may find not to fit."""
MOST_TOLD = 20_000
"""Events in one answer."""
_LATEST_EDGES = 20_000
"""How far back is looked for what happened lately."""
_AT_ONCE = 500
_CLOSE = 16
_BLOCK = 10_000
_NEVER_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class Criteria:
    """Which messages are meant; all of those that nothing here excludes."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    key: bytes | None = None
    group: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    """Something happened to it in between."""
    status: str | None = None
    slower_than_ms: int | None = None
    """From publishing until the first group was done with it."""
    limit: int = 100

    def check(self) -> None:
        if not 1 <= self.limit <= MAX_LIMIT:
            raise InvalidRequest(f"limit is {shown(self.limit)}; 1 to {MAX_LIMIT} are allowed")
        if self.status is not None and self.status not in STATUSES:
            raise InvalidRequest(f"status is {shown(self.status)}; use one of {', '.join(STATUSES)}")
        if self.slower_than_ms is not None and not 0 <= self.slower_than_ms <= MAX_SLOWER_MS:
            raise InvalidRequest(f"slower_than is {shown(self.slower_than_ms)} ms; 0 to {MAX_SLOWER_MS} are allowed")
        if self.start_ns is not None and self.end_ns is not None and self.start_ns > self.end_ns:
            raise InvalidRequest("start lies after end")
        if self.partition is not None and self.topic is None:
            raise InvalidRequest("a partition is asked for, but no topic")
        if self.offset is not None and self.partition is None:
            raise InvalidRequest("an offset is asked for, but no partition")
        if self.key == b"":
            raise InvalidRequest("key is empty, and no message has an empty key; leave it out to find messages of any")

    @property
    def asks_for_the_story(self) -> bool:
        return self.status is not None or self.slower_than_ms is not None

    @property
    def wants_files(self) -> bool:
        """Whether a look at the latest is not enough."""
        return self != Criteria(limit=self.limit)


@dataclass(frozen=True, slots=True)
class LatencyFigures:
    """Of messages whose events are in memory."""

    messages: int
    completed: int
    error: int
    average_ns: int | None
    p50_ns: int | None
    p99_ns: int | None
    slowest_ns: int | None


class TraceSearch:
    def __init__(self, traces: MessageTraces, search_bytes: int) -> None:
        self._traces = traces
        self._search_bytes = search_bytes

    async def search(self, criteria: Criteria) -> TracePage:
        """The latest first."""
        criteria.check()
        if criteria.topic is not None and criteria.partition is not None:
            if criteria.offset is not None and criteria == _at(criteria):
                trace = await self._traces.at(criteria.topic, criteria.partition, criteria.offset)
                return TracePage([trace], is_complete=trace.is_complete)
            if self._traces.has_topic(criteria.topic):
                self._traces.host.topic(criteria.topic).partition(criteria.partition)
        async with self._traces.turn():
            budget = Budget(self._search_bytes)
            events = self._traces.newest_first(Wanted(), budget, in_files=criteria.wants_files)
            atlas, fitting = await asyncio.to_thread(_look, events, criteria)
            # Of what happened lately there is always more.
            is_complete = atlas.is_complete or not criteria.wants_files
            found = _Found(self._traces, atlas, criteria)
            async for place, stretch in self._candidates(fitting, criteria, budget):
                if found.wants_more:
                    await found.add(place, stretch)
                else:
                    break
            traces = await found.all()
        if criteria.topic is not None and not any(split_place(each)[0] == criteria.topic for each in atlas.stretches):
            # It may have been deleted, but there must have been one of this name.
            self._traces.host.topic(criteria.topic)
        return TracePage(traces, is_complete and not budget.is_spent and found.is_complete)

    async def _candidates(
        self, fitting: list[Stretch], criteria: Criteria, budget: Budget
    ) -> AsyncIterator[tuple[Place, Stretch]]:
        """Messages that fit as far as events tell, and that have the key if one is asked for."""
        if criteria.key is None:
            for stretch in fitting:
                topic, number = split_place(stretch.place)
                every = range(stretch.first, stretch.end) if criteria.offset is None else (criteria.offset,)
                for offset in reversed(every):
                    yield Place(topic, number, offset), stretch
            return
        search = MessageSearch(self._traces.host, budget)
        for block in await asyncio.to_thread(_blocks, fitting):
            # Most of what is looked for may be gone, and then there is nothing else to wait for.
            await asyncio.sleep(0)
            topic, number = split_place(block[0].place)
            for offset in reversed(await search.with_key(criteria.key, block[0].place, block[0].first, block[-1].end)):
                stretch = block[bisect_right(block, offset, key=lambda each: each.first) - 1]
                if offset < stretch.end and criteria.offset in (None, offset):
                    yield Place(topic, number, offset), stretch

    async def figures(self) -> LatencyFigures:
        """Over what is in memory, or the latest of it if that is a lot."""
        async with self._traces.turn():
            events = self._traces.newest_first(Wanted(), Budget(0), in_files=False)
            return await asyncio.to_thread(lambda: _figures(survey(events, _LATEST_EDGES)))


class _Found:
    """Messages that a search came upon: each is looked at, a few of a partition at a time."""

    def __init__(self, traces: MessageTraces, atlas: Atlas, criteria: Criteria) -> None:
        self.is_complete = True
        self._traces = traces
        self._atlas = atlas
        self._criteria = criteria
        self._looked_at = 0
        self._steps = 0
        self._told: dict[Place, Trace] = {}
        self._next: dict[int, Stretch] = {}
        self._place = ""

    @property
    def wants_more(self) -> bool:
        if self._looked_at >= MOST_LOOKED_AT or self._steps >= MOST_TOLD:
            self.is_complete = False
            return False
        return len(self._told) < self._criteria.limit

    async def add(self, place: Place, stretch: Stretch) -> None:
        if self._place != place.name or len(self._next) >= min(_AT_ONCE, self._criteria.limit):
            await self._look()
        self._place = place.name
        self._next[place.offset] = stretch

    async def all(self) -> list[Trace]:
        if self.wants_more:
            await self._look()
        found = list(self._told.values())
        if self._criteria.key is not None:
            # They were found in the order in which they are read.
            found.sort(key=lambda each: each.steps[-1].at_ns, reverse=True)
        return found[: self._criteria.limit]

    async def _look(self) -> None:
        """Tell of those that were added last, as far as they are wanted."""
        stretches, self._next = self._next, {}
        if not stretches:
            return
        self._looked_at += len(stretches)
        topic, number = split_place(self._place)
        records = self._traces.records
        messages = await records.messages(topic, number, stretches)
        standings = await self._traces.standings(topic, number, messages)
        outcomes = records.outcomes(topic, number, stretches)
        for offset, stretch in stretches.items():
            place = Place(topic, number, offset)
            root, message = place, messages.get(offset)
            fate: Fate = "" if outcomes is None else outcomes.of(offset)
            steps = list(_steps(place, stretch.events, self._atlas))
            standing = list(standings.get(offset, ()))
            if message is not None and _has_no_beginning(stretch):
                if await records.marker(place, message) is not None:
                    # What a group commits covers a range, and so also what is no message.
                    continue
                root = await self._traces.origin_of(place, message)
                if root != place:
                    known = list(_steps(root, self._atlas.events_at(root.name, root.offset), self._atlas))
                    steps = known if any(step.to == place for step in known) else known + steps
                    message, fate = await records.message(root), records.fate(root)
            await asyncio.sleep(0)
            if root in self._told or self._steps >= MOST_TOLD:
                continue
            for copy in dict.fromkeys(step.to for step in steps if step.to is not None and step.to != place):
                standing += (await self._traces.standings(copy.topic, copy.partition, [copy.offset])).get(
                    copy.offset, []
                )
            trace = records.with_wait(assemble(root, message, steps, standing, fate))
            if self._criteria.status in (None, trace.status):
                self._told[root] = trace
                self._steps += len(trace.steps)


def _at(criteria: Criteria) -> Criteria:
    """What asks for one message, and nothing more of it."""
    return Criteria(criteria.topic, criteria.partition, criteria.offset, limit=criteria.limit)


def _look(newest_first: Iterable[TraceEvent], criteria: Criteria) -> tuple[Atlas, list[Stretch]]:
    """Stretches of messages that fit as far as events tell, the one with the latest event first."""
    atlas = survey(newest_first, MOST_EDGES if criteria.wants_files else _LATEST_EDGES)
    places = set(atlas.stretches)
    if criteria.topic is not None and criteria.partition is not None:
        places &= {place_name(criteria.topic, criteria.partition)}
    found = [
        (last_ns, stretch)
        for place in places
        if criteria.topic is None or split_place(place)[0] == criteria.topic
        for stretch in _each_with_copies(atlas.stretches[place])
        if (last_ns := _fits(stretch, atlas, criteria)) is not None
    ]
    found.sort(key=lambda each: (each[0], each[1].end, each[1].place), reverse=True)
    return atlas, [stretch for _, stretch in found]


def _fits(stretch: Stretch, atlas: Atlas, criteria: Criteria) -> int | None:
    """When something happened last to messages that fit; ``None`` if they do not."""
    if criteria.offset is not None and not stretch.first <= criteria.offset < stretch.end:
        return None
    if _has_no_beginning(stretch) and atlas.is_copy(stretch.place, stretch.first):
        # It is told of where the message itself is.
        return None
    happened: Sequence[TraceEvent | Step] = stretch.events
    story: list[Step] = []
    if criteria.asks_for_the_story or any(each.to for each in stretch.events):
        happened = story = _story(stretch, atlas)
    if criteria.group is not None and not any(each.group == criteria.group for each in happened):
        return None
    start_ns, end_ns = criteria.start_ns or 0, _NEVER_NS if criteria.end_ns is None else criteria.end_ns
    times = [each.at if isinstance(each, TraceEvent) else each.at_ns for each in happened]
    if not any(start_ns <= at_ns < end_ns for at_ns in times):
        return None
    if criteria.asks_for_the_story and not _fares(story, criteria):
        return None
    return max(times)


def _fares(steps: list[Step], criteria: Criteria) -> bool:
    if criteria.slower_than_ms is not None:
        latency_ns = _latency_ns(steps)
        if latency_ns is None or latency_ns <= criteria.slower_than_ms * NANOS_PER_MS:
            return False
    # A group that has not got to it yet left no events: what is done for others may still be to do for it.
    return criteria.status is None or (status_of(steps) == "error") == (criteria.status == "error")


def _blocks(fitting: list[Stretch]) -> list[list[Stretch]]:
    """Neighbours together, since they are read together; those with the latest events first."""
    by_place: dict[str, list[Stretch]] = {}
    for stretch in fitting:
        by_place.setdefault(stretch.place, []).append(stretch)
    blocks: list[list[Stretch]] = []
    for stretches in by_place.values():
        stretches.sort(key=lambda each: each.first)
        last: list[Stretch] = []
        for stretch in stretches:
            if last and stretch.first - last[-1].end <= _CLOSE and stretch.end - last[0].first <= _BLOCK:
                last.append(stretch)
            else:
                last = [stretch]
                blocks.append(last)
    blocks.sort(key=lambda block: max(each.last_ns for each in block), reverse=True)
    return blocks


def _each_with_copies(stretches: Iterable[Stretch]) -> Iterator[Stretch]:
    """Messages of which copies were made have each a story of their own from there on."""
    for stretch in stretches:
        if any(each.to for each in stretch.events):
            for offset in range(stretch.first, stretch.end):
                yield Stretch(stretch.place, offset, offset + 1, stretch.events)
        else:
            yield stretch


def _story(stretch: Stretch, atlas: Atlas) -> list[Step]:
    place = Place(*split_place(stretch.place), stretch.first)
    return in_order(list(_steps(place, stretch.events, atlas)))


def _has_no_beginning(stretch: Stretch) -> bool:
    """It was published before everything that is known, or not at all: copies are made by the broker."""
    return not any(each.event == kinds.PUBLISH for each in stretch.events)


def _steps(root: Place, events: tuple[TraceEvent, ...], atlas: Atlas) -> Iterator[Step]:
    """What happened to a message and to its copies."""
    places = [(root, events)]
    told = {root}
    for _ in range(MOST_COPIES):
        if not places:
            return
        place, here = places.pop(0)
        for event in here:
            step = step_of(event, place.offset)
            yield step
            if step.to is not None and step.to not in told:
                told.add(step.to)
                there = atlas.events_at(step.to.name, step.to.offset)
                places.append((step.to, since_copied(there)))


def _latency_ns(steps: list[Step]) -> int | None:
    published = next((each.at_ns for each in steps if each.event == kinds.PUBLISH), None)
    done = next((each.at_ns for each in steps if each.group and each.event in (kinds.ACK, kinds.COMMITTED)), None)
    return None if published is None or done is None else done - published


def _figures(atlas: Atlas) -> LatencyFigures:
    messages = completed = errors = total_ns = 0
    latencies: list[tuple[int, int]] = []
    for stretches in atlas.stretches.values():
        for stretch in _each_with_copies(stretches):
            if _has_no_beginning(stretch):
                continue
            size = stretch.end - stretch.first
            messages += size
            steps = _story(stretch, atlas)
            status = status_of(steps)
            completed += size if status == "completed" else 0
            errors += size if status == "error" else 0
            latency_ns = _latency_ns(steps)
            if latency_ns is not None:
                latencies.append((latency_ns, size))
                total_ns += latency_ns * size
    latencies.sort()
    count = sum(size for _, size in latencies)
    if not count:
        return LatencyFigures(messages, completed, errors, None, None, None, None)
    p50, p99 = (_quantile(latencies, count, share) for share in (0.5, 0.99))
    return LatencyFigures(messages, completed, errors, total_ns // count, p50, p99, latencies[-1][0])


def _quantile(latencies: list[tuple[int, int]], count: int, share: float) -> int:
    left = share * count
    for latency_ns, size in latencies:
        left -= size
        if left <= 0:
            return latency_ns
    return latencies[-1][0]
