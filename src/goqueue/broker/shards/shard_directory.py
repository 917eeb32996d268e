"""Finds groups by name, in the shards that this broker leads, and lets go of shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

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
from goqueue.coordination.group import Group
from goqueue.coordination.group_view import GroupView
from goqueue.coordination.shard_state import ShardEvent, ShardState
from goqueue.delivery.queue import Queue
from goqueue.model.errors import GoQueueError, GroupNotFound, NotLeader
from goqueue.model.fields import shown
from goqueue.model.ids import GroupId, QueueKey, TopicId, partition_key
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

    def served(self, name: str) -> ActiveGroup | None:
        """Any group that is served here. ``None``: there is none, or none that a shard that is led here was shown."""
        shard = self.map.of_group(name)
        return self._get(shard, name) if shard.is_leading else self._seen(shard, name)

    def _get(self, shard: Shard, name: str) -> ActiveGroup | None:
        group = shard.state.by_name.get(name)
        active = self._active.get(name)
        if group is None:
            return None
        if active is None or active.identity != group.state.identity:
            if active is not None:
                active.end()
            active = self._activate(shard, name, group)
        elif active.coordinated is not group:
            active.use(group)
        return active

    def _seen(self, shard: Shard, name: str) -> ActiveGroup | None:
        """A group whose coordinator is not led here, by what shards were shown of it."""
        active = self._active.get(name)
        if active is not None:
            # What is not seen any more is forgotten when a shard is let go.
            return active
        views = [view for each in self.leading if (view := each.state.views.get(name)) is not None]
        return self._activate(shard, name, max(views, key=lambda view: view.generation)) if views else None

    def _activate(self, shard: Shard, name: str, known: Group | GroupView) -> ActiveGroup:
        runtime = GroupRuntime(name, self.news.takers, self.news.wakeups)
        active = self._active[name] = ActiveGroup(self.map, shard, known, runtime)
        return active

    def find_served(self, name: str) -> ActiveGroup:
        """A user's group that is served here, for what its members do with messages: its coordinator may not be led."""
        found = self._active.get(name)
        if found is None or not found.shard.is_leading:
            found = self.served(name)
            if found is not None and found.coordinated is None and not name.startswith(INTERNAL):
                return found
        return self.find(name)

    def find(self, name: str) -> ActiveGroup:
        """A user's group, not one of the broker's own."""
        found = self._active.get(name)
        if (
            found is None
            or not found.shard.is_leading
            or found.coordinated is None
            or found.shard.journal.machine.by_name.get(name) is not found.coordinated
        ):
            found = self._get(self.of(name), name)
        if found is None or name.startswith(INTERNAL):
            check_group_name(name)
            raise GroupNotFound(f"group {shown(name)} does not exist")
        return found

    def group_of(self, queue: Queue) -> ActiveGroup | None:
        """The group that a queue is of; ``None`` if it is gone, or not served here."""
        found = self.served(queue.group)
        return found if found is not None and found.identity == queue.group_id else None

    def _is_gone(self, name: str, identity: GroupId) -> bool:
        """Whether there is no such group any more. Only its coordinator knows."""
        shard = self.map.of_group(name)
        group = shard.state.by_name.get(name)
        return shard.is_leading and (group is None or group.state.identity != identity)

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
            active = self.served(name)
            if active is not None:
                active.follow(applied)

        if not events:
            return
        try:
            self.map.append(events, cause, follow)
        finally:
            active = self.served(name)
            if active is not None:
                active.show_news()

    def close_orphans(self) -> None:
        """Close queues of groups that are gone, and forget what shards were shown of them.

        A crash may have come between the deletion of a group and that, or have taken a group whose queues were open
        already; nobody was told of that group.

        What is known of groups must be durable: closing the queues first could leave a group that has forgotten what it
        has done.
        """
        for shard in self.leading:
            queues, views = shard.state.queues(), shard.state.views.values()
            known = dict.fromkeys((queue.group, queue.group_id) for queue in queues)
            known |= dict.fromkeys((view.group, view.identity) for view in views)
            gone = dict.fromkeys(group for group in known if self._is_gone(*group))
            orphans = [queue for queue in queues if (queue.group, queue.group_id) in gone]
            try:
                for name, identity in gone:
                    self.map.forget_group(shard, name, identity)
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
        for shard in self.leading:
            # If it cannot be noted now, it is when the shard is led again.
            with suppress(GoQueueError):
                shard.forget_starts(topic)

    # Letting go

    async def let_go(self, shard: Shard) -> None:
        """Stop serving a shard, finish what is under way, and forget its state: the journal has it.

        Requests that need it get ``NotLeader`` until it is loaded and led again. Groups that it coordinates are served
        by what other shards were shown of them.
        """
        others = [each for each in self.leading if each is not shard]
        for active in self.groups_in([shard]):
            if active.shard is shard:
                active.coordinated = None
            if active.coordinated is None and not any(active.is_seen_by(each) for each in others):
                active.end()
                self.forget(active.name)
            else:
                # Members that had messages of its partitions in flight have room for others.
                active.runtime.wake_all()
        await shard.let_go()

    def groups_in(self, shards: Iterable[Shard]) -> list[ActiveGroup]:
        """Groups that have anything in some shards, and are served here."""
        names = {
            name
            for shard in shards
            for name in (*shard.state.by_name, *(queue.group for queue in shard.state.queues()))
        }
        return [active for name in sorted(names) if (active := self.served(name)) is not None]

    def stop_waiting(self) -> None:
        """The broker stops: end the waits of all polls."""
        self.is_stopping = True
        for active in self._active.values():
            active.runtime.end()
