"""Where did my message go: its story, put together when someone asks.

From the log comes the message itself, from memory and trace files what happened to it and to its copies, from the
groups where they are with it right now. Events may be gone (not sampled, too old, lost with the last moment before a
power loss); what the log and the groups know is told in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec

from goqueue.broker.dead_letters.moved_messages import mark_of
from goqueue.broker.group_shards.dead_letter_topics import dead_letter_topic
from goqueue.broker.group_shards.host import Host
from goqueue.broker.group_shards.message_status import Standings, standings
from goqueue.broker.groups.group_service import GroupService
from goqueue.broker.partitions.frame_selection import read_frames_at
from goqueue.broker.partitions.read import start_of
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.tracing.message_search import MessageSearch
from goqueue.broker.tracing.trace_export import TraceExport
from goqueue.broker.tracing.transaction_outcomes import Fate, TransactionOutcomes
from goqueue.model.errors import GoQueueError, InvalidRequest, Overloaded, TopicNotFound, TraceNotFound
from goqueue.model.fields import shown
from goqueue.model.ids import TopicId
from goqueue.model.message import Message
from goqueue.model.runs import pairs, to_runs
from goqueue.observe import trace_event as kinds
from goqueue.observe.trace import GroupStanding, Place, Status, Step, Trace, in_order, status_of, step_of
from goqueue.observe.trace_event import TraceEvent, covers, split_place
from goqueue.observe.trace_files import Budget, Wanted
from goqueue.observe.trace_grouping import abridged, of_the_latest, since_copied, since_published
from goqueue.wire import internal_headers as system
from goqueue.wire.decoding import decode_run
from goqueue.wire.frame import Flag
from goqueue.wire.producer_frames import read_marker, stamp_of
from goqueue.wire.trace_context import is_trace_id, place_of, topic_mark, trace_id_of

MOST_COPIES = 50
"""How many records one message's story may lead through."""
MOST_OF_A_TRACE = 100
"""How many messages of one trace are told of."""
_MOST_WAITING = 20
"""Searches that wait for others. Each may read a lot, and takes time from the event loop."""
_READ_BYTES = 1 << 20
_OFFSETS_END = 1 << 62
_DEAD_LETTER_BYTES = 32 << 20
"""How much is looked through for a dead letter that no event tells of."""
_MOST_HELD = 100_000
"""Events of one message, or of one question about a producer's trace, that are held in memory."""
_WORST_FIRST: list[Status] = ["error", "pending", "completed"]


class MessageTraces:
    def __init__(self, host: Host, groups: GroupService, tracing: TraceExport, search_bytes: int) -> None:
        self.host = host
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
        return found[0] if len(found) == 1 else _merged(found)

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
        message = await self.message(root)
        places = [root]
        told: set[Place] = set()
        while places and len(told) < MOST_COPIES:
            now = {place.name: place for place in reversed(places)}
            places = [place for place in places if place not in now.values()]
            events = await self._events(Wanted({name: place.offset for name, place in now.items()}), budget)
            for place in now.values():
                told.add(place)
                here = _met(events, place, is_copy=place != root)
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
        if message is not None and (marker := await self.marker(root, message)) is not None:
            return marker
        trace = self.with_wait(put_together(root, message, steps, standing, self.fate(root)))
        return replace(trace, is_complete=not budget.is_spent)

    def with_wait(self, trace: Trace) -> Trace:
        """A story that is not over, with the transaction that it waits for, if there is one."""
        if trace.status != "pending":
            return trace
        waiting = [each.place for each in trace.groups if each.standing == "waiting"]
        for place in dict.fromkeys([*waiting, *([trace.place] if trace.in_log else [])]):
            fates = self.fates(place.topic, place.partition, [place.offset])
            if fates is not None and (found := fates.waits_for(place.offset)) is not None:
                return replace(trace, waits_for=found)
        return trace

    async def marker(self, place: Place, message: Message) -> Trace | None:
        """What there is to tell of a record that is no message, but tells how a transaction ended."""
        if message.key is not None or message.headers:
            return None
        try:
            partition = self.host.topic(place.topic).partition(place.partition)
            run, _ = await partition.read(place.offset, _READ_BYTES, 1, partition.log.end_offset)
        except GoQueueError:
            return None
        if run is None or not run.columns()["flags"][0] & Flag.CONTROL:
            return None
        stamp = stamp_of(bytes(run.frames))
        marker = None if stamp is None else read_marker(int(run.columns()["flags"][0]), stamp)
        if marker is None:
            return None
        verb = "committed" if marker.is_commit else "aborted"
        reason = f"a transaction of producer {marker.producer_id} was {verb}"
        step = Step(message.timestamp_ns, kinds.MARKER, place, reason=reason, from_log=True)
        trace_id = trace_id_of((), place.topic, place.partition, place.offset)
        return Trace(trace_id, place, "completed", [step])

    async def _standings(self, place: Place) -> list[GroupStanding]:
        found = await self.standings(place.topic, place.partition, [place.offset])
        return found.get(place.offset, [])

    async def _unnoted_death(self, standing: GroupStanding, steps: list[Step], budget: Budget) -> Step | None:
        """A group is done with a message and no event tells how: whether a dead letter is left of it."""
        place = standing.place
        if standing.standing != "settled" or any(step.group == standing.group and _is_end(step) for step in steps):
            return None
        try:
            message = await self.message(place)
            topic = self.host.topic(place.topic)
            name = dead_letter_topic(self.host, topic)
            queue = self._groups.shards.find(standing.group).queue(topic.record.topic_id, place.partition)
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
            letter = await self.message(copy)
            if letter is not None and _copied_from(letter, copy, self.host) == place:
                reason = dict(letter.headers).get(system.ERROR, b"").decode(errors="replace")
                return Step(
                    letter.timestamp_ns, kinds.DLQ, place, standing.group, reason=reason, to=copy, from_log=True
                )
        return None

    async def standings(self, topic: str, partition: int, offsets: Iterable[int]) -> Standings:
        """Where groups are with records of a partition, of those that are there."""
        messages = await self.messages(topic, partition, offsets)
        fates = self.fates(topic, partition, messages)
        seen = {} if fates is None else {offset: each for offset, each in messages.items() if fates.is_seen(offset)}
        return await standings(self._groups.shards, topic, partition, seen)

    def fates(self, topic: str, partition: int, offsets: Collection[int]) -> TransactionOutcomes | None:
        """What became of the transactions that records were published in; ``None`` if there is no such partition."""
        try:
            return TransactionOutcomes(self.host.topic(topic).partition(partition), offsets)
        except GoQueueError:
            return None

    def fate(self, place: Place) -> Fate:
        """The same of one record."""
        found = self.fates(place.topic, place.partition, [place.offset])
        return "" if found is None else found.of(place.offset)

    async def message(self, place: Place) -> Message | None:
        """The record at a place, be it delayed or of a transaction that has not ended; ``None`` if it is not there."""
        return (await self.messages(place.topic, place.partition, [place.offset])).get(place.offset)

    async def messages(self, topic: str, partition: int, offsets: Iterable[int]) -> dict[int, Message]:
        """Records by their offsets, of those that are there, without their values: these may be large, and many."""
        found: dict[int, Message] = {}
        wanted = left = sorted(offset for offset in offsets if offset < _OFFSETS_END)
        while left:
            try:
                there = self.host.topic(topic).partition(partition)
                picked = await read_frames_at(there, to_runs(left), _READ_BYTES)
            except GoQueueError:
                break
            if picked.run is not None:
                messages = (await asyncio.to_thread(decode_run, picked.run))[0]
                found |= {message.offset: msgspec.structs.replace(message, value=b"") for message in messages}
            left = [offset for offset in left if offset >= picked.upto]
        return found | await self._unstable(topic, partition, wanted)

    async def _unstable(self, topic: str, partition: int, offsets: Sequence[int]) -> dict[int, Message]:
        """The same of records that readers wait for: a transaction is open there."""
        found: dict[int, Message] = {}
        try:
            there = self.host.topic(topic).partition(partition)
            low, high, written = there.stable_end, there.high_watermark, there.log.end_offset
            fates = TransactionOutcomes(there, offsets)
            # What a transaction writes need not be durable before it is committed, nor ever if it is aborted.
            wanted = [each for each in offsets if low <= each < high or (each >= high and fates.of(each))]
            for first, end in pairs(to_runs(wanted)):
                while first < end:
                    run, first = await there.read(first, _READ_BYTES, end - first, written)
                    if run is None:
                        break
                    messages = (await asyncio.to_thread(decode_run, run))[0]
                    found |= {each.offset: msgspec.structs.replace(each, value=b"") for each in messages}
        except GoQueueError:
            # It was deleted meanwhile.
            return {}
        return found

    async def origin_of(self, place: Place, message: Message) -> Place:
        """The message that a record is a copy of, or a copy of a copy; its own place if it is none."""
        before = _copied_from(message, place, self.host)
        return place if before is None else await self._origin(before, Budget(0))

    async def _origin(self, place: Place, budget: Budget) -> Place:
        for _ in range(MOST_COPIES):
            message = await self.message(place)
            if message is None:
                before = await self._remembered_origin(place, budget)
            else:
                before = _copied_from(message, place, self.host)
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


def put_together(
    root: Place, message: Message | None, steps: list[Step], standing: list[GroupStanding], fate: Fate = ""
) -> Trace:
    """``steps`` that tell of no publishing are given one, if the log has the message; so is a transaction's end."""
    if message is not None and not any(step.place == root and step.event == kinds.PUBLISH for step in steps):
        reason = kinds.IN_TRANSACTION if fate else ""
        steps = [Step(message.timestamp_ns, kinds.PUBLISH, root, reason=reason, from_log=True), *steps]
    steps = _with_end(root, steps, fate, in_log=message is not None)
    headers = () if message is None else message.headers
    trace_id = trace_id_of(headers, root.topic, root.partition, root.offset)
    ordered = in_order(steps)
    standing = [_as_known(each, ordered) for each in standing]
    key = None if message is None else message.key
    status = status_of(ordered, standing, gone=root if message is None else None)
    return Trace(trace_id, root, status, ordered, standing, key, message is not None)


def _with_end(root: Place, steps: list[Step], fate: Fate, *, in_log: bool) -> list[Step]:
    """How the transaction ended that a message was published in, if no event tells; when that was, nobody knows."""
    if not steps or fate == "open" or any(step.place == root and step.ends_transaction for step in steps):
        return steps
    published = [at for at, step in enumerate(steps) if step.place == root and step.event == kinds.PUBLISH]
    at = published[-1] if published else 0
    if fate == "aborted":
        end = Step(steps[at].at_ns, kinds.ABORTED, root, reason=kinds.NEVER_SEEN, from_log=True)
    elif in_log and kinds.is_in_transaction(steps[at].event, steps[at].reason):
        end = Step(steps[at].at_ns, kinds.COMMITTED, root, from_log=True)
    else:
        return steps
    return [*steps[: at + 1], end, *steps[at + 1 :]]


def _is_end(step: Step) -> bool:
    """Whether a group had nothing more to do with the message; a delivery that expires is followed by another."""
    return step.event in kinds.ENDS and (step.event != kinds.EXPIRED or step.reason == kinds.OVER_AGE)


def _as_known(standing: GroupStanding, steps: list[Step]) -> GroupStanding:
    """To a group everything is settled that it need not see to any more; the steps tell how."""
    if standing.standing != "settled":
        return standing
    # What a stream passed over is committed along with the rest, and no less expired.
    last = [
        step
        for step in steps
        if (step.group, step.place) == (standing.group, standing.place) and step.event != kinds.COMMITTED
    ]
    if last and last[-1].event in (kinds.DLQ, kinds.DISCARDED):
        return replace(standing, standing="dead-lettered", reason=last[-1].reason)
    # If it was a delivery that expired, it came again, and what was made of it then was not noted.
    if last and last[-1].event == kinds.EXPIRED and last[-1].reason == kinds.OVER_AGE:
        return replace(standing, standing="expired", reason=last[-1].reason)
    return standing


def _met(newest_first: list[TraceEvent], place: Place, *, is_copy: bool) -> list[Step]:
    events = tuple(
        each for each in reversed(newest_first) if each.place == place.name and covers(each.offsets, place.offset)
    )
    events = since_copied(events) if is_copy else since_published(events)
    return [step_of(each, place.offset) for each in abridged(events)]


def _copied_from(message: Message, place: Place, host: Host) -> Place | None:
    headers = dict(message.headers)
    fired = headers.get(system.DELAYED_OFFSET, b"")
    if fired.isdigit() and int(fired) < place.offset:
        return Place(place.topic, place.partition, int(fired))
    parts = headers.get(system.COPY_OF, b"").decode(errors="replace").rsplit("/", 3)
    if len(parts) != 4 or not parts[2].isdigit() or not parts[3].isdigit():
        return None
    topic: Topic | None = host.topic_by_id(TopicId(parts[1]))
    return None if topic is None else Place(topic.name, int(parts[2]), int(parts[3]))


def _merged(traces: list[Trace]) -> Trace:
    """Several messages of one trace, told as one."""
    first = traces[0]
    steps = in_order([step for trace in traces for step in trace.steps])
    groups = [each for trace in traces for each in trace.groups]
    worst = min((each.status for each in traces), key=_WORST_FIRST.index)
    is_complete = all(each.is_complete for each in traces)
    also = [each.place for each in traces[1:]]
    return replace(first, status=worst, steps=steps, groups=groups, also=also, is_complete=is_complete)
