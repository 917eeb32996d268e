"""What a broker answers about traces, as much of it as is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from goqueue.cli.connection.broker_http import NoBroker
from goqueue.model.errors import InvalidRequest
from goqueue.model.units import parse_instant_ns

T = TypeVar("T")
_NOT_UNDERSTOOD = "the answer is not one of a broker that this command knows"


class Place(msgspec.Struct, frozen=True):
    """Where a record lies."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class Attributes(msgspec.Struct, frozen=True):
    """What is not known is empty."""

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
    """Something that happened to the message."""

    timestamp: str
    event_type: str
    attributes: Attributes

    @property
    def at_ns(self) -> int:
        return parse_instant_ns(self.timestamp)

    def is_same(self, other: Event) -> bool:
        """Attempts are counted among the events that are told, which may be others the next time."""
        return msgspec.structs.replace(self.attributes, attempt=0) == msgspec.structs.replace(
            other.attributes, attempt=0
        ) and (
            self.timestamp,
            self.event_type,
        ) == (other.timestamp, other.event_type)


class GroupNow(msgspec.Struct, frozen=True):
    """Where a group is with the message."""

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
    """A transaction that has to end before anybody sees the message; ``own``: the one that it is part of."""

    own: bool
    producer_id: int
    transaction_id: str = ""
    transactional_id: str = ""
    deadline: str = ""


class Story(msgspec.Struct, frozen=True):
    """One message and all that happened to it; ``also`` are other messages of its trace."""

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
    """There was room to look for all of its events."""
    waits_for: WaitsFor | None = None

    @property
    def place(self) -> Place:
        return Place(self.topic, self.partition, self.offset)

    @property
    def duration_ns(self) -> int:
        return self.events[-1].at_ns - self.events[0].at_ns if self.events else 0

    def place_of(self, event: Event) -> Place:
        """Where it happened: to the message itself, or to a copy of it."""
        there = event.attributes
        return Place(there.topic, there.partition, there.offset) if there.topic else self.place

    def groups_now(self) -> list[GroupNow]:
        """Each group once: a copy that was made for it counts for more than the message."""
        latest = {each.group: each for each in self.groups}
        return list(latest.values())

    def instants(self) -> Iterator[str]:
        for event in self.events:
            yield from (event.timestamp, event.attributes.until)
        yield from (each.until for each in self.groups)
        if self.waits_for is not None:
            yield self.waits_for.deadline


class Page(msgspec.Struct, frozen=True):
    """The latest first. ``complete``: everything that is kept was looked at."""

    traces: list[Story]
    complete: bool


def story_in(answer: Any) -> Story:
    return _checked(_converted(answer, Story))


def page_in(answer: Any) -> Page:
    page = _converted(answer, Page)
    for each in page.traces:
        _checked(each)
    return page


def _converted(answer: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(answer, type=kind)
    except msgspec.ValidationError as error:
        raise NoBroker(f"{_NOT_UNDERSTOOD}: {error}") from None


def _checked(story: Story) -> Story:
    """Whoever draws it need not expect a time that is none."""
    try:
        for instant in filter(None, story.instants()):
            parse_instant_ns(instant)
    except InvalidRequest as error:
        raise NoBroker(f"{_NOT_UNDERSTOOD}: {error}") from None
    return story
