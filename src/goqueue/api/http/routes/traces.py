"""Traces: where did my message go."""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from goqueue.api.http.bodies.durations import bounded_ms, instant_ns
from goqueue.api.http.bodies.trace_schemas import (
    EventAttributes,
    GroupOfTrace,
    OpenTransactionOf,
    PlaceOf,
    Status,
    Trace,
    TraceEvent,
    TraceListResponse,
    TracerStats,
)
from goqueue.api.http.routes.broker_routes import BrokerRoutes
from goqueue.api.http.routing.declaration import Documented, get
from goqueue.broker.operations import Caller, Criteria, TracesFound, TransactionsByProducer
from goqueue.broker.operations import traces as told
from goqueue.broker.operations.limits import MAX_SLOWER_MS, MAX_TRACES
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.errors import InvalidRequest
from goqueue.model.units import format_instant_ns

_MAX_NAME = 1_000
_MAX_KEY = 65_535
_TRACE = {
    "trace_id": "a0b1c2d3e40000005f5e1a2b3c4d5e6f",
    "topic": "orders",
    "partition": 0,
    "offset": 17,
    "status": "completed",
    "duration": "1.250s",
    "in_log": True,
    "events": [
        {"timestamp": "2030-01-01T09:00:00.000000000Z", "event_type": "publish", "details": "", "attributes": {}},
        {
            "timestamp": "2030-01-01T09:00:00.250000000Z",
            "event_type": "consume",
            "details": "group billing, member worker-1, attempt 1, until 2030-01-01T09:00:30.250000000Z",
            "attributes": {
                "group": "billing",
                "member": "worker-1",
                "attempt": 1,
                "until": "2030-01-01T09:00:30.250000000Z",
            },
        },
        {
            "timestamp": "2030-01-01T09:00:01.250000000Z",
            "event_type": "ack",
            "details": "group billing, member worker-1, attempt 1",
            "attributes": {"group": "billing", "member": "worker-1", "attempt": 1},
        },
    ],
    "groups": [{"group": "billing", "state": "settled", "topic": "orders", "partition": 0, "offset": 17}],
}
_PAGE = {"traces": [_TRACE], "count": 1, "complete": True}

LimitParameter = Annotated[int, Meta(ge=1, le=MAX_TRACES, description="The most messages to answer with.")]


class TraceRoutes(BrokerRoutes):
    """What happened to messages."""

    tag = "Traces"

    @get("/traces", answer=Documented("The latest first.", _PAGE), summary="What happened lately")
    async def list_traces(self, caller: Caller, limit: LimitParameter = 100) -> TraceListResponse:
        """The messages that something happened to last."""
        found = await self._operations.traces.search(caller, Criteria(limit=limit))
        return await asyncio.to_thread(_page, found)

    @get(
        "/traces/search",
        errors=(404,),
        answer=Documented("The latest first.", _PAGE),
        summary="Find messages by what happened to them",
    )
    async def search_traces(
        self,
        caller: Caller,
        topic: Annotated[str | None, Meta(description="Only messages of this topic.")] = None,
        partition: Annotated[int, Meta(ge=0, description="Only messages of this partition.")] | None = None,
        offset: Annotated[int, Meta(ge=0, description="Only messages at this offset.")] | None = None,
        key: Annotated[str | None, Meta(description="Only messages with this key.")] = None,
        consumer_group: Annotated[str | None, Meta(description="Only messages that this group had to do with.")] = None,
        start: Annotated[str | None, Meta(description="Something happened to it then or later (RFC 3339).")] = None,
        end: Annotated[str | None, Meta(description="Something happened to it before then (RFC 3339).")] = None,
        status: Annotated[Status | None, Meta(description="Only messages that fared so.")] = None,
        slower_than: Annotated[
            str | None,
            Meta(description="It took longer than this, such as 2s, until the first group was done with it."),
        ] = None,
        limit: LimitParameter = 100,
    ) -> TraceListResponse:
        """Messages for which everything holds that is asked for."""
        _bounded("topic", topic, _MAX_NAME)
        _bounded("consumer_group", consumer_group, _MAX_NAME)
        _bounded("key", key, _MAX_KEY)
        criteria = Criteria(
            topic=topic,
            partition=partition,
            offset=offset,
            key=None if key is None else key.encode(),
            group=consumer_group,
            start_ns=None if start is None else instant_ns("start", start),
            end_ns=None if end is None else instant_ns("end", end),
            status=status,
            slower_than_ms=None if slower_than is None else bounded_ms("slower_than", slower_than, MAX_SLOWER_MS),
            limit=limit,
        )
        found = await self._operations.traces.search(caller, criteria)
        return await asyncio.to_thread(_page, found)

    @get("/traces/stats", summary="How messages fare, and what tracing does")
    async def trace_stats(self, caller: Caller) -> TracerStats:
        """How long messages take until a group is done with them, and how many events are kept."""
        stats = await self._operations.traces.stats(caller)
        figures = stats.latency
        return TracerStats(
            traces_total=figures.messages,
            traces_completed=figures.completed,
            traces_error=figures.error,
            avg_latency=_seconds(figures.average_ns or 0),
            p50_latency=_seconds(figures.p50_ns or 0),
            p99_latency=_seconds(figures.p99_ns or 0),
            slowest=_seconds(figures.slowest_ns or 0),
            sampling=stats.sampling,
            events_total=stats.events,
            events_in_memory=stats.events_in_memory,
            file_bytes=stats.file_bytes,
            dropped=stats.dropped,
            exported=stats.exported,
        )

    @get(
        "/traces/{trace_id}",
        errors=(404,),
        answer=Documented("From its publishing on.", _TRACE),
        summary="The story of one message",
    )
    async def get_trace(
        self, caller: Caller, trace_id: Annotated[str, Meta(description="The trace's id: 32 hexadecimal digits.")]
    ) -> Trace:
        """All that is known of a message and of its copies, and where each group is with it now."""
        found = await self._operations.traces.get(caller, trace_id)
        return _trace(found.page.traces[0], found.open_transactions)


def _bounded(field: str, text: str | None, most: int) -> None:
    if text is not None and len(text.encode(errors="replace")) > most:
        raise InvalidRequest(f"{field} has more than {most} bytes; nothing has such a name")


def _page(found: TracesFound) -> TraceListResponse:
    traces = [_trace(each, found.open_transactions) for each in found.page.traces]
    return TraceListResponse(traces, len(traces), found.page.is_complete)


def _trace(found: told.Trace, by_producer: TransactionsByProducer) -> Trace:
    return Trace(
        trace_id=found.trace_id,
        topic=found.place.topic,
        partition=found.place.partition,
        offset=found.place.offset,
        status=found.status,
        duration=_seconds(found.duration_ns),
        in_log=found.in_log,
        events=[_event(step, found.place) for step in found.steps],
        groups=[_group(each) for each in found.groups],
        key=UNSET if found.key is None else found.key.decode(errors="backslashreplace"),
        also=[_place(each) for each in found.also] or UNSET,
        complete=found.is_complete,
        waits_for=UNSET if found.waits_for is None else _waits_for(found.waits_for, by_producer),
    )


def _waits_for(found: told.WaitsFor, by_producer: TransactionsByProducer) -> OpenTransactionOf:
    """A producer has one transaction at a time; of one that could not be ended everywhere no more is known."""
    answer = OpenTransactionOf(own=found.is_own, producer_id=found.producer_id)
    transaction = by_producer.get(found.producer_id)
    if transaction is not None:
        answer.transaction_id, answer.transactional_id = transaction.transaction_id, transaction.name or UNSET
        answer.deadline = format_instant_ns(transaction.deadline_ns)
    return answer


def _event(step: told.Step, root: told.Place) -> TraceEvent:
    known = EventAttributes(
        group=step.group or UNSET,
        member=step.member or UNSET,
        attempt=step.attempt or UNSET,
        reason=step.reason or UNSET,
        until=_instant(step.until_ns),
        to=UNSET if step.to is None else _place(step.to),
        source="log" if step.from_log else UNSET,
    )
    if step.place != root:
        known.topic, known.partition, known.offset = step.place.topic, step.place.partition, step.place.offset
    return TraceEvent(format_instant_ns(step.at_ns), step.event, _in_words(step, known), known)


def _in_words(step: told.Step, known: EventAttributes) -> str:
    """For clients of the earlier server, which show it as it is. The reason comes last: it is anyone's text."""
    said = [
        f"{name} {value}"
        for name in ("group", "member", "attempt", "until")
        if (value := getattr(known, name)) is not UNSET
    ]
    if known.topic is not UNSET:
        said.append(f"at {step.place}")
    if step.to is not None:
        said.append(f"to {step.to}")
    if step.from_log:
        said.append("from the log")
    if step.reason:
        said.append(f"reason: {step.reason}")
    return ", ".join(said)


def _group(standing: told.GroupStanding) -> GroupOfTrace:
    return GroupOfTrace(
        group=standing.group,
        state=standing.standing,
        topic=standing.place.topic,
        partition=standing.place.partition,
        offset=standing.place.offset,
        deliveries=standing.deliveries or UNSET,
        member=standing.member or UNSET,
        until=_instant(standing.until_ns),
        reason=standing.reason or UNSET,
    )


def _place(place: told.Place) -> PlaceOf:
    return PlaceOf(place.topic, place.partition, place.offset)


def _instant(at_ns: int) -> str | UnsetType:
    return format_instant_ns(at_ns) if at_ns else UNSET


def _seconds(duration_ns: int) -> str:
    """To the microsecond below a second, to the millisecond above."""
    if duration_ns < 1_000 * NANOS_PER_MS:
        return f"{duration_ns / NANOS_PER_MS:.3f}ms"
    return f"{duration_ns / (1_000 * NANOS_PER_MS):.3f}s"
