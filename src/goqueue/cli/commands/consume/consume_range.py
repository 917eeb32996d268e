"""From where to where a topic is read, as offsets of each of its partitions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from goqueue.cli.terminal import times
from goqueue.model.errors import PartitionNotFound
from goqueue.model.fields import shown

if TYPE_CHECKING:
    from goqueue.client.connection.topics import PartitionInfo
    from goqueue.client.sync import Client

_NUMBER = re.compile(r"-?[0-9]{1,18}")
_PLACES = re.compile(r"[0-9]{1,9}:[0-9]{1,18}(,[0-9]{1,9}:[0-9]{1,18})*")


@dataclass(frozen=True, slots=True)
class Range:
    """Of one partition. ``end`` is the offset behind the last one."""

    partition: int
    start: int
    end: int
    missed: int = 0
    """How many offsets were asked for that retention has removed."""
    beyond: int | None = None
    """The offset that was asked for, if the partition ends before it."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Where to begin or to end; exactly one of these."""

    name: str = ""
    """earliest, latest"""
    offset: int | None = None
    last: int | None = None
    """So many before the end."""
    instant_ns: int | None = None
    places: tuple[tuple[int, int], ...] = ()
    """Offsets by partition."""

    def of(self, client: Client, topic: str, number: int, known: PartitionInfo) -> int:
        """As an offset of this partition; it may lie outside of what is there."""
        if self.offset is not None:
            return self.offset
        if self.last is not None:
            return max(known.earliest_offset, known.latest_offset - self.last)
        if self.instant_ns is not None:
            from goqueue.client.connection.instants import from_nanoseconds

            return client.find_offset(topic, number, from_nanoseconds(self.instant_ns))
        return dict(self.places)[number] if self.places else _end(self.name, known)


def parse_from(text: str) -> Edge:
    """``earliest``, ``latest``, an offset, ``-N``, ``PARTITION:OFFSET,…`` or an instant."""
    if text in ("earliest", "latest"):
        return Edge(name=text)
    if _NUMBER.fullmatch(text):
        return Edge(last=-int(text)) if text.startswith("-") else Edge(offset=int(text))
    if _PLACES.fullmatch(text):
        places = [tuple(map(int, each.split(":"))) for each in text.split(",")]
        if len({number for number, _ in places}) != len(places):
            raise typer.BadParameter("a partition is named twice", param_hint="--from")
        return Edge(places=tuple((number, offset) for number, offset in places))
    try:
        return Edge(instant_ns=times.instant_ns("--from", text))
    except typer.BadParameter:
        raise typer.BadParameter(
            f"{shown(text)} is none of earliest, latest, an offset such as 1200, -10 (the last ten), places such as "
            "0:1200,1:80, and an instant such as 2026-01-31T12:00:00Z",
            param_hint="--from",
        ) from None


def parse_until(text: str) -> Edge:
    """An offset, or an instant: what lies before it is read."""
    if _NUMBER.fullmatch(text) and not text.startswith("-"):
        return Edge(offset=int(text))
    return Edge(instant_ns=times.instant_ns("--until", text))


def ranges(client: Client, topic: str, start: Edge, until: Edge | None, partitions: Sequence[int]) -> list[Range]:
    """By what the topic holds now."""
    known = client.describe_topic(topic).partitions
    wanted = [number for number, _ in start.places] or sorted(set(partitions)) or range(len(known))
    for number in wanted:
        if number >= len(known):
            raise PartitionNotFound(
                f"topic {topic} has {len(known)} partition{'s' * (len(known) != 1)}; there is no {number}"
            )
    found = []
    for number in wanted:
        place = known[number]
        asked = start.of(client, topic, number, place)
        first = min(max(asked, place.earliest_offset), place.latest_offset)
        end = place.latest_offset if until is None else min(until.of(client, topic, number, place), place.latest_offset)
        missed = first - asked if asked and start.instant_ns is None else 0
        beyond = asked if asked > place.latest_offset else None
        found.append(Range(number, first, max(first, end), max(0, missed), beyond))
    return found


def _end(name: str, known: PartitionInfo) -> int:
    return known.latest_offset if name == "latest" else known.earliest_offset
