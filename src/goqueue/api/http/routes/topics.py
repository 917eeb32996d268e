"""Topics: make, list, look at, change, delete."""

from __future__ import annotations

import dataclasses
from typing import Any

from litestar import delete, get, patch, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody

from goqueue.api.http.bodies.errors import documented
from goqueue.api.http.bodies.message_schemas import ErrorResponse
from goqueue.api.http.bodies.parameters import TopicPath
from goqueue.api.http.bodies.settings import with_fields
from goqueue.api.http.bodies.topic_schemas import (
    AddPartitionsRequest,
    ChangeTopicRequest,
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicResponse,
    PartitionOffsets,
    TopicDetails,
    TopicListResponse,
)
from goqueue.api.http.caller import AnyRequest, caller_of
from goqueue.broker.operations import Operations, TopicDescription, described
from goqueue.model.errors import UnsupportedFeature
from goqueue.model.units import format_instant_ns

_TAGS = ["Topics"]


def topic_routes(operations: Operations) -> list[HTTPRouteHandler]:
    @get("/topics", tags=_TAGS, responses=documented(), summary="List topics")
    async def list_topics(request: AnyRequest) -> TopicListResponse:
        """Their names, all of them."""
        return TopicListResponse(operations.topics.names(caller_of(request)))

    @post("/topics", tags=_TAGS, responses=documented(409, 413, 507), summary="Create a topic")
    async def create_topic(request: AnyRequest, data: JSONBody[CreateTopicRequest]) -> CreateTopicResponse:
        """Answers when it exists and survives a crash; there must be none of that name yet."""
        topic = await operations.topics.create(caller_of(request), data.name, _all_settings(data))
        return CreateTopicResponse(topic.name, len(topic.partitions), created=True)

    @get("/topics/{topic_name:str}", tags=_TAGS, responses=documented(404), summary="Look at a topic")
    async def describe_topic(request: AnyRequest, topic_name: TopicPath) -> TopicDetails:
        """Its settings in effect, the offsets of each partition, and how much it holds."""
        return _details(operations.topics.describe(caller_of(request), topic_name))

    @patch("/topics/{topic_name:str}", tags=_TAGS, responses=documented(404, 413), summary="Change a topic's settings")
    async def change_topic(
        request: AnyRequest, topic_name: TopicPath, data: JSONBody[ChangeTopicRequest]
    ) -> TopicDetails:
        """Settings that are not named stay; the number of partitions cannot be changed."""
        topic = await operations.topics.change(caller_of(request), topic_name, data.settings, data.unset)
        return _details(described(topic))

    @delete(
        "/topics/{topic_name:str}",
        tags=_TAGS,
        responses=documented(404),
        status_code=200,
        summary="Delete a topic and its messages",
    )
    async def delete_topic(request: AnyRequest, topic_name: TopicPath) -> DeleteTopicResponse:
        """Nothing of it comes back; a new topic of that name inherits nothing."""
        await operations.topics.delete(caller_of(request), topic_name)
        return DeleteTopicResponse(deleted=True, name=topic_name)

    @post(
        "/admin/topics/{topic_name:str}/partitions",
        tags=_TAGS,
        responses=documented(404),
        status_code=501,
        summary="Give a topic more partitions",
    )
    async def add_partitions(
        request: AnyRequest, topic_name: TopicPath, data: JSONBody[AddPartitionsRequest]
    ) -> ErrorResponse:
        """This version cannot: it answers 501 with the code unsupported_feature, and changes nothing."""
        topic = operations.topics.locate(caller_of(request), topic_name)
        raise UnsupportedFeature(
            f"topic {topic.name!r} has {topic.partitions} partitions and cannot have {data.count}: this version "
            "cannot change how many there are; make another topic with as many as you need, and copy the messages"
        )

    return [list_topics, create_topic, describe_topic, change_topic, delete_topic, add_partitions]


def _all_settings(data: CreateTopicRequest) -> dict[str, Any]:
    """``num_partitions`` and ``retention_hours`` are the older names of two settings."""
    retention_ms = None if data.retention_hours is None else data.retention_hours * 3_600_000
    return with_fields(data.settings, {"partitions": data.num_partitions, "retention_ms": retention_ms})


def _details(topic: TopicDescription) -> TopicDetails:
    offsets = {
        str(number): PartitionOffsets(partition.earliest, partition.latest, partition.stable_end)
        for number, partition in enumerate(topic.partitions)
    }
    return TopicDetails(
        name=topic.name,
        partitions=len(topic.partitions),
        total_messages=sum(each.latest - each.earliest for each in offsets.values()),
        total_size_bytes=sum(partition.size_bytes for partition in topic.partitions),
        partition_offsets=offsets,
        id=topic.topic_id,
        created_at=format_instant_ns(topic.created_at_ns),
        settings=dataclasses.asdict(topic.settings),
        overrides=topic.overrides,
    )
