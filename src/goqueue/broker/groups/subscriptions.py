"""Which partitions a group reads, and who of its members has them."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.broker.coordinator.group_shards import GroupShards
from goqueue.broker.events.event_recorder import INTERNAL
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.queues.queue_changes import QueueChanges
from goqueue.coordination.group import Group, Member, Rules
from goqueue.coordination.groups import GroupsEvent
from goqueue.delivery.events import QueueClosed, QueueOpened
from goqueue.model.clock import NANOS_PER_MS, NANOS_PER_SECOND
from goqueue.model.errors import GoQueueError, InvalidRequest, TopicNotFound
from goqueue.model.group_settings import GroupSettings
from goqueue.model.ids import PartitionKey, partition_key, queue_key
from goqueue.model.logging import get_logger

log = get_logger(__name__)

_TRY_AGAIN_NS = NANOS_PER_SECOND


class Subscriptions:
    def __init__(self, shards: GroupShards, changes: QueueChanges) -> None:
        self._shards = shards
        self._host = shards.host
        self._clock = shards.clock
        self._changes = changes
        self._behind: set[str] = set()
        """Groups that could not be told of a topic that came or went: their journal took nothing just then."""

    def rules(self, settings: GroupSettings) -> Rules:
        now_ns = self._clock.now_ns()
        return Rules(settings.kind, now_ns, now_ns + settings.handover_timeout_ms * NANOS_PER_MS)

    def topics(self, names: Sequence[str]) -> list[Topic]:
        """Those that exist."""
        found = []
        for name in dict.fromkeys(names):
            try:
                found.append(self._host.topic(name))
            except TopicNotFound:
                continue
        return found

    def partitions(self, members: Sequence[Member]) -> dict[str, list[PartitionKey]]:
        """Of all topics that any member names, by topic."""
        names = sorted({topic for member in members for topic in member.topics})
        return {
            topic.name: [partition_key(topic.record.topic_id, number) for number in range(len(topic.partitions))]
            for topic in self.topics(names)
        }

    def opened(self, group: Group, topics: Sequence[Topic], settings: GroupSettings) -> list[QueueOpened]:
        """Queues for partitions that are new to the group. They begin where the group begins, as of now."""
        events = []
        for topic in topics:
            for number, partition in enumerate(topic.partitions):
                if self._shards.queue(group, topic.record.topic_id, number) is None:
                    start = partition.stable_end if settings.start == "latest" else partition.log.start_offset
                    key = queue_key(group.state.identity, topic.record.topic_id, number)
                    events.append(QueueOpened(key, group.name, topic.record.topic_id, number, start))
        limit = self._host.config.limits.max_group_partitions
        if events and len(events) + len(self._shards.queues_of(group)) > limit:
            raise InvalidRequest(
                f"group {group.name!r} would have more than {limit} partitions (limits.max_group_partitions)"
            )
        return events

    def watch(self, group: Group, topics: Sequence[Topic]) -> None:
        wanted = {topic.record.topic_id for topic in topics}
        for queue in self._shards.queues_of(group):
            if queue.topic_id in wanted:
                self._shards.watch(queue)

    def release_idle(self, group: Group) -> None:
        """Handovers of which the old owner has nothing in hand happen at once."""
        for member_id in {group.state.owners[each] for each in group.state.handovers}:
            self._changes.release(group, member_id)

    # Topics that come and go

    def topic_created(self, topic: Topic) -> None:
        """Members that wait for a topic of this name get it."""
        for journal in self._shards.journals:
            for name in journal.machine.names():
                group = journal.machine.find(name)
                if any(topic.name in member.topics for member in group.state.members.values()):
                    self.keep_up(name)
                    self._shards.runtime(name).notify_change()

    def topic_deleted(self, topic: Topic) -> None:
        """Nothing is left of it, in any group."""
        self._shards.forget_topic(topic)
        for journal in self._shards.journals:
            concerned = {q.group for q in journal.machine.queues() if q.topic_id == topic.record.topic_id}
            for name in sorted(concerned):
                self.keep_up(name)

    def keep_up(self, name: str) -> None:
        """Bring a group in line with the topics that there are, now or as soon as its journal can be written.

        The topic itself has come or gone already: whoever asked for that must not get an error for this.
        """
        try:
            self._rebalance(self._shards.journal(name).machine.find(name))
        except GoQueueError as error:
            log.warning("a group cannot follow its topics for now", group=name, error=str(error))
            self._behind.add(name)
            self._shards.group_times.set(name, self._clock.now_ns() + _TRY_AGAIN_NS)
        else:
            self._behind.discard(name)

    def catch_up(self, name: str) -> None:
        if name in self._behind:
            self.keep_up(name)

    def _rebalance(self, group: Group) -> None:
        events: list[GroupsEvent] = [
            QueueClosed(queue.key) for queue in self._shards.queues_of(group) if self._shards.place(queue) is None
        ]
        if group.name.startswith(INTERNAL):
            self._shards.change(group.name, events)
            return
        settings = self._shards.settings(group)
        members = list(group.state.members.values())
        topics = self.topics([topic for member in members for topic in member.topics])
        events += self.opened(group, topics, settings)
        events += group.decide_rebalance(self.partitions(members), self.rules(settings))
        self._shards.change(group.name, events)
        if settings.kind == "shared" and events:
            # Nobody owns anything, and yet there is something else to take from.
            self._shards.runtime(group.name).notify_change()
        self.watch(group, topics)
