"""All shards of a broker: which of them a group, a partition or a queue is in, and changes that concern several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.runtime.shard_placement import shard_of_group
from goqueue.broker.shards.host import Host
from goqueue.broker.shards.partition_news import PartitionNews
from goqueue.broker.shards.shard import Shard, place_of
from goqueue.coordination.group_view import GroupForgotten
from goqueue.coordination.shard_state import ShardEvent, ShardState
from goqueue.delivery.events import QueueClosed, QueueEvent
from goqueue.delivery.queue import Queue
from goqueue.model.errors import NotLeader
from goqueue.model.ids import GroupId, QueueKey, split_partition_key, split_queue_key


class ShardMap:
    """``all`` has the shards in the order of their numbers."""

    def __init__(self, host: Host, news: PartitionNews, receipt_key: bytes, shards: Sequence[Shard]) -> None:
        self.host = host
        self.news = news
        self.receipt_key = receipt_key
        self.all = shards
        self.by_number = {shard.number: shard for shard in shards}
        """With ``Topic.shards`` this is where a partition's queues are."""
        self._journals = [shard.journal for shard in shards]
        self.found: dict[QueueKey, Shard] = {}
        """The shards of queues that were looked for, until they are closed."""

    @property
    def leading(self) -> list[Shard]:
        return [shard for shard in self.all if shard.is_leading]

    def of_group(self, name: str) -> Shard:
        """The shard of a group's coordinator, whether it leads or not."""
        return self.by_number[shard_of_group(name)]

    def of_partition(self, topic: Topic, number: int) -> Shard:
        """The shard that has a partition's queues, whether it leads or not."""
        return self.by_number[topic.shards[number]]

    def of_queue(self, key: QueueKey) -> Shard:
        """The shard that a queue is in, or would be."""
        found = self.found.get(key)
        if found is None:
            topic_id, number = split_partition_key(split_queue_key(key)[1])
            topic = self.host.topics.by_id.get(topic_id)
            if topic is None:
                # It was deleted, and its queues may have yet to be closed.
                return next((shard for shard in self.all if key in shard.state.by_key), self.all[0])
            found = self.of_partition(topic, number)
            if key in found.journal.machine.by_key:
                self.found[key] = found
        return found

    def journals_of_queues(self, keys: Iterable[QueueKey]) -> list[Journal[ShardState]]:
        """The journals that some queues are in."""
        return list(dict.fromkeys(self.of_queue(key).journal for key in sorted(keys)))

    # Queues

    def find(self, key: QueueKey) -> Queue | None:
        """A queue in one of the shards that lead."""
        return self.of_queue(key).state.by_key.get(key)

    def led_queue(self, key: QueueKey) -> Queue | None:
        """A queue, or ``None`` if there is none of this key; ``NotLeader`` is raised if that is not known here."""
        shard = self.of_queue(key)
        if not shard.is_leading:
            raise NotLeader(f"this broker does not lead shard {shard.number} at present")
        return shard.state.by_key.get(key)

    def queues_of(self, identity: GroupId) -> list[Queue]:
        """The queues of a group, in all shards that lead."""
        return [queue for each in self.journals_with(identity) for queue in each.machine.by_group[identity].values()]

    def has(self, queue: Queue) -> bool:
        """Whether the queue is there still: it may have been closed, or been loaded anew from its journal."""
        return self.find(queue.key) is queue

    def place(self, queue: Queue) -> tuple[Topic, Partition] | None:
        """Where a queue's messages lie; ``None`` if the topic is gone."""
        return place_of(self.host, queue)

    def check_led(self, topic: Topic, number: int) -> None:
        """Raise if requests about a partition's queues cannot be served here."""
        if not self.of_partition(topic, number).is_leading:
            raise NotLeader(
                f"this broker does not lead the shard of partition {number} of topic {topic.name!r} at present"
            )

    @property
    def are_all_led(self) -> bool:
        return all(shard.is_leading for shard in self.all)

    def check_all_led(self) -> None:
        """Raise if something may be known of a group's partitions in a shard that is not served here."""
        if not self.are_all_led:
            raise NotLeader("this broker does not lead all shards at present")

    # Changing

    def append(
        self,
        events: Sequence[ShardEvent],
        cause: str = "",
        follow: Callable[[Sequence[ShardEvent]], None] = lambda applied: None,
    ) -> None:
        """Append and apply events, each in its own shard; ``follow`` gets what was applied, shard by shard.

        An error may come in between, if there is no room for some of them. So those of groups are the last: a member
        that has left, or has got a partition, finds the queues as they should be, and to try again does no harm.
        """
        by_shard: dict[Shard, list[ShardEvent]] = {}
        last: dict[Shard, list[ShardEvent]] = {}
        for event in events:
            if isinstance(event, QueueEvent):
                by_shard.setdefault(self.of_queue(event.q), []).append(event)
            else:
                last.setdefault(self.of_group(event.group), []).append(event)
        concerned = [*by_shard, *last]
        if len(concerned) > 1 and not all(shard.is_leading for shard in concerned):
            raise NotLeader("this broker does not lead all shards that this concerns at present")
        for shard, own in (*by_shard.items(), *last.items()):
            shard.append(own, cause)
            follow(own)
        for event in events:
            if isinstance(event, QueueClosed):
                self.found.pop(event.q, None)

    def forget_group(self, shard: Shard, name: str, identity: GroupId) -> None:
        """A group is gone for good: close its queues in a shard, and forget what the shard was shown of it."""
        queues = list(shard.state.by_group.get(identity, ()))
        events: list[QueueClosed | GroupForgotten] = [QueueClosed(key) for key in queues]
        view = shard.state.views.get(name)
        if view is not None and view.identity == identity:
            events.append(GroupForgotten(name, identity))
        if events:
            shard.append(events)
        for key in queues:
            self.found.pop(key, None)

    def journals_with(self, identity: GroupId) -> list[Journal[ShardState]]:
        """The journals that have queues of a group."""
        return [journal for journal in self._journals if identity in journal.machine.by_group]
