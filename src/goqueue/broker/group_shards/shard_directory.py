"""Finds the shard of a group by the group's name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from goqueue.broker.events.event_recorder import INTERNAL
from goqueue.broker.group_shards.group_shard import ActiveGroup, GroupShard
from goqueue.broker.group_shards.host import Host
from goqueue.broker.group_shards.partition_news import PartitionNews
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.runtime.timer_service import TimerService
from goqueue.coordination.groups import Groups
from goqueue.model.errors import GroupNotFound, NotLeader
from goqueue.model.fields import shown
from goqueue.model.ids import TopicId, partition_key
from goqueue.model.names import check_group_name
from goqueue.wire.key_hash import partition_of

_NAMES_KNOWN = 10_000
"""So many names of groups are hashed once."""


class GroupShards:
    """The shards of this broker, and what is asked of all of them together."""

    def __init__(
        self, host: Host, journals: Sequence[Journal[Groups]], receipt_key: bytes, timers: TimerService
    ) -> None:
        self.host = host
        self.clock = host.clock
        self.notes = host.notes
        self.news = PartitionNews()
        self.all = [
            GroupShard(number, journal, host, receipt_key, timers, self.news) for number, journal in enumerate(journals)
        ]
        self.is_stopping = False
        self._number_of = lru_cache(_NAMES_KNOWN)(lambda name: partition_of(name.encode(), len(journals)))

    def of(self, name: str) -> GroupShard:
        """The shard that a group belongs to, whether there is such a group or not."""
        shard = self.all[self._number_of(name)]
        if not shard.is_leading:
            raise NotLeader(f"this broker does not lead the shard of group {shown(name)} at present")
        return shard

    def get(self, name: str) -> ActiveGroup | None:
        """Any group, the broker's own included."""
        return self.of(name).get(name)

    def get_led(self, name: str) -> ActiveGroup | None:
        """The same, but ``None`` if its shard is not led here."""
        shard = self.all[self._number_of(name)]
        return shard.get(name) if shard.is_leading else None

    def find(self, name: str) -> ActiveGroup:
        """A user's group, not one of the broker's own."""
        found = self.of(name).get(name)
        if found is None or name.startswith(INTERNAL):
            check_group_name(name)
            raise GroupNotFound(f"group {shown(name)} does not exist")
        return found

    @property
    def leading(self) -> list[GroupShard]:
        return [shard for shard in self.all if shard.is_leading]

    def names(self) -> list[str]:
        """Users' groups, not the broker's own."""
        found = [name for shard in self.leading for name in shard.journal.machine.names()]
        return sorted(name for name in found if not name.startswith(INTERNAL))

    def count(self) -> int:
        return sum(len(shard.journal.machine.by_name) for shard in self.all)

    def groups_on(self, topic_id: TopicId, partition: int) -> set[str]:
        """The groups that read a partition, the broker's own not among them."""
        return {
            name for name in self.news.groups_on(partition_key(topic_id, partition)) if not name.startswith(INTERNAL)
        }

    def forget_topic(self, topic: Topic) -> None:
        self.notes.topic_deleted(topic)
        self.news.forget_topic(topic)

    def stop_waiting(self) -> None:
        """The broker stops: end the waits of all polls."""
        self.is_stopping = True
        for shard in self.all:
            shard.end_waits()
