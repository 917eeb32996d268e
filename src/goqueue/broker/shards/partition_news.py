"""Wakes waiting polls when a partition that they read has news: new messages, or a transaction that ended."""

from __future__ import annotations

import asyncio

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.spread_calls import SpreadCalls, wake
from goqueue.broker.shards.backlog import is_plain
from goqueue.broker.shards.group_runtime import GroupRuntime
from goqueue.delivery.queue import Queue
from goqueue.model.ids import PartitionKey, partition_key


class PartitionNews:
    """By partition, since a partition is read by groups of any shard."""

    def __init__(self) -> None:
        self.takers: dict[str, GroupRuntime] = {}
        """Groups with a waiting poll that has room."""
        self.wakeups: SpreadCalls[asyncio.Future[None]] = SpreadCalls(wake)
        """Polls of all groups that are to look again."""
        self.special: set[PartitionKey] = set()
        """Names of partitions that have, or may have, messages outside of lane normal."""
        self._groups_on: dict[PartitionKey, set[str]] = {}
        self._watched: set[Partition] = set()
        self._rounds: SpreadCalls[tuple[str, PartitionKey]] = SpreadCalls(self._wake_one)

    def watch(self, queue: Queue, partition: Partition) -> None:
        """Wake polls of the queue's group when its partition has news."""
        name = partition_key(queue.topic_id, queue.partition)
        self._groups_on.setdefault(name, set()).add(queue.group)
        if not is_plain(queue, partition):
            # The log may have nothing special any more, and the queue not have come to that yet.
            self.special.add(name)
        if partition not in self._watched:
            self._watched.add(partition)
            partition.watch(lambda: self.publish(name, partition))
            self.publish(name, partition)

    def unwatch(self, queue: Queue) -> None:
        """The queue is not served here any more."""
        self._groups_on.get(partition_key(queue.topic_id, queue.partition), set()).discard(queue.group)

    def groups_on(self, partition: PartitionKey) -> set[str]:
        """Groups that read a partition, the broker's own among them."""
        return self._groups_on.get(partition, set())

    def forget_group(self, name: str) -> None:
        for groups in self._groups_on.values():
            groups.discard(name)

    def forget_topic(self, topic: Topic) -> None:
        for number, partition in enumerate(topic.partitions):
            self._watched.discard(partition)
            name = partition_key(topic.record.topic_id, number)
            self._groups_on.pop(name, None)
            self.special.discard(name)

    def publish(self, name: PartitionKey, partition: Partition) -> None:
        """A partition has news: wake one poll in each group that waits for it."""
        if partition.log.special_end and name not in self.special:
            self.special.add(name)
        # As many steps as the fewer of the two have: groups that only exist cost a publish nothing.
        self._rounds.add([(group, name) for group in sorted(self._groups_on.get(name, set()) & self.takers.keys())])

    def _wake_one(self, group_and_partition: tuple[str, PartitionKey]) -> None:
        group, name = group_and_partition
        taker = self.takers.get(group)
        if taker is not None:
            taker.wake_one(name)
