"""Offset planning without I/O: start and end of a read, the amount per trigger, and the split into tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from goqueue.model.errors import OffsetOutOfRange, PartitionNotFound, TopicNotFound
from goqueue.spark.source.options import Position

Offsets = dict["TopicPartition", int]
OffsetsJson = dict[str, dict[str, Any]]
"""Offsets as stored in Spark's checkpoint. Spark compares their text, so keys are sorted."""
_ID = "id"
SPLIT_MESSAGES = 1_000_000
"""A longer range is split, so that one huge partition uses every core, unless ``minPartitions`` is given."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class Range(NamedTuple):
    """Offsets from ``low`` up to, but not including, ``high``."""

    tp: TopicPartition
    low: int
    high: int

    @property
    def size(self) -> int:
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class Bounds:
    """The readable offsets of a partition now. ``end`` is the last stable offset, or the log end if uncommitted
    messages are read."""

    earliest: int
    end: int
    size_bytes: int = 0
    """Size of the whole partition."""
    topic_id: str = ""
    """UUID of the topic: another after it was deleted and recreated under the same name."""


def to_json(offsets: Mapping[TopicPartition, int], ids: Mapping[str, str]) -> OffsetsJson:
    """Offsets for the checkpoint, with the ids of their topics."""
    made: OffsetsJson = {}
    for tp in sorted(offsets):
        made.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
        if ids.get(tp.topic):
            made[tp.topic][_ID] = ids[tp.topic]
    return {topic: dict(sorted(partitions.items())) for topic, partitions in made.items()}


def from_json(offsets: OffsetsJson) -> Offsets:
    return {
        TopicPartition(topic, int(number)): offset
        for topic, partitions in offsets.items()
        for number, offset in partitions.items()
        if isinstance(offset, int)
    }


def topic_ids(offsets: OffsetsJson) -> dict[str, str]:
    """The topic ids stored with offsets."""
    return {topic: str(partitions[_ID]) for topic, partitions in offsets.items() if _ID in partitions}


def without_recreated_topics(
    offsets: Offsets, ids: Mapping[str, str], bounds: Mapping[TopicPartition, Bounds], *, fail_on_data_loss: bool
) -> Offsets:
    """The offsets without those of topics that were deleted and recreated: a recreated topic has other messages at the
    same offsets. Raises if there are any and ``fail_on_data_loss`` is set."""
    recreated = {tp.topic for tp, each in bounds.items() if tp.topic in ids and each.topic_id != ids[tp.topic]}
    if recreated and fail_on_data_loss:
        raise OffsetOutOfRange(
            f"topic {min(recreated)!r} was deleted and made anew since the checkpoint was written. Begin anew with "
            "another checkpoint, or set failOnDataLoss=false to read the new one from its beginning"
        )
    return {tp: offset for tp, offset in offsets.items() if tp.topic not in recreated}


def resolve(
    position: Position,
    bounds: Mapping[TopicPartition, Bounds],
    offset_at: Callable[[TopicPartition, int], int],
    *,
    otherwise: str,
    fail_on_data_loss: bool,
) -> Offsets:
    """The offset that a position means in each partition. ``otherwise`` ('earliest' or 'latest') applies to partitions
    that a position given as offsets does not name."""
    if position == "earliest":
        return {tp: each.earliest for tp, each in bounds.items()}
    if position == "latest":
        return {tp: each.end for tp, each in bounds.items()}
    if isinstance(position, int):
        return {tp: min(max(offset_at(tp, position), each.earliest), each.end) for tp, each in bounds.items()}
    assert isinstance(position, dict)
    found = {tp: each.earliest if otherwise == "earliest" else each.end for tp, each in bounds.items()}
    for topic, partitions in position.items():
        for number, offset in partitions.items():
            tp = TopicPartition(topic, number)
            _check_tp_exists(tp, bounds)
            found[tp] = readable_offset(tp, offset, bounds[tp], fail_on_data_loss=fail_on_data_loss, is_given=True)
    return found


def _check_tp_exists(tp: TopicPartition, bounds: Mapping[TopicPartition, Bounds]) -> None:
    if tp in bounds:
        return
    if not any(each.topic == tp.topic for each in bounds):
        raise TopicNotFound(f"an offset is given for topic {tp.topic!r}, which is not among those that are read")
    raise PartitionNotFound(f"an offset is given for {tp}, and there is no such partition")


def readable_offset(
    tp: TopicPartition, offset: int, bounds: Bounds, *, fail_on_data_loss: bool, is_given: bool = False
) -> int:
    """The offset if it is still readable; else raise, or without ``fail_on_data_loss`` return the nearest readable one.

    The advice in the error depends on where the offset comes from: the user (``is_given``) or a checkpoint.
    """
    if bounds.earliest <= offset <= bounds.end:
        return offset
    if not fail_on_data_loss:
        return min(max(offset, bounds.earliest), bounds.end)
    if offset < bounds.earliest:
        instead = "ask for earliest, or a later offset" if is_given else "begin anew with another checkpoint"
        raise OffsetOutOfRange(
            f"messages of {tp} are gone: offset {offset} is asked for and the earliest is {bounds.earliest} "
            f"(retention has removed what lies below). Set failOnDataLoss=false to go on without them, or {instead}"
        )
    if is_given:
        raise OffsetOutOfRange(
            f"{tp} ends at offset {bounds.end} and {offset} is asked for. Ask for latest, or an earlier offset, or "
            "set failOnDataLoss=false to take its end"
        )
    raise OffsetOutOfRange(
        f"{tp} ends at offset {bounds.end} and {offset} is asked for: the topic was made anew, or restored from a "
        "backup. Begin anew with another checkpoint, or set failOnDataLoss=false to go on from its end"
    )


def ranges(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, Bounds],
    *,
    fail_on_data_loss: bool,
) -> list[Range]:
    """The offset range of each partition between two positions. A partition added since ``start`` is read from its
    beginning."""
    found: list[Range] = []
    for tp in sorted(end):
        if tp not in bounds:
            if fail_on_data_loss:
                raise TopicNotFound(
                    f"the checkpoint has {tp}, and it is not among what is read: its topic was deleted, or is not "
                    "asked for any more. Set failOnDataLoss=false to go on without it"
                )
            continue
        # A partition added since is read from offset 0; readable_offset raises if retention has removed that already.
        low = readable_offset(tp, start.get(tp, 0), bounds[tp], fail_on_data_loss=fail_on_data_loss)
        high = min(end[tp], bounds[tp].end)
        if low < high:
            found.append(Range(tp, low, high))
    return found


def trigger_end(
    start: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, Bounds],
    max_messages: int | None,
    max_bytes: int | None,
) -> Offsets:
    """The end offsets of one trigger that begins at ``start``: all that is available, or each partition's proportional
    share of the limits.

    Sizes are estimated by the partition's average. Every partition with available messages gets at least one, so that
    larger partitions never starve it.
    """
    # Removed messages do not count: else a query that continues without them would step through their offsets,
    # one trigger's limit at a time.
    begin = {tp: max(start.get(tp, 0), each.earliest) for tp, each in bounds.items()}
    available = {tp: max(0, each.end - begin[tp]) for tp, each in bounds.items()}
    total = sum(available.values())
    share = 1.0
    if max_messages is not None and total > max_messages:
        share = max_messages / total
    if max_bytes is not None:
        size = sum(available[tp] * _average(each) for tp, each in bounds.items())
        if size > max_bytes:
            share = min(share, max_bytes / size)
    if share >= 1:
        return {tp: begin[tp] + count for tp, count in available.items()}
    return {tp: begin[tp] + min(count, max(1, int(count * share))) for tp, count in available.items()}


def _average(bounds: Bounds) -> float:
    return bounds.size_bytes / max(1, bounds.end - bounds.earliest)


def split(whole: Iterable[Range], min_partitions: int) -> list[Range]:
    """Split ranges into tasks: at least ``min_partitions`` if there are as many messages, each range in equal parts."""
    whole = list(whole)
    total = sum(each.size for each in whole)
    parts: list[Range] = []
    for each in whole:
        if not min_partitions:
            count = -(-each.size // SPLIT_MESSAGES)
        elif len(whole) >= min_partitions:
            count = 1
        else:
            # The range's share, rounded up, so that the total is never below min_partitions.
            count = min(each.size, -(-each.size * min_partitions // total))
        edges = [each.low + each.size * number // count for number in range(count + 1)]
        parts += [Range(each.tp, low, high) for low, high in pairwise(edges)]
    return parts
