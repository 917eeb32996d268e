"""Which partitions a group reads, and who of its members has them."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.broker.events.event_recorder import INTERNAL
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.shards.active_group import ActiveGroup
from goqueue.broker.shards.shard_directory import Shards
from goqueue.coordination.group import AnyGroupEvent, Group, HandedOver, Member, Rebalanced
from goqueue.coordination.rebalance import Rules, decide_rebalance
from goqueue.coordination.shard_state import ShardEvent, decide_opening
from goqueue.delivery.events import QueueClosed, QueueOpened
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.errors import GoQueueError
from goqueue.model.group_settings import GroupSettings
from goqueue.model.ids import PartitionKey, TopicId, partition_key
from goqueue.model.logging import get_logger

log = get_logger(__name__)


class Subscriptions:
    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._host = shards.host
        self._clock = shards.clock

    def rules(self, settings: GroupSettings) -> Rules:
        now_ns = self._clock.now_ns()
        return Rules(settings.kind, now_ns, now_ns + settings.handover_timeout_ms * NANOS_PER_MS)

    def topics(self, names: Sequence[str]) -> list[Topic]:
        """Those that exist."""
        by_name = self._host.topics.by_name
        return [topic for name in dict.fromkeys(names) if (topic := by_name.get(name)) is not None]

    def partitions(self, members: Sequence[Member]) -> dict[str, list[PartitionKey]]:
        """Of all topics that any member names, by topic."""
        names = sorted({topic for member in members for topic in member.topics})
        return {
            topic.name: [partition_key(topic.record.topic_id, number) for number in range(len(topic.partitions))]
            for topic in self.topics(names)
        }

    def opened(self, group: Group, topics: Sequence[Topic], settings: GroupSettings) -> list[QueueOpened]:
        """Queues for partitions that are new to the group. They begin where the group begins, as of now."""
        starts: dict[tuple[TopicId, int], int] = {}
        for topic in topics:
            for number, partition in enumerate(topic.partitions):
                # Whether there is one already is not known otherwise.
                self._shards.map.check_led(topic, number)
                is_at_end = settings.start == "latest"
                start = partition.stable_end if is_at_end else partition.log.start_offset
                starts[topic.record.topic_id, number] = start
        known = {queue.key for queue in self._shards.map.queues_of(group.state.identity)}
        return decide_opening(group, known, starts, self._host.config.limits.max_group_partitions)

    def idle_handovers(self, group: ActiveGroup, events: Sequence[AnyGroupEvent]) -> list[HandedOver]:
        """Handovers of which the old owner has nothing in hand happen with the rebalance that asks for them."""
        found = []
        for event in events:
            if isinstance(event, Rebalanced):
                done = [each for each in event.handovers if not group.is_held(event.owners[each], each)]
                found += [HandedOver(group.name, done)] if done else []
        return found

    # Topics that come and go

    def topic_created(self, topic: Topic) -> None:
        """Members that wait for a topic of this name get it."""
        for shard in self._shards.leading:
            for name in shard.state.names():
                group = self._shards.get(name)
                if group is None:
                    continue
                if any(topic.name in member.topics for member in group.group.state.members.values()):
                    self.keep_up(group)
                    group.runtime.notify_change()

    def topic_deleted(self, topic: Topic) -> None:
        """Nothing is left of it, in any group or shard."""
        self._shards.forget_topic(topic)
        queues = [queue for shard in self._shards.leading for queue in shard.state.queues()]
        for name in sorted({queue.group for queue in queues if queue.topic_id == topic.record.topic_id}):
            group = self._shards.get_led(name)
            if group is not None:
                self.keep_up(group)

    def keep_up(self, group: ActiveGroup) -> None:
        """Bring a group in line with the topics that there are, and what shards were shown of it with the group, now or
        as soon as their journals can be written.

        The topic itself has come or gone already: the request for that must not get an error for this.
        """
        try:
            self._rebalance(group)
            group.show()
        except GoQueueError as error:
            log.warning("a group cannot follow its topics for now", group=group.name, error=str(error))
            group.follow_later()
        else:
            group.runtime.is_behind = False

    def _rebalance(self, group: ActiveGroup) -> None:
        events: list[ShardEvent] = [
            QueueClosed(queue.key) for queue in group.queues() if group.shards.place(queue) is None
        ]
        if group.name.startswith(INTERNAL):
            group.change(events)
            return
        members = list(group.group.state.members.values())
        topics = self.topics([topic for member in members for topic in member.topics])
        events += self.opened(group.group, topics, group.settings)
        rebalance = decide_rebalance(group.group, self.partitions(members), self.rules(group.settings))
        group.change([*events, *rebalance, *self.idle_handovers(group, rebalance)])
        if group.settings.kind == "shared" and (events or rebalance):
            # Members own no partitions there, and yet there is something else to take from.
            group.runtime.notify_change()
