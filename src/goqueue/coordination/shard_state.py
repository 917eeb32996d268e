"""The state machine of a shard: the groups and transactions that it coordinates, the queues of its partitions with
views of their groups, and where its partitions begin.

A queue is what one group knows of one partition. It is in the partition's shard, its group in the shard of the group's
name, so a shard has queues of groups that it does not have, and groups without their queues. Beside the queues of a
group it has a view: what it was shown of the group by the coordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from goqueue.coordination.group import AnyGroupEvent, Group, GroupDeleted, GroupMade, GroupState, new_state
from goqueue.coordination.group_view import AnyViewEvent, GroupSeen, GroupView, ViewEvent, first_view
from goqueue.coordination.partition_starts import AnyStartEvent, StartEvent, StartMoved
from goqueue.coordination.transaction_records import CoordinatorEvent, TransactionsEvent
from goqueue.coordination.transactions import Transactions
from goqueue.delivery.events import AnyQueueEvent, QueueClosed, QueueEvent, QueueOpened
from goqueue.delivery.lease_acks import Recent
from goqueue.delivery.queue import Queue, QueueDump
from goqueue.model.errors import CorruptData, InvalidRequest
from goqueue.model.ids import GroupId, PartitionKey, QueueKey, TopicId, queue_key, split_queue_key


class Converted(msgspec.Struct, frozen=True, tag="converted"):
    """The first event of a journal whose state comes from an earlier version's journals, and is in its snapshot alone.

    It is never replayed, unless the snapshot is gone: then the state is not known, instead of being empty.
    """


ShardEvent = AnyGroupEvent | AnyQueueEvent
"""What is decided on a group or on its queues."""
JournaledEvent = ShardEvent | AnyViewEvent | AnyStartEvent | TransactionsEvent | Converted

_TRANSACTIONS = "t:"
_GROUP = "g:"
_QUEUE = "q:"
_VIEW = "v:"
_START = "s:"


def part_of_group(name: str) -> str:
    """The part of a snapshot that has a group."""
    return _GROUP + name


def part_of_queue(key: QueueKey) -> str:
    """The part of a snapshot that has a queue."""
    return _QUEUE + key


def part_of_view(name: str) -> str:
    """The part of a snapshot that has what was shown of a group."""
    return _VIEW + name


def part_of_start(partition: PartitionKey) -> str:
    """The part of a snapshot that says where a partition begins."""
    return _START + partition


def part_of_transactions(part: str) -> str:
    """The part of a snapshot that has a part of the coordinator of transactions."""
    return _TRANSACTIONS + part


def decide_opening(
    group: Group, known: Collection[QueueKey], starts: Mapping[tuple[TopicId, int], int], max_partitions: int
) -> list[QueueOpened]:
    """Queues for those partitions that are new to the group. ``known`` are the queues that it has, in all shards;
    ``starts`` has where it begins in each partition."""
    opened = [
        QueueOpened(key, group.name, topic_id, number, start)
        for (topic_id, number), start in starts.items()
        if (key := queue_key(group.state.identity, topic_id, number)) not in known
    ]
    if opened and len(opened) + len(known) > max_partitions:
        raise InvalidRequest(
            f"group {group.name!r} would have more than {max_partitions} partitions (limits.max_group_partitions)"
        )
    return opened


class ShardState:
    """Events that name a group or a queue which is no more change nothing: they belong to what was deleted."""

    def __init__(self) -> None:
        self.transactions = Transactions()
        """What the coordinator of transactions knows; only read from outside."""
        self.by_name: dict[str, Group] = {}
        """Groups; only read from outside."""
        self.by_key: dict[QueueKey, Queue] = {}
        """Queues; only read from outside."""
        # By identity: while a snapshot was taken a group may have been deleted and another made under its name.
        self.by_group: dict[GroupId, dict[QueueKey, Queue]] = {}
        """Queues of each group that has some here; only read from outside."""
        self.views: dict[str, GroupView] = {}
        """By name, what was shown of groups that have queues here; only read from outside."""
        self.starts: dict[PartitionKey, int] = {}
        """Where partitions begin whose start was moved; only read from outside."""
        self.in_flight: dict[GroupId, dict[str, int]] = {}
        """By group, how many messages of this shard's partitions each member has in flight; only read from outside."""
        self._recent = Recent()

    # Looking

    def names(self) -> list[str]:
        return sorted(self.by_name)

    def queues(self) -> list[Queue]:
        return list(self.by_key.values())

    # Changing

    def apply(self, event: JournaledEvent) -> None:
        if isinstance(event, QueueEvent):
            self._apply_to_queue(event)
        elif isinstance(event, CoordinatorEvent):
            self.transactions.apply(event)
        elif isinstance(event, Converted):
            raise CorruptData("the snapshot with the state of the earlier version is missing or damaged")
        elif isinstance(event, ViewEvent):
            self._apply_to_view(event)
        elif isinstance(event, StartEvent):
            if isinstance(event, StartMoved):
                self.starts[event.partition] = event.start
            else:
                self.starts.pop(event.partition, None)
        elif isinstance(event, GroupMade):
            self._add(new_state(event))
        elif isinstance(event, GroupDeleted):
            self.by_name.pop(event.group, None)
        elif event.group in self.by_name:
            self.by_name[event.group].apply(event)

    def _add(self, state: GroupState) -> None:
        self.by_name[state.name] = Group(state)

    def _apply_to_view(self, event: AnyViewEvent) -> None:
        view = self.views.get(event.group)
        if view is not None and view.identity != event.identity:
            view = None
        if isinstance(event, GroupSeen):
            if view is None:
                self.views[event.group] = first_view(event)
            else:
                view.apply(event)
        elif view is not None:
            del self.views[event.group]

    def _apply_to_queue(self, event: Any) -> None:
        if isinstance(event, QueueOpened):
            self._open(Queue(event, self._in_flight_of(event.q), self._recent))
            return
        queue = self.by_key.get(event.q)
        if queue is None:
            return
        if isinstance(event, QueueClosed):
            self._close(queue)
        else:
            queue.apply(event)

    def _open(self, queue: Queue) -> None:
        self.by_key[queue.key] = queue
        self.by_group.setdefault(queue.group_id, {})[queue.key] = queue

    def _close(self, queue: Queue) -> None:
        queue.close()
        del self.by_key[queue.key]
        left = self.by_group[queue.group_id]
        del left[queue.key]
        if not left:
            del self.by_group[queue.group_id]
            self.in_flight.pop(queue.group_id, None)

    def _in_flight_of(self, key: QueueKey) -> dict[str, int]:
        return self.in_flight.setdefault(split_queue_key(key)[0], {})

    # Snapshots

    def parts(self) -> list[str]:
        return [
            *map(part_of_transactions, self.transactions.parts()),
            *map(part_of_group, self.by_name),
            *map(part_of_queue, self.by_key),
            *map(part_of_view, self.views),
            *map(part_of_start, self.starts),
        ]

    def part_of(self, event: JournaledEvent) -> str:
        if isinstance(event, Converted):
            return ""
        if isinstance(event, ViewEvent):
            return part_of_view(event.group)
        if isinstance(event, CoordinatorEvent):
            return part_of_transactions(self.transactions.part_of(event))
        if isinstance(event, StartEvent):
            return part_of_start(event.partition)
        return part_of_queue(event.q) if isinstance(event, QueueEvent) else part_of_group(event.group)

    def dump(self, part: str) -> bytes | None:
        """``None`` if it is gone meanwhile."""
        if part.startswith(_TRANSACTIONS):
            return self.transactions.dump(part.removeprefix(_TRANSACTIONS))
        if part.startswith(_GROUP):
            group = self.by_name.get(part.removeprefix(_GROUP))
            return None if group is None else msgspec.json.encode(group.state)
        if part.startswith(_VIEW):
            view = self.views.get(part.removeprefix(_VIEW))
            return None if view is None else msgspec.json.encode(view)
        if part.startswith(_START):
            start = self.starts.get(PartitionKey(part.removeprefix(_START)))
            return None if start is None else msgspec.json.encode(start)
        queue = self.by_key.get(QueueKey(part.removeprefix(_QUEUE)))
        return None if queue is None else msgspec.json.encode(queue.dump())

    def restore(self, part: str, payload: bytes) -> None:
        if part.startswith(_TRANSACTIONS):
            self.transactions.restore(part.removeprefix(_TRANSACTIONS), payload)
            return
        if part.startswith(_GROUP):
            self._add(msgspec.json.decode(payload, type=GroupState))
            return
        if part.startswith(_VIEW):
            self.views[part.removeprefix(_VIEW)] = msgspec.json.decode(payload, type=GroupView)
            return
        if part.startswith(_START):
            self.starts[PartitionKey(part.removeprefix(_START))] = msgspec.json.decode(payload, type=int)
            return
        key = QueueKey(part.removeprefix(_QUEUE))
        dump = msgspec.json.decode(payload, type=QueueDump)
        self._open(Queue.load(key, dump, self._in_flight_of(key), self._recent))
