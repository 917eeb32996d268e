"""Pending batches: frames enqueued together, and the positions at which they were stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from goqueue.wire.batch import FrameRun, select_frames
from goqueue.wire.proto import goqueue_pb2 as pb

UNKNOWN_OFFSET = -1
"""Offset of a message that is stored at a position that the broker no longer remembers."""


class OriginalPosition(NamedTuple):
    """Position of the message that was stored first under a dedup id."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Stored:
    """Offsets of the messages of a pending batch, and delivery times if any is delayed (0: at once)."""

    offsets: Sequence[int]
    dues: Sequence[int] | None = None
    failures: Mapping[int, BaseException] = field(default_factory=dict)
    """By index: messages that are not stored. Their offsets are undefined."""
    duplicates: Mapping[int, OriginalPosition] = field(default_factory=dict)
    """By index: messages whose dedup id was known to the topic. Their offsets are undefined."""

    def due(self, index: int) -> int | None:
        return (self.dues[index] or None) if self.dues is not None else None

    def position_of(self, index: int, partition: int) -> OriginalPosition:
        """Position of a message that was sent to this partition."""
        found = self.duplicates.get(index)
        return OriginalPosition(partition, self.offsets[index]) if found is None else found


@dataclass(slots=True, eq=False)
class PendingBatch:
    """Frames with one shared result, ``done``. At most the size of a batch, unless it is a single frame.

    ``done`` raises if all frames failed for the same reason; if only some failed, its result names them.
    """

    run: FrameRun
    size: int
    deadline: float
    done: asyncio.Future[Stored]
    dedup_ids: frozenset[str] | None = None
    """The dedup ids of its messages: all messages have one, or none has."""


Part = tuple[Sequence[int], PendingBatch]
"""Indexes of some frames of a pending batch, and these frames as a batch."""


def sub_batch(entry: PendingBatch, indexes: Sequence[int]) -> PendingBatch:
    """Some frames as a pending batch of their own. Their bytes are released with the original."""
    run = select_frames(entry.run, list(indexes))
    return PendingBatch(run, 0, entry.deadline, asyncio.get_running_loop().create_future(), entry.dedup_ids)


def merge_results(count: int, parts: list[Part], failures: dict[int, BaseException]) -> Stored:
    """Result of a pending batch, from the results of its parts and the failures found before."""
    offsets, dues, failures = [UNKNOWN_OFFSET] * count, [0] * count, dict(failures)
    duplicates: dict[int, OriginalPosition] = {}
    for indexes, part in parts:
        error = part.done.exception()
        if error is not None:
            failures.update(dict.fromkeys(indexes, error))
            continue
        stored = part.done.result()
        for at, index in enumerate(indexes):
            if at in stored.failures:
                failures[index] = stored.failures[at]
                continue
            offsets[index], dues[index] = stored.offsets[at], stored.due(at) or 0
            if at in stored.duplicates:
                duplicates[index] = stored.duplicates[at]
    return Stored(offsets, dues if any(dues) else None, failures, duplicates)


def split_result(stored: pb.Stored, counts: Sequence[int]) -> Iterator[Stored]:
    """Split the broker's answer for a batch into results of its pending batches, by their message counts."""
    dues = list(stored.deliver_at_ns)
    offsets: Sequence[int]
    if stored.duplicates:
        known = {each.place: OriginalPosition(each.partition, each.offset) for each in stored.duplicates}
        offsets, at = [], stored.first_offset
        for index in range(sum(counts)):
            offsets.append(UNKNOWN_OFFSET if index in known else at)
            at += index not in known
    else:
        known = {}
        offsets = range(stored.first_offset, stored.first_offset + sum(counts))
    first = 0
    for count in counts:
        end = first + count
        duplicates = {index - first: known[index] for index in range(first, end) if index in known} if known else {}
        yield Stored(offsets[first:end], dues[first:end] or None, duplicates=duplicates)
        first = end
