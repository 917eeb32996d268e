"""Operations on the broker as a whole: health, metrics, statistics, backup, damage."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from goqueue.broker.metrics.health import Check
from goqueue.broker.operations.caller import Caller
from goqueue.broker.operations.gate import Resource, ResourceOperations, Served, operation
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.upkeep.backups import Backup
from goqueue.broker.upkeep.damage import Loss, acknowledge, losses


@dataclass(frozen=True, slots=True)
class TopicStats:
    """How much one topic holds."""

    name: str
    partitions: int
    messages: int
    size_bytes: int
    segments: int
    damaged_messages: int


@dataclass(frozen=True, slots=True)
class BrokerStats:
    """How much the broker holds."""

    topics: list[TopicStats]
    fsync_rounds: int
    disk_free_bytes: int


@dataclass(frozen=True, slots=True)
class BrokerSize:
    """How many topics there are, and how many bytes they take."""

    topics: int
    size_bytes: int


class SystemOperations(ResourceOperations):
    """Questions about the broker itself. How it is can be asked for at any time."""

    @operation("broker.problems", Resource.BROKER, Served.ALWAYS)
    def problems(self, caller: Caller) -> dict[str, str]:
        """What keeps the broker from doing all of its work, by part; it is ready if there is nothing."""
        return self._host.health.problems()

    @operation("broker.list_damage", Resource.BROKER, Served.ALWAYS)
    def damage(self, caller: Caller) -> list[str]:
        """What was found to be damaged or gone, a line for each partition."""
        return self._host.health.damage()

    @operation("broker.readiness", Resource.BROKER, Served.ALWAYS)
    def readiness(self, caller: Caller) -> dict[str, Check]:
        """The checks of what writing needs."""
        return self._host.health.readiness()

    @operation("broker.health", Resource.BROKER, Served.ALWAYS)
    def checks(self, caller: Caller) -> dict[str, Check]:
        """Every check."""
        return self._host.health.checks()

    @operation("broker.size", Resource.BROKER, Served.ALWAYS)
    def size(self, caller: Caller) -> BrokerSize:
        """How much is stored in all."""
        topics = list(self._host.running_topics())
        return BrokerSize(len(topics), sum(_size(each) for each in topics))

    @operation("broker.stats", Resource.BROKER, Served.ALWAYS)
    def stats(self, caller: Caller) -> BrokerStats:
        """How much is stored, topic by topic, and how much room the disk has."""
        topics = [_stats(each) for each in self._host.running_topics()]
        return BrokerStats(topics, self._host.fsync_rounds(), self._host.disk.look())

    @operation("broker.metrics", Resource.BROKER, Served.ALWAYS)
    def metrics(self, caller: Caller, *, openmetrics: bool) -> Coroutine[Any, Any, bytes]:
        """Every metric, as OpenMetrics or in the text format of Prometheus."""
        return self._host.metrics.scrape(openmetrics=openmetrics)


class MaintenanceOperations(ResourceOperations):
    """What operators do with the stored data as a whole."""

    @operation("broker.backup", Resource.BROKER)
    def begin_backup(self, caller: Caller) -> Coroutine[Any, Any, Backup]:
        """Begin a backup, of which there is one at a time; the caller reads it to its end, or ends it."""
        return self._host.backups.begin()

    @operation("damage.list", Resource.TOPIC)
    def losses(self, caller: Caller, topic: str | None, partition: int | None = None) -> list[Loss]:
        """What was found to be lost, acknowledged or not; of one topic or partition, or of all."""
        return losses(self._host, topic, partition)

    @operation("damage.acknowledge", Resource.TOPIC, Served.WHILE_ACCEPTING)
    def acknowledge_losses(
        self, caller: Caller, topic: str, partition: int | None = None
    ) -> Coroutine[Any, Any, list[Loss]]:
        """Accept what a topic or one of its partitions has lost: readers step over it, and it is no damage any more."""
        return self._host.to_the_end(acknowledge(self._host, self._host.stillness, topic, partition))


def _size(topic: Topic) -> int:
    return sum(partition.log.size_bytes for partition in topic.partitions)


def _stats(topic: Topic) -> TopicStats:
    return TopicStats(
        topic.name,
        len(topic.partitions),
        sum(each.high_watermark - each.log.start_offset for each in topic.partitions),
        _size(topic),
        sum(len(each.log.segments) for each in topic.partitions),
        sum(len(each.damaged) for each in topic.partitions),
    )
