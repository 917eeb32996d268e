"""Types of the broker's answers about traces, as far as they are displayed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from goqueue.cli.connection.broker_http import NOT_UNDERSTOOD, NoBroker, convert
from goqueue.model.errors import InvalidRequest
from goqueue.model.units import parse_instant_ns


class Place(msgspec.Struct, frozen=True):
    """The position of a record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class Attributes(msgspec.Struct, frozen=True):
    """Attributes of an event; unknown ones are empty."""

    group: str = ""
    member: str = ""
    attempt: int = 0
    reason: str = ""
    until: str = ""
    to: Place | None = None
    topic: str = ""
    partition: int = 0
    offset: int = 0
    source: str = ""


class Event(msgspec.Struct, frozen=True):
    """An event of a message's history."""

    timestamp: str
    event_type: str
    attributes: Attributes

    @property
    def at_ns(self) -> int:
        return parse_instant_ns(self.timestamp)

    def is_same(self, other: Event) -> bool:
        """Whether it is the same event. ``attempt`` is ignored: it is counted over the events returned, which vary per
        answer."""
        attributes = msgspec.structs.replace(other.attributes, attempt=self.attributes.attempt)
        return self == msgspec.structs.replace(other, attributes=attributes)


class GroupNow(msgspec.Struct, frozen=True):
    """A group's state for the message."""

    group: str
    state: str
    topic: str
    partition: int
    offset: int
    deliveries: int = 0
    member: str = ""
    until: str = ""
    reason: str = ""


class WaitsFor(msgspec.Struct, frozen=True):
    """An open transaction that keeps the message from being visible; ``own`` if the message is part of it."""

    own: bool
    producer_id: int
    transaction_id: str = ""
    transactional_id: str = ""
    deadline: str = ""


class Story(msgspec.Struct, frozen=True):
    """One message with its events; ``also`` are other messages of the same trace."""

    trace_id: str
    topic: str
    partition: int
    offset: int
    status: str
    in_log: bool
    events: list[Event]
    groups: list[GroupNow] = []
    key: str | None = None
    also: list[Place] = []
    complete: bool = True
    """False if the search ended before all of its events were examined."""
    waits_for: WaitsFor | None = None

    @property
    def place(self) -> Place:
        return Place(self.topic, self.partition, self.offset)

    @property
    def duration_ns(self) -> int:
        return self.events[-1].at_ns - self.events[0].at_ns if self.events else 0

    def position_of(self, event: Event) -> Place:
        """The position where the event happened: the message's own, or that of a copy."""
        there = event.attributes
        return Place(there.topic, there.partition, there.offset) if there.topic else self.place

    def groups_now(self) -> list[GroupNow]:
        """The state of each group, once; a copy made for a group takes precedence over the message."""
        latest = {each.group: each for each in self.groups}
        return list(latest.values())

    def instants(self) -> Iterator[str]:
        for event in self.events:
            yield from (event.timestamp, event.attributes.until)
        yield from (each.until for each in self.groups)
        if self.waits_for is not None:
            yield self.waits_for.deadline


class Page(msgspec.Struct, frozen=True):
    """Messages, the latest first. ``complete``: all stored events were examined."""

    traces: list[Story]
    complete: bool


def parse_story(answer: Any) -> Story:
    return _check_instants(convert(answer, Story))


def parse_page(answer: Any) -> Page:
    page = convert(answer, Page)
    for each in page.traces:
        _check_instants(each)
    return page


def _check_instants(story: Story) -> Story:
    """Validate all instants here, so that drawing need not."""
    try:
        for instant in filter(None, story.instants()):
            parse_instant_ns(instant)
    except InvalidRequest as error:
        raise NoBroker(f"{NOT_UNDERSTOOD}: {error}") from None
    return story
