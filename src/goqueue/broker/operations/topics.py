"""Operations on topics: create, change, delete, purge, describe."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from goqueue.broker.operations.caller import Caller
from goqueue.broker.operations.gate import Resource, ResourceOperations, Served, operation
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.upkeep.purge import PurgedPartition, purge
from goqueue.model.ids import TopicId
from goqueue.model.topic_settings import TopicSettings


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as of one moment."""

    earliest: int
    latest: int
    """The high watermark."""
    stable_end: int
    """Readers of committed messages see what lies below."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as of one moment."""

    name: str
    topic_id: TopicId
    created_at_ns: int
    settings: TopicSettings
    overrides: list[str]
    """Settings that are the topic's own; the others follow the broker's defaults."""
    partitions: list[PartitionState]


@dataclass(frozen=True, slots=True)
class TopicLocation:
    """Which partitions a topic has, without their state."""

    name: str
    topic_id: TopicId
    partitions: int


class TopicOperations(ResourceOperations):
    """Commands to topics are durable when they return, and are finished even if the caller is cancelled meanwhile."""

    @operation("topics.list", Resource.BROKER)
    def names(self, caller: Caller) -> list[str]:
        """The names of all topics, sorted."""
        return self._host.topic_names()

    @operation("topics.describe", Resource.TOPIC)
    def describe(self, caller: Caller, topic: str) -> TopicDescription:
        """Settings in effect, and the state of each partition."""
        return described(self._host.topics.find(topic))

    @operation("topics.locate", Resource.TOPIC)
    def locate(self, caller: Caller, topic: str) -> TopicLocation:
        """Which partitions a topic has: cheap, however many there are."""
        found = self._host.topics.find(topic)
        return TopicLocation(found.name, found.record.topic_id, len(found.partitions))

    @operation("topics.create", Resource.TOPIC, Served.WHILE_ACCEPTING)
    def create(self, caller: Caller, topic: str, settings: dict[str, object]) -> Coroutine[Any, Any, Topic]:
        """Create a topic; there must be none of that name."""
        return self._host.to_the_end(self._host.topic_commands.create(topic, settings))

    @operation("topics.change", Resource.TOPIC, Served.WHILE_ACCEPTING)
    def change(
        self, caller: Caller, topic: str, settings: dict[str, object], unset: Sequence[str] = ()
    ) -> Coroutine[Any, Any, Topic]:
        """Change settings; those in ``unset`` follow the broker's defaults again, and others stay."""
        return self._host.to_the_end(self._host.topic_commands.change(topic, settings, unset))

    @operation("topics.delete", Resource.TOPIC, Served.WHILE_ACCEPTING)
    def delete(self, caller: Caller, topic: str) -> Coroutine[Any, Any, None]:
        """Delete a topic and its messages. If the broker stops after this was decided, the next start finishes it."""
        return self._host.to_the_end(self._host.topic_commands.delete(topic))

    @operation("topics.purge", Resource.TOPIC, Served.WHILE_ACCEPTING)
    def purge(
        self, caller: Caller, topic: str, partition: int | None = None, before_ns: int | None = None
    ) -> Coroutine[Any, Any, list[PurgedPartition]]:
        """Remove the messages that are there now, or those before an instant, for good."""
        return self._host.to_the_end(purge(self._host, self._host.checkpoints, topic, partition, before_ns))


def described(topic: Topic) -> TopicDescription:
    """What ``TopicOperations.describe`` answers, for a topic that an operation has returned."""
    return TopicDescription(
        topic.name,
        topic.record.topic_id,
        topic.record.created_at_ns,
        topic.settings,
        sorted(topic.record.overrides),
        [_state(each) for each in topic.partitions],
    )


def _state(partition: Partition) -> PartitionState:
    return PartitionState(
        partition.log.start_offset, partition.high_watermark, partition.stable_end, partition.log.size_bytes
    )
