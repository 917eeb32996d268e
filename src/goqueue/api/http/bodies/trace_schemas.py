"""The bodies of responses about traces."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.api.http.bodies.fields import GroupField, OffsetField, PartitionField, TopicField

Status = Literal["completed", "error", "pending"]
MemberField = Annotated[str, Meta(description="The member of the group that it is or was with.")]


class PlaceOf(Struct):
    """Where a record lies."""

    topic: TopicField
    partition: PartitionField
    offset: OffsetField


class EventAttributes(Struct, omit_defaults=True, kw_only=True):
    """What else is known of an event."""

    group: GroupField | UnsetType = UNSET
    member: MemberField | UnsetType = UNSET
    attempt: Annotated[
        int | UnsetType, Meta(description="Which delivery to the group it was, or was the end of, counted from 1.")
    ] = UNSET
    reason: Annotated[str | UnsetType, Meta(description="Why it happened, if anyone said so.")] = UNSET
    until: Annotated[
        str | UnsetType, Meta(description="In flight until then, or to be seen (again) from then on (RFC 3339).")
    ] = UNSET
    to: Annotated[PlaceOf | UnsetType, Meta(description="Where a copy went.")] = UNSET
    topic: Annotated[str | UnsetType, Meta(description="Of the copy that it happened to, if it was one.")] = UNSET
    partition: Annotated[int | UnsetType, Meta(description="Of that copy.")] = UNSET
    offset: Annotated[int | UnsetType, Meta(description="Of that copy.")] = UNSET
    source: Annotated[str | UnsetType, Meta(description="log: no event is known, but the log has the message.")] = UNSET


class TraceEvent(Struct):
    """Something that happened to the message."""

    timestamp: Annotated[str, Meta(description="When it happened (RFC 3339).")]
    event_type: Annotated[str, Meta(description="What happened, such as publish, consume or ack: see docs/traces.md.")]
    details: Annotated[str, Meta(description="What else is known of it, in words; empty if nothing is.")]
    attributes: Annotated[EventAttributes, Meta(description="The same as fields.")]


class GroupOfTrace(Struct, omit_defaults=True, kw_only=True):
    """Where a group is with the message right now."""

    group: GroupField
    state: Annotated[
        str,
        Meta(
            description="waiting, in flight, acked in a transaction, retry, moving (to the dead letters), settled, "
            "dead-lettered or expired."
        ),
    ]
    topic: TopicField
    partition: PartitionField
    offset: OffsetField
    deliveries: Annotated[int | UnsetType, Meta(description="How often the group was given it.")] = UNSET
    member: MemberField | UnsetType = UNSET
    until: Annotated[
        str | UnsetType, Meta(description="When it is no longer in flight, or is tried again (RFC 3339).")
    ] = UNSET
    reason: Annotated[str | UnsetType, Meta(description="Why it was not done the last time.")] = UNSET


class OpenTransactionOf(Struct, omit_defaults=True, kw_only=True):
    """A transaction that has to end before anybody sees the message."""

    own: Annotated[
        bool, Meta(description="The message is part of it; else it began before the message in the same partition.")
    ]
    producer_id: Annotated[int, Meta(description="The producer whose it is.")]
    transaction_id: Annotated[str | UnsetType, Meta(description="Its id, if more is known than whose it is.")] = UNSET
    transactional_id: Annotated[str | UnsetType, Meta(description="The producer's name, if it has one.")] = UNSET
    deadline: Annotated[str | UnsetType, Meta(description="It is aborted then at the latest (RFC 3339).")] = UNSET


class Trace(Struct, omit_defaults=True, kw_only=True):
    """The story of one message, from its publishing on; copies that were made of it are part of it."""

    trace_id: Annotated[str, Meta(description="Of the producer's trace, or computed from the message's place.")]
    topic: TopicField
    partition: PartitionField
    offset: OffsetField
    status: Annotated[
        Status, Meta(description="error: a group gave it up, or it was lost; pending: some group is to settle it yet.")
    ]
    duration: Annotated[str, Meta(description="From the first event to the last, such as 1.250s.")]
    in_log: Annotated[bool, Meta(description="Whether the message itself is still there.")]
    events: Annotated[list[TraceEvent], Meta(description="What happened to it and to its copies, in order.")]
    groups: Annotated[list[GroupOfTrace], Meta(description="Where each group is with it now.")]
    key: Annotated[str | UnsetType, Meta(description="The message's key, if it is known.")] = UNSET
    also: Annotated[list[PlaceOf] | UnsetType, Meta(description="Other messages of the same trace.")] = UNSET
    complete: Annotated[bool, Meta(description="false: there was no room to look for all of its events.")] = True
    waits_for: Annotated[
        OpenTransactionOf | UnsetType, Meta(description="The transaction that nobody sees it before the end of.")
    ] = UNSET


class TraceListResponse(Struct):
    """Messages, and what happened to them."""

    traces: Annotated[list[Trace], Meta(description="The latest first.")]
    count: Annotated[int, Meta(description="How many are told here.")]
    complete: Annotated[bool, Meta(description="false: not everything that is kept was looked at; narrow the search.")]


class TracerStats(Struct, omit_defaults=True):
    """Over the latest messages whose events are in memory, unless it says otherwise."""

    traces_total: Annotated[int, Meta(description="Messages.")]
    traces_completed: Annotated[int, Meta(description="Those of them that are completed.")]
    traces_error: Annotated[int, Meta(description="Those of them that went wrong.")]
    avg_latency: Annotated[
        str,
        Meta(description="From publishing until the first group was done with a message, on average, such as 1.500s."),
    ]
    p50_latency: Annotated[str, Meta(description="Half of the messages took no longer than this.")]
    p99_latency: Annotated[str, Meta(description="99 of 100 messages took no longer than this.")]
    slowest: Annotated[str, Meta(description="No message took longer than this.")]
    sampling: Annotated[float, Meta(description="The share of messages that are traced, 0 to 1.")]
    events_total: Annotated[int, Meta(description="Events that were noted since the broker started.")]
    events_in_memory: Annotated[int, Meta(description="Events that are in memory; at most trace.memory_events.")]
    file_bytes: Annotated[int, Meta(description="The size of the files with events.")]
    dropped: Annotated[
        dict[str, int], Meta(description="By exporter: events (of files) or spans that did not get there.")
    ]
    exported: Annotated[dict[str, int], Meta(description="By exporter: spans that got there.")]
