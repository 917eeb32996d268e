"""Topics as a client sees them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from goqueue.client.instants import from_nanoseconds
from goqueue.model.fields import UNLIMITED
from goqueue.wire.proto import goqueue_pb2 as pb


class PartitionInfo(msgspec.Struct, frozen=True):
    """``latest_offset`` is the offset that the next message gets."""

    earliest_offset: int
    latest_offset: int
    size_bytes: int


class TopicInfo(msgspec.Struct, frozen=True):
    """``settings`` are those in effect, as a user would write them; ``overrides`` names those set for this topic."""

    name: str
    id: str
    created_at: datetime
    settings: dict[str, str]
    overrides: list[str]
    partitions: list[PartitionInfo]


def to_settings(given: dict[str, object]) -> dict[str, str]:
    return {name: UNLIMITED if value is None else str(value) for name, value in given.items()}


def to_info(topic: pb.Topic) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        id=topic.id,
        created_at=from_nanoseconds(topic.created_at_ns),
        settings=dict(topic.settings),
        overrides=list(topic.overrides),
        partitions=[
            PartitionInfo(each.earliest_offset, each.latest_offset, each.size_bytes) for each in topic.partitions
        ],
    )
