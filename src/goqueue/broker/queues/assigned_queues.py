"""The queues that a member may fetch from."""

from __future__ import annotations

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.queues.poll_attempt import Poller, Visit
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.shards.active_group import ActiveGroup
from goqueue.broker.shards.group_runtime import Share
from goqueue.broker.shards.shard_directory import Shards
from goqueue.coordination.shard_state import ShardState
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
        """By what the shards were shown of the group: each goes by that, whatever its coordinator knows."""
        group, member_id = poller.group, poller.member_id
        if group.settings.kind == "shared":
            shares[member_id] = _share(group, self._of_its_topics(group, member_id))
            return shares
        # One pass over the owners gives all members' shares.
        found: dict[str, dict[PartitionKey, Journal[ShardState]]] = {member_id: {}}
        for journal, view in group.views():
            for partition, owner in view.owners.items():
                found.setdefault(owner, {})[partition] = journal
        shares.update((owner, _share(group, own)) for owner, own in found.items())
        return shares

    def _of_its_topics(self, group: ActiveGroup, member_id: str) -> dict[PartitionKey, Journal[ShardState]]:
        """All partitions of a member's topics, in the shards that know the member."""
        seen = [(journal, view.members[member_id]) for journal, view in group.views() if member_id in view.members]
        journals = {journal for journal, _ in seen}
        found: dict[PartitionKey, Journal[ShardState]] = {}
        for name in dict.fromkeys(topic for _, member in seen for topic in member.topics):
            topic = self._topics.by_name.get(name)
            for number, shard in enumerate(() if topic is None else topic.shards):
                journal = self._map.by_number[shard].journal
                if topic is not None and journal in journals:
                    found[partition_key(topic.record.topic_id, number)] = journal
        return found

    def queues(self, poller: Poller) -> list[Queue]:
        """Those in shards that lead."""
        queues = self.share(poller).queues.items()
        return [queue for key, journal in queues if (queue := journal.machine.by_key.get(key)) is not None]

    def may_take(self, visit: Visit) -> bool:
        """Asked after every await: the member may have left, the partition have been taken from it, or the state been
        loaded again."""
        poller, queue = visit.poller, visit.queue
        journal, group = self.share(poller).queues.get(queue.key), poller.group.coordinated
        return (
            journal is not None
            and journal.machine.by_key.get(queue.key) is queue
            and not poller.group.is_over
            and (group is None or poller.member_id in group.state.members)
        )


def _share(group: ActiveGroup, partitions: dict[PartitionKey, Journal[ShardState]]) -> Share:
    queues = {queue_key_of(group.identity, partition): journal for partition, journal in partitions.items()}
    return Share(queues, frozenset(partitions))


def drop_expired(group: ActiveGroup, queue: Queue, partition: Partition) -> None:
    """Remove from the queue what retention has removed from the log."""
    dropped = decide_drop(queue, partition.log.start_offset)
    if dropped:
        group.change(dropped)
        # Members that had some of it in flight have room again.
        group.runtime.wake_all()
