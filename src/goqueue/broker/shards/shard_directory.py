"""Finds groups by name, in the shards that this broker leads, and lets go of shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from goqueue.broker.events.event_recorder import INTERNAL
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.runtime.named_timers import NamedTimers
from goqueue.broker.runtime.timer_service import TimerService
from goqueue.broker.shards.active_group import ActiveGroup
from goqueue.broker.shards.group_runtime import GroupRuntime
from goqueue.broker.shards.host import Host
from goqueue.broker.shards.partition_news import PartitionNews
from goqueue.broker.shards.shard import Shard, Times
from goqueue.broker.shards.shard_map import ShardMap
from goqueue.coordination.shard_state import ShardEvent, ShardState
from goqueue.delivery.events import QueueClosed
from goqueue.delivery.queue import Queue
from goqueue.model.errors import GoQueueError, GroupNotFound, NotLeader
from goqueue.model.fields import shown
from goqueue.model.ids import QueueKey, TopicId, partition_key
from goqueue.model.logging import get_logger
from goqueue.model.names import check_group_name

log = get_logger(__name__)


class Shards:
    """The groups of this broker. ``map`` finds queues and partitions."""

    def __init__(
        self, host: Host, journals: Mapping[int, Journal[ShardState]], receipt_key: bytes, timers: TimerService
    ) -> None:
        self.host = host
        self.clock = host.clock
        self.notes = host.notes
        self.news = PartitionNews()
        # Of what is due at the same time, queues come first: a visibility timeout is noted as what it is, also if the
        # member's session expires with it.
        times = Times(NamedTimers(timers, self._queues_due), NamedTimers(timers, self._groups_due))
        shards = [Shard(number, journal, host, times, self.news) for number, journal in journals.items()]
        self.map = ShardMap(host, self.news, receipt_key, shards)
        self.is_stopping = False
        self._active: dict[str, ActiveGroup] = {}

    @property
    def all(self) -> Sequence[Shard]:
        return self.map.all

    @property
    def leading(self) -> list[Shard]:
        return self.map.leading

    def _queues_due(self, keys: list[QueueKey]) -> None:
        for key in keys:
            self.map.of_queue(key).queue_due(key)

    def _groups_due(self, names: list[str]) -> None:
        for name in names:
            self.map.of_group(name).group_due(name)

    # Finding

    def of(self, name: str) -> Shard:
        """The shard of a group's coordinator, whether there is such a group or not."""
        shard = self.map.of_group(name)
        if not shard.is_leading:
            raise NotLeader(f"this broker does not lead the shard of group {shown(name)} at present")
        return shard

    def get(self, name: str) -> ActiveGroup | None:
        """Any group, the broker's own included."""
        return self._get(self.of(name), name)

    def get_led(self, name: str) -> ActiveGroup | None:
        """The same, but ``None`` if its shard is not led here."""
        shard = self.map.of_group(name)
        return self._get(shard, name) if shard.is_leading else None

    def _get(self, shard: Shard, name: str) -> ActiveGroup | None:
        group = shard.state.by_name.get(name)
        active = self._active.get(name)
        if group is None:
            return None
        if active is None or active.identity != group.state.identity:
            runtime = GroupRuntime(name, self.news.takers, self.news.wakeups)
            active = self._active[name] = ActiveGroup(self.map, shard, group, runtime)
        elif active.group is not group:
            active.use(group)
        return active

    def find(self, name: str) -> ActiveGroup:
        """A user's group, not one of the broker's own."""
        found = self._active.get(name)
        if (
            found is None
            or not found.shard.is_leading
            or found.shard.journal.machine.by_name.get(name) is not found.group
        ):
            found = self._get(self.of(name), name)
        if found is None or name.startswith(INTERNAL):
            check_group_name(name)
            raise GroupNotFound(f"group {shown(name)} does not exist")
        return found

    def group_of(self, queue: Queue) -> ActiveGroup | None:
        """The group that a queue is of; ``None`` if it is gone, or its coordinator is not led here."""
        found = self.get_led(queue.group)
        return found if found is not None and found.identity == queue.group_id else None

    def names(self) -> list[str]:
        """Users' groups, not the broker's own."""
        found = [name for shard in self.leading for name in shard.state.names()]
        return sorted(name for name in found if not name.startswith(INTERNAL))

    def count(self) -> int:
        return sum(len(shard.state.by_name) for shard in self.all)

    def groups_on(self, topic_id: TopicId, partition: int) -> set[str]:
        """The groups that read a partition, the broker's own not among them."""
        return {
            name for name in self.news.groups_on(partition_key(topic_id, partition)) if not name.startswith(INTERNAL)
        }

    # Changing

    def change(self, name: str, events: Sequence[ShardEvent], cause: str = "") -> None:
        """``ActiveGroup.change`` of a group that may have yet to be made by these very events, or be gone."""

        def follow(applied: Sequence[ShardEvent]) -> None:
            active = self.get_led(name)
            if active is not None:
                active.follow(applied)

        if events:
            self.map.append(events, cause, follow)

    def close_orphans(self) -> None:
        """Close queues of groups that are gone. A crash may have come between the deletion of a group and the closing
        of its queues, or have taken a group whose queues were open already; nobody was told of that group.

        What is known of groups must be durable: closing the queues first could leave a group that has forgotten what it
        has done.
        """
        for shard in self.leading:
            orphans = [
                queue
                for queue in shard.state.queues()
                if self.map.of_group(queue.group).is_leading and self.group_of(queue) is None
            ]
            if not orphans:
                continue
            try:
                shard.append([QueueClosed(queue.key) for queue in orphans])
            except GoQueueError as error:
                log.warning("queues of groups that are gone are left for the next start to close", error=str(error))
            for queue in orphans:
                self.news.unwatch(queue)
                # Another group may have the name by now, and read the same partition.
                active, place = self.get_led(queue.group), self.map.place(queue)
                if active is not None and place is not None and active.queue(place[0], queue.partition) is not None:
                    self.news.watch(queue, place[1])

    def forget(self, name: str) -> None:
        """A group is not served here any more: drop what is in memory of it."""
        self._active.pop(name, None)

    def forget_topic(self, topic: Topic) -> None:
        self.notes.topic_deleted(topic)
        self.news.forget_topic(topic)

    # Letting go

    async def let_go(self, shard: Shard) -> None:
        """Stop serving a shard, finish what is under way, and forget its state: the journal has it.

        Requests get ``NotLeader`` until it is loaded and led again.
        """
        for active in self.groups_in([shard]):
            if active.shard is shard:
                active.end()
                self.forget(active.name)
            else:
                # Members that had messages of its partitions in flight have room for others.
                active.runtime.wake_all()
        await shard.let_go()

    def groups_in(self, shards: Iterable[Shard]) -> list[ActiveGroup]:
        """Groups that have anything in some shards, if their coordinators are led here."""
        names = {
            name
            for shard in shards
            for name in (*shard.state.by_name, *(queue.group for queue in shard.state.queues()))
        }
        return [active for name in sorted(names) if (active := self.get_led(name)) is not None]

    def stop_waiting(self) -> None:
        """The broker stops: end the waits of all polls."""
        self.is_stopping = True
        for active in self._active.values():
            active.runtime.end()
