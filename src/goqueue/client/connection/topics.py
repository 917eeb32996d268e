"""Topics and their partitions, as returned by the client."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from goqueue.client.connection.instants import from_nanoseconds
from goqueue.client.connection.structs import struct_of
from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import UNLIMITED, specs
from goqueue.model.topic_settings import TopicSettings
from goqueue.wire.proto import goqueue_pb2 as pb


class PartitionInfo(msgspec.Struct, frozen=True):
    """Offsets and size of a partition. ``latest_offset`` is the offset that the next message gets."""

    earliest_offset: int
    latest_offset: int
    size_bytes: int
    stable_end: int
    """The last stable offset: no transaction is open below it. Read-committed readers stop there."""


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic. ``settings`` are those in effect, in the form of configuration values; ``overrides`` names those set for
    this topic."""

    name: str
    id: str
    created_at: datetime
    settings: dict[str, str]
    overrides: list[str]
    partitions: list[PartitionInfo]


class PurgedPartition(msgspec.Struct, frozen=True):
    """Result of a purge: the log start before and after; ``removed`` messages are gone.

    ``delayed`` messages are still scheduled and will be delivered.
    """

    partition: int
    earliest_before: int
    earliest: int
    removed: int
    delayed: int


def to_settings(settings: Mapping[str, object]) -> dict[str, str]:
    return {name: UNLIMITED if value is None else str(value) for name, value in settings.items()}


def has_exact_settings(topic: pb.Topic, settings: dict[str, str]) -> bool:
    """Whether the topic's own settings are exactly these."""
    if set(topic.overrides) != settings.keys() - {"partitions"}:
        return False
    return all(_is_same_value(name, value, topic.settings[name]) for name, value in settings.items())


def _is_same_value(name: str, one: str, other: str) -> bool:
    """Compared by value: ``"60m"`` and ``"1h"`` are the same."""
    declared = specs(TopicSettings).get(name)
    try:
        return one == other if declared is None else bool(declared.parse(one) == declared.parse(other))
    except InvalidRequest:
        return False


def to_info(topic: pb.Topic) -> TopicInfo:
    return struct_of(
        TopicInfo,
        topic,
        created_at=from_nanoseconds(topic.created_at_ns),
        settings=dict(topic.settings),
        overrides=list(topic.overrides),
        partitions=[struct_of(PartitionInfo, each) for each in topic.partitions],
    )
