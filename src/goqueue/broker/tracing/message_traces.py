"""Where did my message go: its story, put together when someone asks.

From the log comes the message itself, from memory and trace files what happened to it and to its copies, from the
groups where they are with it right now. Events may be gone (not sampled, too old, lost with the last moment before a
power loss); what the log and the groups know is told in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

from goqueue.broker.dead_letters.moved_messages import mark_of
from goqueue.broker.groups.group_service import GroupService
from goqueue.broker.partitions.read import start_of
from goqueue.broker.shards.dead_letter_topics import dead_letter_topic
from goqueue.broker.shards.host import Host
from goqueue.broker.shards.message_status import Standings, standings
from goqueue.broker.tracing.message_search import MessageSearch
from goqueue.broker.tracing.trace_assembly import assemble, ends_in_group, merge, steps_at
from goqueue.broker.tracing.trace_export import TraceExport
from goqueue.broker.tracing.traced_records import TracedRecords
from goqueue.model.errors import GoQueueError, InvalidRequest, Overloaded, TopicNotFound, TraceNotFound
from goqueue.model.fields import shown
from goqueue.model.message import Message
from goqueue.observe import trace_event as kinds
from goqueue.observe.trace import GroupStanding, Place, Step, Trace
from goqueue.observe.trace_event import TraceEvent, covers, split_place
from goqueue.observe.trace_files import Budget, Wanted
from goqueue.observe.trace_grouping import of_the_latest
from goqueue.wire import internal_headers as system
from goqueue.wire.trace_context import is_trace_id, place_of, topic_mark

MOST_COPIES = 50
"""How many records one message's story may lead through."""
MOST_OF_A_TRACE = 100
"""How many messages of one trace are told of."""
_MOST_WAITING = 20
"""Searches that wait for others. Each may read a lot, and takes time from the event loop."""
_DEAD_LETTER_BYTES = 32 << 20
"""How much is looked through for a dead letter that no event tells of."""
_MOST_HELD = 100_000
"""Events of one message, or of one question about a producer's trace, that are held in memory."""


class MessageTraces:
    def __init__(self, host: Host, groups: GroupService, tracing: TraceExport, search_bytes: int) -> None:
        self.host = host
        self.records = TracedRecords(host)
        self._groups = groups
        self._tracing = tracing
        self._search_bytes = search_bytes
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Only one looks through files and messages at a time, however many ask."""
        if self._waiting >= _MOST_WAITING:
            raise Overloaded(f"{self._waiting} other searches for traces are waiting; try again later", retry_after_s=1)
        self._waiting += 1
        try:
            async with self._one_at_a_time:
                yield
        finally:
            self._waiting -= 1

    async def at(self, topic: str, partition: int, offset: int) -> Trace:
        """The story of the message at a place, or that the record there is a copy of."""
        if self.has_topic(topic):
            self.host.topic(topic).partition(partition)
        async with self.turn():
            budget = Budget(self._search_bytes)
            root = await self._origin(Place(topic, partition, offset), budget)
            trace = await self._story(root, budget)
        if trace is None:
            # That there is no such topic says more than that nothing is known of its messages.
            self.host.topic(topic)
            raise TraceNotFound(
                f"nothing is known of offset {shown(offset)} of partition {partition} of {topic!r}: "
                "there is no such message, or it and its traces are older than what is kept"
            )
        return trace

    async def by_id(self, trace_id: str) -> Trace:
        """The message that a trace id is of; if there are several, the first, with the others' steps among its own."""
        wanted = trace_id.lower()
        if not is_trace_id(wanted):
            raise InvalidRequest(f"{shown(trace_id)} is no trace id; that has 32 hexadecimal digits, not all of them 0")
        async with self.turn():
            derived = self._derived(wanted)
            if derived is not None:
                budget = Budget(self._search_bytes)
                trace = await self._story(await self._origin(derived, budget), budget)
                if trace is not None:
                    # Also if it is of another trace: whoever knew only where a record lies computed the id from that.
                    return trace
            budget = Budget(self._search_bytes)
            found = await self._named_by_producers(wanted, budget)
            if not found and (deleted := await self._derived_of_deleted(wanted, budget)) is not None:
                trace = await self._story(await self._origin(deleted, budget), budget)
                found = [] if trace is None else [trace]
        if not found:
            seen = "" if not budget.is_spent else f"; only the latest {self._search_bytes} bytes were looked through"
            raise TraceNotFound(f"no message belongs to trace {wanted}{seen}")
        return found[0] if len(found) == 1 else merge(found)

    def _derived(self, trace_id: str) -> Place | None:
        """The place that a computed trace id is of."""
        place = place_of(trace_id)
        for topic in self.host.running_topics():
            if topic_mark(topic.name) == place.topic and place.partition < len(topic.partitions):
                return Place(topic.name, place.partition, place.offset)
        return None

    async def _derived_of_deleted(self, trace_id: str, budget: Budget) -> Place | None:
        """The same of a topic that was deleted: only events know of it."""
        place = place_of(trace_id)
        for event in await self._events(Wanted(kind=kinds.DELETED), budget):
            topic, number = split_place(event.place)
            if (topic_mark(topic), number) == (place.topic, place.partition) and covers(event.offsets, place.offset):
                return Place(topic, number, place.offset)
        return None

    def has_topic(self, name: str) -> bool:
        """Whether there is such a topic now."""
        try:
            self.host.topic(name)
        except TopicNotFound:
            return False
        return True

    async def _named_by_producers(self, trace_id: str, budget: Budget) -> list[Trace]:
        """Trace ids that producers chose stand in the messages, so those that were traced are looked through."""
        published = await self._events(Wanted(kind=kinds.PUBLISH), budget)
        search = MessageSearch(self.host, budget)
        found: dict[Place, Trace] = {}
        async for place in search.holding(trace_id.encode(), published):
            origin = await self._origin(place, budget)
            if origin in found:
                continue
            trace = await self._story(origin, budget)
            if trace is not None and trace.trace_id == trace_id:
                found[origin] = trace
                if len(found) == MOST_OF_A_TRACE:
                    break
        return sorted(found.values(), key=lambda each: each.steps[0].at_ns if each.steps else 0)

    # Events

    def newest_first(self, wanted: Wanted, budget: Budget, *, in_files: bool = True) -> Iterator[TraceEvent]:
        """Events in memory and in files. Asked for by the event loop, gone through by a thread."""
        in_memory = self._tracing.tracer.in_memory()
        files = self._tracing.files if in_files else None

        def found() -> Iterator[TraceEvent]:
            for event in reversed(in_memory.events):
                if wanted.fits(event):
                    yield event
            if files is not None:
                for part in files.search(wanted, budget, in_memory.first):
                    yield from part

        made_ns = {topic.name: topic.record.created_at_ns for topic in self.host.running_topics()}
        return of_the_latest(found(), made_ns)

    async def _events(self, wanted: Wanted, budget: Budget) -> list[TraceEvent]:
        newest_first = self.newest_first(wanted, budget)

        def collect() -> list[TraceEvent]:
            found: list[TraceEvent] = []
            for event in newest_first:
                if len(found) == _MOST_HELD:
                    budget.is_spent = True
                    break
                found.append(event)
            return found

        return await asyncio.to_thread(collect)

    # One message

    async def _story(self, root: Place, budget: Budget) -> Trace | None:
        """``None`` if neither the log nor any event knows of it."""
        steps: list[Step] = []
        standing: list[GroupStanding] = []
        message = await self.records.message(root)
        places = [root]
        told: set[Place] = set()
        while places and len(told) < MOST_COPIES:
            now = {place.name: place for place in reversed(places)}
            places = [place for place in places if place not in now.values()]
            events = await self._events(Wanted({name: place.offset for name, place in now.items()}), budget)
            for place in now.values():
                told.add(place)
                here = steps_at(events, place, is_copy=place != root)
                now_there = await self._standings(place)
                here += [
                    step for each in now_there if (step := await self._unnoted_death(each, here, budget)) is not None
                ]
                steps += here
                known = told.union(places)
                places += dict.fromkeys(step.to for step in here if step.to is not None and step.to not in known)
                standing += now_there
        if message is None and not steps:
            return None
        if message is not None and (marker := await self.records.marker(root, message)) is not None:
            return marker
        trace = self.records.with_wait(assemble(root, message, steps, standing, self.records.fate(root)))
        return replace(trace, is_complete=not budget.is_spent)

    async def _standings(self, place: Place) -> list[GroupStanding]:
        found = await self.standings(place.topic, place.partition, [place.offset])
        return found.get(place.offset, [])

    async def _unnoted_death(self, standing: GroupStanding, steps: list[Step], budget: Budget) -> Step | None:
        """A group is done with a message and no event tells how: whether a dead letter is left of it."""
        place = standing.place
        if standing.standing != "settled" or any(
            step.group == standing.group and ends_in_group(step) for step in steps
        ):
            return None
        try:
            message = await self.records.message(place)
            topic = self.host.topic(place.topic)
            name = dead_letter_topic(self.host, topic)
            queue = self._groups.shards.find(standing.group).queue(topic, place.partition)
            if message is None or name is None or queue is None:
                return None
            number = place.partition % len(self.host.topic(name).partitions)
            letters = self.host.topic(name).partition(number)
            first = start_of(letters, None, message.timestamp_ns)
        except GoQueueError:
            return None
        search = MessageSearch(self.host, budget.part(_DEAD_LETTER_BYTES))
        async for offset in search.in_range(
            letters, first, letters.high_watermark, mark_of(queue, place.offset).encode()
        ):
            copy = Place(name, number, offset)
            letter = await self.records.message(copy)
            if letter is not None and self.records.original_of(letter, copy) == place:
                reason = dict(letter.headers).get(system.ERROR, b"").decode(errors="replace")
                return Step(
                    letter.timestamp_ns, kinds.DLQ, place, standing.group, reason=reason, to=copy, from_log=True
                )
        return None

    async def standings(self, topic: str, partition: int, offsets: Iterable[int]) -> Standings:
        """Where groups are with records of a partition, of those that are there."""
        messages = await self.records.messages(topic, partition, offsets)
        outcomes = self.records.outcomes(topic, partition, messages)
        seen = {} if outcomes is None else {at: each for at, each in messages.items() if outcomes.is_seen(at)}
        return await standings(self._groups.shards, topic, partition, seen)

    async def origin_of(self, place: Place, message: Message) -> Place:
        """The message that a record is a copy of, or a copy of a copy; its own place if it is none."""
        before = self.records.original_of(message, place)
        return place if before is None else await self._origin(before, Budget(0))

    async def _origin(self, place: Place, budget: Budget) -> Place:
        for _ in range(MOST_COPIES):
            message = await self.records.message(place)
            if message is None:
                before = await self._remembered_origin(place, budget)
            else:
                before = self.records.original_of(message, place)
            if before is None:
                break
            place = before
        return place

    async def _remembered_origin(self, place: Place, budget: Budget) -> Place | None:
        """Of a record that is gone: what events tell."""
        for event in await self._events(Wanted(copies_in=place.name), budget):
            if (original := event.original_of(place.offset)) is not None:
                return Place(*split_place(event.place), original)
        return None
