"""Dead-letter topics: their names, their creation, and the partition that a dead letter goes to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from goqueue.broker.partitions.topic import DEAD_LETTER_SUFFIX, Topic
from goqueue.broker.shards.host import Host
from goqueue.delivery.events import Target
from goqueue.delivery.queue import Queue
from goqueue.model.errors import (
    GoQueueError,
    InvalidTopicName,
    NoDeadLetterTopic,
    ReservedTopicName,
    StorageFailed,
    TopicExists,
)
from goqueue.model.ids import TopicId
from goqueue.model.names import check_topic_name

CreateTopic = Callable[[str, dict[str, object]], Awaitable[Topic]]


def dead_letter_topic(host: Host, topic: Topic) -> str | None:
    """Its name; it may not be there yet. Dead letters have no dead letters."""
    if topic.name.endswith(DEAD_LETTER_SUFFIX):
        return None
    if any(each.settings.dead_letter_topic == topic.name for each in host.running_topics()):
        return None
    named = topic.dead_letter_name
    return named if can_be_a_topic(named) else topic.default_dead_letter_name


def can_be_a_topic(name: str) -> bool:
    """Earlier versions took any text as ``dead_letter_topic``, and folders and journals may still have one."""
    try:
        check_topic_name(name)
    except (InvalidTopicName, ReservedTopicName):
        return False
    return True


async def find_or_make(host: Host, create: CreateTopic, source: Topic, name: str) -> Topic:
    """The topic for dead letters of ``source``. Whatever the defaults are, dead letters do not expire."""
    settings: dict[str, object] = {
        "partitions": len(source.partitions),
        "cleanup": "delete",
        "retention_ms": None,
        "retention_bytes": None,
        "message_ttl_ms": None,
    }
    found = host.topics.by_name.get(name)
    if found is not None:
        return found
    try:
        return await create(name, settings)
    except TopicExists:
        return host.topic(name)


async def make_all(host: Host, create: CreateTopic, lacking: Mapping[str, Topic]) -> dict[str, GoQueueError]:
    """Make topics for the dead letters of others: why those of a topic, by its name, cannot have one.

    What can be had later is not among it: messages go on their way, and arrive when it is there.
    """
    refused: dict[str, GoQueueError] = {}
    for name, source in lacking.items():
        try:
            await find_or_make(host, create, source, name)
        except StorageFailed:
            raise
        except GoQueueError as error:
            if not error.retriable:
                why = f"messages of topic {source.name!r} cannot become dead letters in {name!r}: {error}"
                refused[source.name] = NoDeadLetterTopic(why)
    return refused


def target_for(host: Host, queue: Queue, topic: Topic) -> Target | None:
    """Where dead letters of a queue go as of now; ``None`` if they stay where they are."""
    name = dead_letter_topic(host, topic)
    if name is None:
        return None
    found = host.topics.by_name.get(name)
    if found is None:
        return Target(name, TopicId(""), queue.partition, 0)
    return target_in(found, queue.partition % len(found.partitions))


def target_in(topic: Topic, number: int) -> Target:
    """A partition as it is now. Its durable end: what lies behind may be lost in a crash, and a copy would then lie
    below the offset from which copies are searched."""
    return Target(topic.name, topic.record.topic_id, number, topic.partitions[number].durable_end)
