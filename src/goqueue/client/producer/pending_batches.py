"""What travels together, and where it is afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from goqueue.wire.batch import FrameRun, select_frames
from goqueue.wire.proto import goqueue_pb2 as pb

UNKNOWN_OFFSET = -1
"""Of a message that is stored, and of which the broker does not remember where."""


class FirstOne(NamedTuple):
    """Where the message is that was stored under a dedup id."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Stored:
    """Where the messages of a parcel are, and when each will be seen, if any is delayed (0: at once)."""

    offsets: Sequence[int]
    dues: Sequence[int] | None = None
    failures: Mapping[int, BaseException] = field(default_factory=dict)
    """By place: those that are not stored. Their offsets mean nothing."""
    duplicates: Mapping[int, FirstOne] = field(default_factory=dict)
    """By place: those whose dedup id the topic knew. Their offsets mean nothing."""

    def due(self, place: int) -> int | None:
        return (self.dues[place] or None) if self.dues is not None else None

    def place_of(self, place: int, partition: int) -> FirstOne:
        """Where a message is that was sent to this partition."""
        found = self.duplicates.get(place)
        return FirstOne(partition, self.offsets[place]) if found is None else found


@dataclass(slots=True, eq=False)
class Parcel:
    """Frames that are acknowledged together; ``done`` tells where they are. At most a batch, unless it is one frame.

    If all have failed for the same reason, ``done`` raises it; if only some have, it tells which.
    """

    run: FrameRun
    size: int
    deadline: float
    done: asyncio.Future[Stored]
    dedup_ids: frozenset[str] | None = None
    """Of its messages: all of them have one, or none."""


Part = tuple[Sequence[int], Parcel]
"""Some frames of a parcel: which, and on their own."""


def part_of(parcel: Parcel, places: Sequence[int]) -> Parcel:
    """Some frames of a parcel on their own. The bytes are released with the whole."""
    run = select_frames(parcel.run, list(places))
    return Parcel(run, 0, parcel.deadline, asyncio.get_running_loop().create_future(), parcel.dedup_ids)


def put_together(count: int, parts: list[Part], failures: dict[int, BaseException]) -> Stored:
    """What became of a parcel, by what became of its parts and of those that failed before."""
    offsets, dues, failures = [UNKNOWN_OFFSET] * count, [0] * count, dict(failures)
    duplicates: dict[int, FirstOne] = {}
    for places, part in parts:
        error = part.done.exception()
        if error is not None:
            failures.update(dict.fromkeys(places, error))
            continue
        stored = part.done.result()
        for at, place in enumerate(places):
            if at in stored.failures:
                failures[place] = stored.failures[at]
                continue
            offsets[place], dues[place] = stored.offsets[at], stored.due(at) or 0
            if at in stored.duplicates:
                duplicates[place] = stored.duplicates[at]
    return Stored(offsets, dues if any(dues) else None, failures, duplicates)


def shared_out(stored: pb.Stored, counts: Sequence[int]) -> Iterator[Stored]:
    """What an answer about a batch says to each of its parcels, which have so many messages."""
    dues = list(stored.deliver_at_ns)
    offsets: Sequence[int]
    if stored.duplicates:
        known = {each.place: FirstOne(each.partition, each.offset) for each in stored.duplicates}
        offsets, at = [], stored.first_offset
        for place in range(sum(counts)):
            offsets.append(UNKNOWN_OFFSET if place in known else at)
            at += place not in known
    else:
        known = {}
        offsets = range(stored.first_offset, stored.first_offset + sum(counts))
    first = 0
    for count in counts:
        end = first + count
        duplicates = {place - first: known[place] for place in range(first, end) if place in known} if known else {}
        yield Stored(offsets[first:end], dues[first:end] or None, duplicates=duplicates)
        first = end
