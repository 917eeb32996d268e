"""The types of ids and offsets.

Each is the plain ``int`` or ``str`` of its value at run time; the type checker keeps them apart. A function that
makes an id returns its type, whatever passes it on has the type in its signature, and only the edges (parsed requests,
decoded records, command-line arguments) convert. Arithmetic on an ``Offset`` gives an ``int``: wrap the result where
it is an offset again, leave it where it is a count.
"""

from __future__ import annotations

from typing import NewType

Offset = NewType("Offset", int)
"""A record's number in its partition, or, as the end of a range, the number after that of the last record."""

TopicId = NewType("TopicId", str)
"""Identifies a topic for ever: one that is deleted and created again under its name has another id."""

PartitionKey = NewType("PartitionKey", str)
"""``TOPIC_ID/PARTITION``: identifies a partition over all topics. Assignments are made of these."""

GroupId = NewType("GroupId", str)
"""Identifies one incarnation of a group: one that is deleted and created again under its name has another id."""

QueueKey = NewType("QueueKey", str)
"""``GROUP_ID/TOPIC_ID/PARTITION``: identifies what one group has done and has yet to do in one partition."""

MemberId = NewType("MemberId", str)
"""Identifies a member of a group from its join until it leaves or expires."""

LeaseId = NewType("LeaseId", int)
"""Identifies some messages of a queue that were delivered together, within that queue. It includes their lane."""

ProducerId = NewType("ProducerId", int)
"""Identifies an idempotent or transactional producer. Its epoch tells its incarnations apart."""

SchemaId = NewType("SchemaId", int)
"""Identifies the text of a schema in the registry, whatever subjects use it."""


def partition_key(topic_id: TopicId, partition: int) -> PartitionKey:
    return PartitionKey(f"{topic_id}/{partition}")


def split_partition_key(key: PartitionKey) -> tuple[TopicId, int]:
    topic_id, _, partition = key.rpartition("/")
    return TopicId(topic_id), int(partition)


def queue_key(group_id: GroupId, topic_id: TopicId, partition: int) -> QueueKey:
    return QueueKey(f"{group_id}/{topic_id}/{partition}")


def queue_key_of(group_id: GroupId, partition: PartitionKey) -> QueueKey:
    return QueueKey(f"{group_id}/{partition}")


def split_queue_key(key: QueueKey) -> tuple[GroupId, PartitionKey]:
    group_id, _, partition = key.partition("/")
    return GroupId(group_id), PartitionKey(partition)
