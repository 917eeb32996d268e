"""The state of a group on a topic, rebuilt from the group's journal in the data folder: done and in-flight offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from goqueue.delivery import events
from goqueue.delivery.queue import Queue, QueueDump
from goqueue.model.errors import GroupNotFound
from goqueue.model.ids import QueueKey
from goqueue.model.offset_runs import OffsetRuns
from goqueue.model.runs import pairs
from goqueue.observe.trace_event import runs_of
from goqueue.spark.pipelines.auditing.audit_kinds import AFTER_ALL_EVENTS, ANY_LANE, LANES, Kind, evidence_rows
from goqueue.spark.pipelines.auditing.journal_files import Made, Snapshot, replay_journal
from goqueue.wire.key_hash import partition_of

SHARDS = "__shards"
_GROUP_EVENTS = ("group_made", "group_deleted")

Row = tuple[int, int, int, int, int, int, int]
"""A row of evidence: partition, block, kind, lane, seq, first, end."""


class KnownGroup(msgspec.Struct):
    """The fields of a group in a snapshot that an audit needs."""

    name: str
    identity: str
    created_at_ns: int
    overrides: dict[str, Any] = {}
    fixed: dict[str, Any] = {}


@dataclass(slots=True)
class PartitionState:
    """The group's queue of one partition, and the events in the journal since the last snapshot."""

    queue: Queue
    start: int | None = None
    """The offset where the group started, if the journal still has that event."""
    seen: dict[Kind, OffsetRuns] = field(default_factory=dict)

    def apply(self, event: events.AnyQueueEvent) -> None:
        """Apply an event to the queue, and keep the offsets in it as evidence."""
        match event:
            case events.Delivered():
                self._add(Kind.CONSUMED, runs_of(event.runs))
            case events.Redelivered():
                self._add_parts(Kind.CONSUMED, event.parts)
            case events.Acked():
                self._add_parts(Kind.DISCARDED if event.error else Kind.ACKED, event.parts)
            case events.Committed():
                self._add(Kind.COMMITTED, [self.queue.committed, event.offset])
            case events.ResetTo(offset=offset) | events.CutTo(end=offset):
                self.seen = {kind: runs.without(offset, AFTER_ALL_EVENTS) for kind, runs in self.seen.items()}
        self.queue.apply(event)

    def _add_parts(self, kind: Kind, parts: events.Parts) -> None:
        for _, runs in parts:
            self._add(kind, runs_of(runs))

    def _add(self, kind: Kind, runs: list[int]) -> None:
        seen = self.seen.setdefault(kind, OffsetRuns())
        for low, high in pairs(runs):
            seen.add(low, high)

    def rows(self, kind: Kind = Kind.DONE) -> Iterator[tuple[int, int, int, int, int, int]]:
        """The state as evidence; with ``DONE_LATER`` only done offsets, and those moving to the dead letters."""
        queue = self.queue
        done = [(ANY_LANE, 0, queue.committed)]
        for number in range(LANES):
            lane = queue.lanes.get(number)
            if lane is None:
                done.append((number, queue.committed, queue.front))
            else:
                done.append((number, queue.committed, lane.acked.prefix))
                done += [(number, first, end) for first, end in lane.acked.runs()]
        yield from evidence_rows(kind, done)
        yield from evidence_rows(Kind.MOVING, [(ANY_LANE, offset, offset + 1) for offset in queue.moving])
        if kind == Kind.DONE_LATER:
            return
        for each in queue.batches():
            held = Kind.FROZEN if each.is_frozen else Kind.RETRY if each.member is None else Kind.IN_FLIGHT
            yield from evidence_rows(held, [(ANY_LANE, low, high) for low, high in pairs(each.runs)])
        for seen_kind, seen in self.seen.items():
            yield from evidence_rows(seen_kind, [(ANY_LANE, low, high) for low, high in seen.runs()], AFTER_ALL_EVENTS)
        if self.start is not None:
            yield from evidence_rows(Kind.BEFORE, [(ANY_LANE, 0, self.start)])


@dataclass(slots=True)
class GroupState:
    group: KnownGroup
    partitions: dict[int, PartitionState]

    def rows(self, kind: Kind = Kind.DONE) -> list[Row]:
        return [(number, *row) for number, each in sorted(self.partitions.items()) for row in each.rows(kind)]


def group_state(root: Path, group: str, topic_id: str) -> GroupState:
    """Rebuild the state of a group on a topic; raises ``GroupNotFound`` if the folder has no such group.

    The group is in the journal of the shard of its name, its queues in those of the partitions' shards.
    """
    logs = root / "logs" / SHARDS
    numbers = sorted(int(each.name) for each in logs.iterdir() if each.name.isdigit()) if logs.is_dir() else []
    if numbers:
        own = numbers[partition_of(group.encode(), len(numbers))]
        known = _replayed(root, own, lambda snapshot: _GroupReplay(group, snapshot)).group
        if known is not None:
            keys = f"{known.identity}/{topic_id}/"
            partitions: dict[int, PartitionState] = {}
            for number in numbers:
                partitions |= _replayed(root, number, lambda snapshot: _QueueReplay(keys, snapshot)).partitions
            return GroupState(known, partitions)
    raise GroupNotFound(f"{root} knows no group {group!r}")


def _replayed(root: Path, shard: int, begin: Callable[[Snapshot], Made]) -> Made:
    return replay_journal(root / "snapshots" / f"{SHARDS}-{shard}", root / "logs" / SHARDS / str(shard), begin)


class _GroupReplay:
    """Replay of a shard's journal onto its snapshot, for one group whose coordinator the shard has."""

    def __init__(self, group: str, snapshot: Snapshot) -> None:
        self._name = group
        self._is_new = snapshot.is_new
        states = (part.state for part in snapshot.parts if part.name == f"g:{group}")
        self.group = next((msgspec.json.decode(state, type=KnownGroup) for state in states), None)

    def decision(self, offset: int, value: bytes) -> None:
        for event in msgspec.json.decode(value):
            is_ours = event.get("group") == self._name and event["type"] in _GROUP_EVENTS
            if is_ours and self._is_new(f"g:{self._name}", offset):
                self.group = _made(event) if event["type"] == "group_made" else None


def _made(event: dict[str, Any]) -> KnownGroup:
    return KnownGroup(event["group"], event["identity"], event["at_ns"], event["overrides"], event.get("fixed", {}))


class _QueueReplay:
    """The same for the queues of one group and topic, whose keys begin with ``keys``."""

    def __init__(self, keys: str, snapshot: Snapshot) -> None:
        self._keys = keys
        self._is_new = snapshot.is_new
        self.partitions: dict[int, PartitionState] = {}
        for part in snapshot.parts:
            key = part.name.removeprefix("q:")
            if key.startswith(keys):
                dump = msgspec.json.decode(part.state, type=QueueDump)
                self.partitions[dump.partition] = PartitionState(Queue.load(QueueKey(key), dump, {}))

    def decision(self, offset: int, value: bytes) -> None:
        if self._keys.encode() not in value:
            # A journal has events of many groups, and decoding them costs more than looking for a text.
            return
        for event in msgspec.json.decode(value):
            key = event.get("q", "")
            if key.startswith(self._keys) and self._is_new(f"q:{key}", offset):
                self._queue_event(msgspec.convert(event, events.AnyQueueEvent))

    def _queue_event(self, event: events.QueueEvent) -> None:
        number = int(event.q.rpartition("/")[2])
        if isinstance(event, events.QueueOpened):
            self.partitions[number] = PartitionState(Queue(event, {}), event.start)
        elif isinstance(event, events.QueueClosed):
            self.partitions.pop(number, None)
        elif (found := self.partitions.get(number)) is not None:
            found.apply(event)  # type: ignore[arg-type]
