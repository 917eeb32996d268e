"""The state machine of ``__groups``: groups, and what each knows of its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from goqueue.coordination.group import AnyGroupEvent, Group, GroupDeleted, GroupMade, GroupState, new_state
from goqueue.delivery.events import AnyQueueEvent, QueueClosed, QueueEvent, QueueOpened
from goqueue.delivery.lease_acks import Recent
from goqueue.delivery.queue import Queue, QueueDump
from goqueue.model.errors import InvalidRequest
from goqueue.model.ids import GroupId, QueueKey, TopicId, queue_key, split_queue_key

GroupsEvent = AnyGroupEvent | AnyQueueEvent

_GROUP = "g:"
_QUEUE = "q:"


class Groups:
    """Events that name a group or a queue which is no more change nothing: they belong to what was deleted."""

    def __init__(self) -> None:
        self.by_name: dict[str, Group] = {}
        """Groups; only read from outside."""
        self.by_key: dict[QueueKey, Queue] = {}
        """Queues of all groups; only read from outside."""
        # By identity: while a snapshot was taken a group may have been deleted and another made under its name.
        self._queues_of: dict[GroupId, dict[QueueKey, Queue]] = {}
        self._in_flight: dict[GroupId, dict[str, int]] = {}
        self._recent = Recent()

    # Looking

    def names(self) -> list[str]:
        return sorted(self.by_name)

    def queues(self) -> list[Queue]:
        return list(self.by_key.values())

    def queues_of(self, group: Group) -> list[Queue]:
        return list(self._queues_of.get(group.state.identity, {}).values())

    # Deciding

    def decide_opening(
        self, group: Group, starts: Mapping[tuple[TopicId, int], int], max_partitions: int
    ) -> list[QueueOpened]:
        """Queues for those partitions that are new to the group; ``starts`` has where it begins in each."""
        opened = [
            QueueOpened(key, group.name, topic_id, number, start)
            for (topic_id, number), start in starts.items()
            if (key := queue_key(group.state.identity, topic_id, number)) not in self.by_key
        ]
        if opened and len(opened) + len(self.queues_of(group)) > max_partitions:
            raise InvalidRequest(
                f"group {group.name!r} would have more than {max_partitions} partitions (limits.max_group_partitions)"
            )
        return opened

    def decide_own_queue(
        self, name: str, new_id: GroupId, topic_id: TopicId, partition: int, now_ns: int
    ) -> list[GroupsEvent]:
        """The queue of one of the broker's own groups, from the beginning of a partition, if it has none there yet.

        The group is created with ``new_id`` when it is first needed.
        """
        group = self.by_name.get(name)
        if group is not None:
            return [*self.decide_opening(group, {(topic_id, partition): 0}, len(self.by_key) + 1)]
        key = queue_key(new_id, topic_id, partition)
        return [GroupMade(name, new_id, {}, now_ns), QueueOpened(key, name, topic_id, partition, 0)]

    # Changing

    def apply(self, event: GroupsEvent) -> None:
        if isinstance(event, QueueEvent):
            self._apply_to_queue(event)
        elif isinstance(event, GroupMade):
            self._add(new_state(event))
        elif isinstance(event, GroupDeleted):
            group = self.by_name.pop(event.group, None)
            if group is not None:
                for key in self._queues_of.pop(group.state.identity, {}):
                    del self.by_key[key]
                self._in_flight.pop(group.state.identity, None)
        elif event.group in self.by_name:
            self.by_name[event.group].apply(event)

    def _add(self, state: GroupState) -> None:
        self.by_name[state.name] = Group(state, self._in_flight.setdefault(state.identity, {}))

    def _apply_to_queue(self, event: Any) -> None:
        if isinstance(event, QueueOpened):
            self._open(Queue(event, self._in_flight_of(event.q), self._recent))
            return
        queue = self.by_key.get(event.q)
        if queue is None:
            return
        if isinstance(event, QueueClosed):
            queue.close()
            del self.by_key[event.q]
            del self._queues_of[split_queue_key(event.q)[0]][event.q]
        else:
            queue.apply(event)

    def _open(self, queue: Queue) -> None:
        self.by_key[queue.key] = queue
        self._queues_of.setdefault(split_queue_key(queue.key)[0], {})[queue.key] = queue

    def _in_flight_of(self, key: QueueKey) -> dict[str, int]:
        return self._in_flight.setdefault(split_queue_key(key)[0], {})

    # Snapshots

    def parts(self) -> list[str]:
        return [_GROUP + name for name in self.by_name] + [_QUEUE + key for key in self.by_key]

    def part_of(self, event: GroupsEvent) -> str:
        return _QUEUE + event.q if isinstance(event, QueueEvent) else _GROUP + event.group

    def dump(self, part: str) -> bytes | None:
        """``None`` if it is gone meanwhile."""
        if part.startswith(_GROUP):
            group = self.by_name.get(part.removeprefix(_GROUP))
            return None if group is None else msgspec.json.encode(group.state)
        queue = self.by_key.get(QueueKey(part.removeprefix(_QUEUE)))
        return None if queue is None else msgspec.json.encode(queue.dump())

    def restore(self, part: str, payload: bytes) -> None:
        if part.startswith(_GROUP):
            self._add(msgspec.json.decode(payload, type=GroupState))
            return
        key = QueueKey(part.removeprefix(_QUEUE))
        dump = msgspec.json.decode(payload, type=QueueDump)
        self._open(Queue.load(key, dump, self._in_flight_of(key), self._recent))
