"""The queues that a member may fetch from."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.queues.poll_attempt import Poller, Visit
from goqueue.broker.shards.active_group import ActiveGroup
from goqueue.broker.shards.group_runtime import Share
from goqueue.broker.shards.shard_directory import Shards
from goqueue.coordination.group import Group
from goqueue.delivery.fetch import decide_drop
from goqueue.delivery.queue import Queue
from goqueue.model.ids import PartitionKey, partition_key, queue_key_of

_NOTHING = Share({}, frozenset())


class AssignedQueues:
    def __init__(self, shards: Shards) -> None:
        self._topics = shards.host.topics
        self._map = shards.map

    def share(self, poller: Poller) -> Share:
        """The queues and partitions of a member, kept until the next rebalance."""
        shares, member_id = poller.group.runtime.shares, poller.member_id
        found = shares.get(member_id)
        return found if found is not None else self._work_out(poller, shares).get(member_id, _NOTHING)

    def _work_out(self, poller: Poller, shares: dict[str, Share]) -> dict[str, Share]:
        group = poller.group.group
        if poller.group.settings.kind == "shared":
            shares[poller.member_id] = self._share(group, self._partitions(group.member(poller.member_id).topics))
        else:
            # One pass over the owners gives all members' shares.
            shares.update((each, self._share(group, names)) for each, names in group.owned().items())
        return shares

    def _share(self, group: Group, partitions: list[PartitionKey]) -> Share:
        keys = (queue_key_of(group.state.identity, partition) for partition in partitions)
        return Share({key: self._map.of_queue(key).journal for key in keys}, frozenset(partitions))

    def queues(self, poller: Poller) -> list[Queue]:
        """Those in shards that lead."""
        queues = self.share(poller).queues.items()
        return [queue for key, journal in queues if (queue := journal.machine.by_key.get(key)) is not None]

    def _partitions(self, topics: Sequence[str]) -> list[PartitionKey]:
        found: list[PartitionKey] = []
        for name in topics:
            topic = self._topics.by_name.get(name)
            if topic is not None:
                found += (partition_key(topic.record.topic_id, number) for number in range(len(topic.partitions)))
        return found

    def may_take(self, visit: Visit) -> bool:
        """Asked after every await: the member may have left, the partition have been taken from it, or the state been
        loaded again."""
        poller, queue = visit.poller, visit.queue
        journal = self.share(poller).queues.get(queue.key)
        return (
            journal is not None
            and journal.machine.by_key.get(queue.key) is queue
            and not poller.group.is_over
            and poller.member_id in poller.group.group.state.members
        )


def drop_expired(group: ActiveGroup, queue: Queue, partition: Partition) -> None:
    """Remove from the queue what retention has removed from the log."""
    dropped = decide_drop(queue, partition.log.start_offset)
    if dropped:
        group.change(dropped)
        # Members that had some of it in flight have room again.
        group.runtime.wake_all()
