"""The state of a group on a topic, rebuilt from the group's journal in the data folder: done and in-flight offsets."""

from __future__ import annotations

from collections.abc import Iterator
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
from goqueue.spark.pipelines.auditing.journal_files import Snapshot, replay_journal
from goqueue.wire.key_hash import partition_of

GROUPS = "__groups"
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
    """Rebuild the state of a group on a topic; raises ``GroupNotFound`` if the folder has no such group."""
    logs = root / "logs" / GROUPS
    shards = sum(each.name.isdigit() for each in logs.iterdir()) if logs.is_dir() else 0
    if shards:
        shard = partition_of(group.encode(), shards)
        found = replay_journal(
            root / "snapshots" / f"{GROUPS}-{shard}", logs / str(shard), lambda each: _Replay(group, topic_id, each)
        )
        if found.group is not None:
            return GroupState(found.group, found.partitions)
    raise GroupNotFound(f"{root} knows no group {group!r}")


class _Replay:
    """Replay of a shard's journal onto its snapshot, for one group and topic."""

    def __init__(self, group: str, topic_id: str, snapshot: Snapshot) -> None:
        self._name = group
        self._topic_id = topic_id
        self._end = snapshot.end
        self._part_offsets = snapshot.part_offsets()
        self.group: KnownGroup | None = None
        self.partitions: dict[int, PartitionState] = {}
        for part in snapshot.parts:
            if part.name == f"g:{group}":
                self.group = msgspec.json.decode(part.state, type=KnownGroup)
        for part in snapshot.parts:
            if self._is_ours(key := part.name.removeprefix("q:")):
                dump = msgspec.json.decode(part.state, type=QueueDump)
                self.partitions[dump.partition] = PartitionState(Queue.load(QueueKey(key), dump, {}))

    def _is_ours(self, key: str) -> bool:
        return self.group is not None and key.startswith(f"{self.group.identity}/{self._topic_id}/")

    def decision(self, offset: int, value: bytes) -> None:
        for event in msgspec.json.decode(value):
            key = event.get("q")
            part = f"q:{key}" if key is not None else f"g:{event.get('group')}"
            # Same rule as in the broker: a part that is not in the snapshot was deleted before the snapshot's end.
            if offset < self._end and offset < self._part_offsets.get(part, self._end):
                continue
            if key is None:
                self._group_event(event)
            elif self._is_ours(key):
                self._queue_event(msgspec.convert(event, events.AnyQueueEvent))

    def _group_event(self, event: dict[str, Any]) -> None:
        if event.get("group") != self._name or event["type"] not in _GROUP_EVENTS:
            return
        self.partitions.clear()
        self.group = None
        if event["type"] == "group_made":
            self.group = KnownGroup(
                self._name, event["identity"], event["at_ns"], event["overrides"], event.get("fixed", {})
            )

    def _queue_event(self, event: events.QueueEvent) -> None:
        number = int(event.q.rpartition("/")[2])
        if isinstance(event, events.QueueOpened):
            self.partitions[number] = PartitionState(Queue(event, {}), event.start)
        elif isinstance(event, events.QueueClosed):
            self.partitions.pop(number, None)
        elif (found := self.partitions.get(number)) is not None:
            found.apply(event)  # type: ignore[arg-type]
