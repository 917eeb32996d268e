"""What moves a group's messages to other topics, for tests that make it stop or fail."""

from __future__ import annotations

from goqueue.broker.broker import Broker
from goqueue.broker.dead_letters.dead_letter_mover import DeadLetterMover
from goqueue.broker.groups.group_service import GroupService
from goqueue.broker.groups.leader_work import LeaderWork
from goqueue.broker.shards.shard import Shard
from goqueue.delivery.queue import Queue


def shard_of(broker: Broker, topic: str = "t", partition: int = 0) -> Shard:
    """The shard of a partition, which has the queues of all groups that read it."""
    return broker.groups.shards.map.of_partition(broker.topic(topic), partition)


def all_queues(broker: Broker) -> list[Queue]:
    """The queues of all groups, the broker's own among them."""
    return [queue for shard in broker.groups.shards.all for queue in shard.state.queues()]


def mover_of(groups: GroupService, topic: str = "t", partition: int = 0) -> DeadLetterMover:
    """That of the shard of a partition."""
    shards = groups.shards
    work = shards.map.of_partition(shards.host.topics.find(topic), partition).work
    assert isinstance(work, LeaderWork)
    return work.mover


def movers(groups: GroupService) -> list[DeadLetterMover]:
    return [shard.work.mover for shard in groups.shards.all if isinstance(shard.work, LeaderWork)]
