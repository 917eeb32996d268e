"""The bodies of responses about traces."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

Status = Literal["completed", "error", "pending"]


class PlaceOf(Struct):
    """Where a record lies."""

    topic: str
    partition: int
    offset: int


class EventDetails(Struct, omit_defaults=True, kw_only=True):
    """What else is known of an event. ``topic``, ``partition`` and ``offset`` are told if it happened to a copy.

    ``to``: where a copy went. ``until``: in flight until then, or to be seen (again) from then on. ``source``: ``log``
    if no event is known, but the log has the message.
    """

    group: str | UnsetType = UNSET
    member: str | UnsetType = UNSET
    attempt: int | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    until: str | UnsetType = UNSET
    to: PlaceOf | UnsetType = UNSET
    topic: str | UnsetType = UNSET
    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    source: str | UnsetType = UNSET


class TraceEvent(Struct):
    """Something that happened to the message."""

    timestamp: str
    event_type: str
    details: EventDetails


class GroupOfTrace(Struct, omit_defaults=True, kw_only=True):
    """Where a group is with the message right now."""

    group: str
    state: str
    topic: str
    partition: int
    offset: int
    deliveries: int | UnsetType = UNSET
    member: str | UnsetType = UNSET
    until: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class OpenTransactionOf(Struct, omit_defaults=True, kw_only=True):
    """A transaction that has to end before anybody sees the message.

    ``own``: the message is part of it; else it is one that began before the message in the same partition. It is
    aborted at its ``deadline`` at the latest.
    """

    own: bool
    producer_id: int
    transaction_id: str | UnsetType = UNSET
    transactional_id: str | UnsetType = UNSET
    deadline: str | UnsetType = UNSET


class Trace(Struct, omit_defaults=True, kw_only=True):
    """The story of one message, from its publishing on; copies that were made of it are part of it.

    ``duration``: from the first event to the last. ``in_log``: whether the message itself is still there.
    ``also``: other messages of the same trace. ``complete``: false if there was no room to look for all of its events.
    ``waits_for``: the transaction that nobody sees it before the end of, if there is one.
    """

    trace_id: str
    topic: str
    partition: int
    offset: int
    status: Status
    duration: str
    in_log: bool
    events: list[TraceEvent]
    groups: list[GroupOfTrace]
    key: str | UnsetType = UNSET
    also: list[PlaceOf] | UnsetType = UNSET
    complete: bool = True
    waits_for: OpenTransactionOf | UnsetType = UNSET


class TraceListResponse(Struct):
    """The latest first. ``complete``: whether everything that is kept was looked at; if not, narrow the search."""

    traces: list[Trace]
    count: int
    complete: bool


class TracerStats(Struct, omit_defaults=True):
    """Counted over the latest messages whose events are in memory; ``events_total`` since the broker started.

    Latency is from publishing until the first group was done with a message. ``dropped``: by where they were to go.
    """

    traces_total: int
    traces_completed: int
    traces_error: int
    avg_latency: str
    p50_latency: str
    p99_latency: str
    slowest: str
    sampling: float
    events_total: int
    events_in_memory: int
    file_bytes: int
    dropped: dict[str, int]
    exported: dict[str, int]
