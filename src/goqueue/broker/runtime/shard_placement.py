"""Which shard a group, a transaction and a partition belong to. Documented in ADR 0028; fixed for good, since journals
go by it.

Shard 0 is for the metadata: topics, schemas, ids of producers. A topic begins in one of the others, and goes on in the
next after every eighth partition: what a consumer does in several partitions of a small topic is one record of one
journal. A group's coordinator is in the shard of the group's name, that of a transactional id in the shard of that. Ids
of producers tell their shard (``IssuedIds.shard_of``).
"""

from __future__ import annotations

from goqueue.coordination.catalog import TopicRecord
from goqueue.coordination.transactions import series_of
from goqueue.wire.key_hash import partition_of

SHARDS = 24
_FIRST = 1
SHARD_NUMBERS = range(_FIRST, SHARDS)
"""Of all but the shard of the metadata."""
_SPREAD = SHARDS - _FIRST
_PARTITIONS_TOGETHER = 8


def shard_of_group(name: str) -> int:
    """The shard of the coordinator of the group ``name``."""
    return _of_name(name)


def shard_of_transactional_id(name: str) -> int:
    """The shard of the coordinator of the producer that has this transactional id."""
    return _of_name(name)


def shard_of_commit_key(key: str) -> int:
    """The shard that decides what is committed under an application key: one for all keys of a series."""
    return _of_name(series_of(key)[0])


def _of_name(name: str) -> int:
    return _FIRST + partition_of(name.encode(), _SPREAD)


def first_shard_of(record: TopicRecord) -> int:
    """The shard of partition 0. Topics of earlier versions have none on record: it follows from their id."""
    return record.first_shard or _FIRST + partition_of(record.topic_id.encode(), _SPREAD)


def shard_of_partition(first_shard: int, partition: int) -> int:
    """The shard of a partition of a topic, given that of its partition 0."""
    return _FIRST + (first_shard - _FIRST + partition // _PARTITIONS_TOGETHER) % _SPREAD
