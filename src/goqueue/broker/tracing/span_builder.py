"""Spans for tracing systems, made of events: one for each message, as many as a second has room for.

A span that brought a record about (its publishing, its becoming due, its being copied) has an id that is computed from
the record's place; so what happens to the record later can refer to it without anyone having kept it.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import count, islice
from typing import NamedTuple

from goqueue.broker.partitions.frame_selection import read_frames_at
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.time_slices import TimeSlice
from goqueue.model.errors import GoQueueError
from goqueue.model.message import Message
from goqueue.model.runs import Runs, offsets_in, size_of, to_runs
from goqueue.observe import trace_event as kinds
from goqueue.observe.spans import Attribute, Span, SpanKind
from goqueue.observe.trace_event import TraceEvent, covers, extent, runs_of, split_place
from goqueue.observe.tracer import weight
from goqueue.wire.decoding import decode_run
from goqueue.wire.trace_context import derived_span_id, trace_id_of, traceparent_in

_READ_BYTES = 4 << 20
_READ_AT_ONCE = 250
"""Messages: about a millisecond's work."""
_OLDEST_START_NS = 60 * 10**9
"""A timestamp further back than this is the producer's own, and not when it began to publish."""
_DELIVERIES_KEPT = 64
_WEIGHT_KEPT = 500_000
"""Of all deliveries together, in about the size of one number."""
_ENDS = {kinds.ACK, kinds.NACK, kinds.REJECT, kinds.EXPIRED, kinds.RELEASED, kinds.COMMITTED, kinds.LOST}
_FAILURES = {kinds.NACK, kinds.REJECT, kinds.EXPIRED, kinds.LOST}
_COPIES = {kinds.FIRED: "delay", kinds.DLQ: "dead-letter", kinds.REDRIVEN: "redrive"}


class _Delivery(NamedTuple):
    first: int
    end: int
    event: TraceEvent


class SpanBuilder:
    """Works on the event loop, in stretches. ``dropped`` counts messages for whose spans a second had no room."""

    def __init__(self, topic: Callable[[str], Topic], per_second: int, now_s: Callable[[], float] = time.monotonic):
        self.dropped = 0
        self._topic = topic
        self._per_second = per_second
        self._now_s = now_s
        self._room = float(per_second)
        self._filled_s = now_s()
        self._deliveries: OrderedDict[tuple[str, str], deque[_Delivery]] = OrderedDict()
        """Of each place and group, the latest deliveries; those that are used come last."""
        self._weight = 0

    async def spans_of(self, events: Iterable[TraceEvent]) -> list[Span]:
        spans: list[Span] = []
        stretch = TimeSlice()
        for event in events:
            if stretch.is_over:
                await stretch.rest()
            if event.event in (kinds.CONSUME, kinds.REDELIVERED):
                self._remember(event)
            elif event.event == kinds.PUBLISH or event.event in _ENDS or event.event in _COPIES:
                spans += [span async for span in self._of_event(event, stretch)]
        return spans

    def _remember(self, event: TraceEvent) -> None:
        queue = (event.place, event.group)
        kept = self._deliveries.setdefault(queue, deque())
        kept.append(_Delivery(*extent(event.offsets), event))
        self._weight += weight(event)
        self._deliveries.move_to_end(queue)
        if len(kept) > _DELIVERIES_KEPT:
            self._weight -= weight(kept.popleft().event)
        while self._weight > _WEIGHT_KEPT and len(self._deliveries) > 1:
            _, gone = self._deliveries.popitem(last=False)
            self._weight -= sum(weight(each.event) for each in gone)

    def _take_room(self, wanted: int) -> int:
        now_s = self._now_s()
        self._room = min(self._per_second, self._room + (now_s - self._filled_s) * self._per_second)
        self._filled_s = now_s
        taken = min(wanted, int(self._room))
        self._room -= taken
        self.dropped += wanted - taken
        return taken

    async def _of_event(self, event: TraceEvent, stretch: TimeSlice) -> AsyncIterator[Span]:
        room = self._take_room(size_of(event.offsets))
        runs = runs_of(event.offsets) if room else []
        copies = _copies(event, runs, room)
        offsets = islice(offsets_in(runs), room)
        while some := list(islice(offsets, _READ_AT_ONCE)):
            messages = await self._read(event.place, some)
            self.dropped += len(some) - len(messages)
            for message in messages:
                for span in self._of_message(event, message, copies.get(message.offset, 0)):
                    yield span
                if stretch.is_over:
                    await stretch.rest()

    async def _read(self, place: str, offsets: list[int]) -> list[Message]:
        """As many as are read at once."""
        try:
            topic, number = split_place(place)
            partition = self._topic(topic).partition(number)
            # Also what readers do not see yet: it is written, and a span tells of that.
            picked = await read_frames_at(partition, to_runs(offsets), _READ_BYTES, partition.log.end_offset)
        except GoQueueError:
            # Deleted, or cleaned up since.
            return []
        return [] if picked.run is None else decode_run(picked.run, verify=False)[0]

    def _of_message(self, event: TraceEvent, message: Message, copy: int) -> Sequence[Span]:
        """``copy`` is where its copy lies, if this is about one."""
        topic, number = split_place(event.place)
        parent = traceparent_in(message.headers)
        if parent is not None and not parent.is_sampled:
            # Its producer decided that nobody wants to see it.
            return ()
        offset = message.offset
        trace_id = trace_id_of(message.headers, topic, number, offset)
        own_id = derived_span_id(trace_id, event.place, offset)
        attributes: dict[str, Attribute] = {
            "messaging.system": "goqueue",
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(number),
            "messaging.goqueue.offset": offset,
            "messaging.message.body.size": len(message.value),
        }
        kind: SpanKind = "internal"
        start_ns, error = event.at, ""
        if event.event == kinds.PUBLISH:
            kind, name, span_id = "producer", f"publish {topic}", own_id
            parent_id = "" if parent is None else parent.span_id
            attributes |= {"messaging.operation.name": "publish", "messaging.operation.type": "send"}
            if 0 <= event.at - message.timestamp_ns < _OLDEST_START_NS:
                start_ns = message.timestamp_ns
        elif event.event in _COPIES:
            verb = _COPIES[event.event]
            name, parent_id = f"{verb} {topic}", own_id
            span_id = derived_span_id(trace_id, event.to, copy)
            attributes |= {
                "messaging.operation.name": verb,
                # The broker sends it on to another place. OpenTelemetry has a handful of types, and none of its own.
                "messaging.operation.type": "send",
                "messaging.goqueue.copy": f"{event.to}/{copy}",
            }
            if event.event == kinds.FIRED:
                start_ns = min(message.timestamp_ns, event.at)
            error = event.reason if event.event == kinds.DLQ else ""
        else:
            kind, name, parent_id = "consumer", f"deliver {topic}", own_id
            delivery = self._delivery(event, offset)
            start_ns = event.at if delivery is None else delivery.at
            span_id = derived_span_id(trace_id, event.place, offset, event.group, event.at)
            attributes |= {
                "messaging.operation.name": "deliver",
                # It lasts until the consumer has done with the message, not until it has it.
                "messaging.operation.type": "process",
                "messaging.consumer.group.name": event.group,
                "messaging.goqueue.outcome": event.event,
            }
            if delivery is not None:
                attributes["messaging.client.id"] = delivery.member
            if event.event in _FAILURES:
                error = event.reason or event.event
        if event.group:
            attributes["messaging.consumer.group.name"] = event.group
        return [Span(name, trace_id, span_id, parent_id, start_ns, event.at, kind, error, attributes)]

    def _delivery(self, event: TraceEvent, offset: int) -> TraceEvent | None:
        """The delivery that ended with this event."""
        queue = (event.place, event.group)
        kept = self._deliveries.get(queue)
        if kept is None:
            return None
        self._deliveries.move_to_end(queue)
        for each in reversed(kept):
            if each.first <= offset < each.end and covers(each.event.offsets, offset):
                return each.event
        return None


def _copies(event: TraceEvent, runs: Runs, most: int) -> dict[int, int]:
    """Where the copies of the first so many messages lie: looked up for each, that would take long for many."""
    if not event.to:
        return {}
    if event.order:
        return dict(zip(event.order, count(event.first_copy), strict=False))
    return dict(zip(islice(offsets_in(runs), most), count(event.first_copy), strict=False))
