"""Where a read begins and ends, how much of it one trigger takes, and how it is split. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from goqueue.model.errors import OffsetOutOfRange, PartitionNotFound, TopicNotFound
from goqueue.spark.source.options import Position

Offsets = dict["Place", int]
OffsetsJson = dict[str, dict[str, Any]]
"""As Spark keeps them in a checkpoint: it compares their text, so keys are sorted."""
_ID = "id"
SPLIT_MESSAGES = 1_000_000
"""A range that is longer is split unless fewer, larger parts were asked for: one huge partition uses every core."""


class Place(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class Range(NamedTuple):
    """Offsets from ``low`` to before ``high``."""

    place: Place
    low: int
    high: int

    @property
    def size(self) -> int:
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class Bounds:
    """What can be read of a partition now: no transaction is open below ``end``, unless that was asked for."""

    earliest: int
    end: int
    size_bytes: int = 0
    """Of everything that is there."""
    topic_id: str = ""
    """Another topic of the same name has another."""


def to_json(offsets: Mapping[Place, int], ids: Mapping[str, str]) -> OffsetsJson:
    """Offsets, and which topics they are of."""
    made: OffsetsJson = {}
    for place in sorted(offsets):
        made.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
        if ids.get(place.topic):
            made[place.topic][_ID] = ids[place.topic]
    return {topic: dict(sorted(partitions.items())) for topic, partitions in made.items()}


def from_json(offsets: OffsetsJson) -> Offsets:
    return {
        Place(topic, int(number)): offset
        for topic, partitions in offsets.items()
        for number, offset in partitions.items()
        if isinstance(offset, int)
    }


def ids_in(offsets: OffsetsJson) -> dict[str, str]:
    """Which topics they are of."""
    return {topic: str(partitions[_ID]) for topic, partitions in offsets.items() if _ID in partitions}


def same_topics(
    offsets: Offsets, ids: Mapping[str, str], bounds: Mapping[Place, Bounds], *, fail_on_data_loss: bool
) -> Offsets:
    """The offsets that are of topics as they are now. Of one that was made anew they mean nothing: its messages are
    gone, and there are others under the same numbers."""
    anew = {place.topic for place, each in bounds.items() if place.topic in ids and each.topic_id != ids[place.topic]}
    if anew and fail_on_data_loss:
        raise OffsetOutOfRange(
            f"topic {min(anew)!r} was deleted and made anew since the checkpoint was written. Begin anew with another "
            "checkpoint, or set failOnDataLoss=false to read the new one from its beginning"
        )
    return {place: offset for place, offset in offsets.items() if place.topic not in anew}


def resolve(
    position: Position,
    bounds: Mapping[Place, Bounds],
    offset_at: Callable[[Place, int], int],
    *,
    otherwise: str,
    fail_on_data_loss: bool,
) -> Offsets:
    """The offset that a position means in each partition; ``otherwise`` is the end for those it does not name."""
    if position == "earliest":
        return {place: each.earliest for place, each in bounds.items()}
    if position == "latest":
        return {place: each.end for place, each in bounds.items()}
    if isinstance(position, int):
        return {place: min(max(offset_at(place, position), each.earliest), each.end) for place, each in bounds.items()}
    assert isinstance(position, dict)
    found = {place: each.earliest if otherwise == "earliest" else each.end for place, each in bounds.items()}
    for topic, partitions in position.items():
        for number, offset in partitions.items():
            place = Place(topic, number)
            _check_known(place, bounds)
            found[place] = within(place, offset, bounds[place], fail_on_data_loss=fail_on_data_loss, is_given=True)
    return found


def _check_known(place: Place, bounds: Mapping[Place, Bounds]) -> None:
    if place in bounds:
        return
    if not any(each.topic == place.topic for each in bounds):
        raise TopicNotFound(f"an offset is given for topic {place.topic!r}, which is not among those that are read")
    raise PartitionNotFound(f"an offset is given for {place}, and there is no such partition")


def within(place: Place, offset: int, bounds: Bounds, *, fail_on_data_loss: bool, is_given: bool = False) -> int:
    """An offset to begin at, if it can still be read; else an error, or the nearest that can.

    What would be right depends on where it is from: a position that a user has given, or a checkpoint.
    """
    if bounds.earliest <= offset <= bounds.end:
        return offset
    if not fail_on_data_loss:
        return min(max(offset, bounds.earliest), bounds.end)
    if offset < bounds.earliest:
        instead = "ask for earliest, or a later offset" if is_given else "begin anew with another checkpoint"
        raise OffsetOutOfRange(
            f"messages of {place} are gone: offset {offset} is asked for and the earliest is {bounds.earliest} "
            f"(retention has removed what lies below). Set failOnDataLoss=false to go on without them, or {instead}"
        )
    if is_given:
        raise OffsetOutOfRange(
            f"{place} ends at offset {bounds.end} and {offset} is asked for. Ask for latest, or an earlier offset, or "
            "set failOnDataLoss=false to take its end"
        )
    raise OffsetOutOfRange(
        f"{place} ends at offset {bounds.end} and {offset} is asked for: the topic was made anew, or restored from a "
        "backup. Begin anew with another checkpoint, or set failOnDataLoss=false to go on from its end"
    )


def ranges(
    start: Mapping[Place, int],
    end: Mapping[Place, int],
    bounds: Mapping[Place, Bounds],
    *,
    fail_on_data_loss: bool,
) -> list[Range]:
    """What lies between two positions, partition by partition. One that came since ``start`` is read from its start."""
    found: list[Range] = []
    for place in sorted(end):
        if place not in bounds:
            if fail_on_data_loss:
                raise TopicNotFound(
                    f"the checkpoint has {place}, and it is not among what is read: its topic was deleted, or is not "
                    "asked for any more. Set failOnDataLoss=false to go on without it"
                )
            continue
        # One that came since is read from its very beginning, or its beginning is gone.
        low = within(place, start.get(place, 0), bounds[place], fail_on_data_loss=fail_on_data_loss)
        high = min(end[place], bounds[place].end)
        if low < high:
            found.append(Range(place, low, high))
    return found


def admitted(
    start: Mapping[Place, int],
    bounds: Mapping[Place, Bounds],
    max_messages: int | None,
    max_bytes: int | None,
) -> Offsets:
    """How far one trigger goes from ``start``: everything, or each partition's share of what is allowed.

    Sizes are estimated by the average of the partition. Every partition that has anything gets at least one message,
    so that none is forgotten behind larger ones.
    """
    # What is gone counts for nothing: else a query that goes on without it would step through it, limit by limit.
    begin = {place: max(start.get(place, 0), each.earliest) for place, each in bounds.items()}
    waiting = {place: max(0, each.end - begin[place]) for place, each in bounds.items()}
    total = sum(waiting.values())
    share = 1.0
    if max_messages is not None and total > max_messages:
        share = max_messages / total
    if max_bytes is not None:
        size = sum(waiting[place] * _average(each) for place, each in bounds.items())
        if size > max_bytes:
            share = min(share, max_bytes / size)
    if share >= 1:
        return {place: begin[place] + count for place, count in waiting.items()}
    return {place: begin[place] + min(count, max(1, int(count * share))) for place, count in waiting.items()}


def _average(bounds: Bounds) -> float:
    return bounds.size_bytes / max(1, bounds.end - bounds.earliest)


def split(whole: Iterable[Range], min_partitions: int) -> list[Range]:
    """Ranges as tasks: at least ``min_partitions`` if there are so many messages, each range in equal parts."""
    whole = list(whole)
    total = sum(each.size for each in whole)
    parts: list[Range] = []
    for each in whole:
        if not min_partitions:
            count = -(-each.size // SPLIT_MESSAGES)
        elif len(whole) >= min_partitions:
            count = 1
        else:
            # Its share, rounded up: together never less than what was asked for.
            count = min(each.size, -(-each.size * min_partitions // total))
        edges = [each.low + each.size * number // count for number in range(count + 1)]
        parts += [Range(each.place, low, high) for low, high in pairwise(edges)]
    return parts
