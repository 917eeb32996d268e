"""Computes the offset range to read in each partition from ``--from``, ``--since`` and ``--until``."""

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
class OffsetRange:
    """The offsets to read in one partition. ``end`` is exclusive."""

    partition: int
    start: int
    end: int
    missed: int = 0
    """How many of the offsets asked for retention has removed."""
    beyond: int | None = None
    """The start asked for, if it is beyond the end of the partition."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A start or end position; exactly one field is set."""

    name: str = ""
    """``earliest`` or ``latest``."""
    offset: int | None = None
    last: int | None = None
    """This many messages before the end."""
    instant_ns: int | None = None
    offsets: tuple[tuple[int, int], ...] = ()
    """Offsets by partition."""

    def offset_in(self, client: Client, topic: str, number: int, info: PartitionInfo) -> int:
        """The offset in this partition; it may lie outside of what the partition holds."""
        if self.offset is not None:
            return self.offset
        if self.last is not None:
            return max(info.earliest_offset, info.latest_offset - self.last)
        if self.instant_ns is not None:
            from goqueue.client.connection.instants import from_nanoseconds

            return client.find_offset(topic, number, from_nanoseconds(self.instant_ns))
        return dict(self.offsets)[number] if self.offsets else _end(self.name, info)


def parse_from(text: str) -> Bound:
    """Parse ``earliest``, ``latest``, an offset, ``-N``, ``PARTITION:OFFSET,…`` or an instant."""
    if text in ("earliest", "latest"):
        return Bound(name=text)
    if _NUMBER.fullmatch(text):
        return Bound(last=-int(text)) if text.startswith("-") else Bound(offset=int(text))
    if _PLACES.fullmatch(text):
        offsets = [tuple(map(int, each.split(":"))) for each in text.split(",")]
        if len({number for number, _ in offsets}) != len(offsets):
            raise typer.BadParameter("a partition is named twice", param_hint="--from")
        return Bound(offsets=tuple((number, offset) for number, offset in offsets))
    try:
        return Bound(instant_ns=times.instant_ns("--from", text))
    except typer.BadParameter:
        raise typer.BadParameter(
            f"{shown(text)} is none of earliest, latest, an offset such as 1200, -10 (the last ten), places such as "
            "0:1200,1:80, and an instant such as 2026-01-31T12:00:00Z",
            param_hint="--from",
        ) from None


def parse_until(text: str) -> Bound:
    """Parse an offset or an instant, the exclusive end."""
    if _NUMBER.fullmatch(text) and not text.startswith("-"):
        return Bound(offset=int(text))
    return Bound(instant_ns=times.instant_ns("--until", text))


def compute_ranges(
    client: Client, topic: str, start: Bound, until: Bound | None, partitions: Sequence[int]
) -> list[OffsetRange]:
    """The ranges of all selected partitions, by what the topic holds now."""
    known = client.describe_topic(topic).partitions
    wanted = [number for number, _ in start.offsets] or sorted(set(partitions)) or range(len(known))
    for number in wanted:
        if number >= len(known):
            raise PartitionNotFound(
                f"topic {topic} has {len(known)} partition{'s' * (len(known) != 1)}; there is no {number}"
            )
    found = []
    for number in wanted:
        info = known[number]
        requested = start.offset_in(client, topic, number, info)
        first = min(max(requested, info.earliest_offset), info.latest_offset)
        end = (
            info.latest_offset
            if until is None
            else min(until.offset_in(client, topic, number, info), info.latest_offset)
        )
        missed = first - requested if requested and start.instant_ns is None else 0
        beyond = requested if requested > info.latest_offset else None
        found.append(OffsetRange(number, first, max(first, end), max(0, missed), beyond))
    return found


def _end(name: str, info: PartitionInfo) -> int:
    return info.latest_offset if name == "latest" else info.earliest_offset
