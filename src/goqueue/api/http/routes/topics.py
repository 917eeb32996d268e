"""Topics: make, list, look at, change, delete, purge."""

from __future__ import annotations

import dataclasses
from typing import Any

from goqueue.api.http.bodies.fields import TopicPath
from goqueue.api.http.bodies.message_schemas import ErrorResponse
from goqueue.api.http.bodies.settings import with_fields
from goqueue.api.http.bodies.topic_schemas import (
    AddPartitionsRequest,
    ChangeTopicRequest,
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicResponse,
    PartitionOffsets,
    PurgedPartition,
    PurgeRequest,
    PurgeResponse,
    TopicDetails,
    TopicListResponse,
)
from goqueue.api.http.routes.broker_routes import BrokerRoutes
from goqueue.api.http.routing.declaration import delete, get, patch, post
from goqueue.broker.operations import Caller, TopicDescription, described
from goqueue.model.errors import UnsupportedFeature
from goqueue.model.units import format_instant_ns, parse_instant_ns


class TopicRoutes(BrokerRoutes):
    """Topics and their settings."""

    tag = "Topics"

    @get("/topics", summary="List topics")
    async def list_topics(self, caller: Caller) -> TopicListResponse:
        """Their names, all of them."""
        return TopicListResponse(self._operations.topics.names(caller))

    @post("/topics", status=201, errors=(409, 507), summary="Create a topic")
    async def create_topic(self, caller: Caller, data: CreateTopicRequest) -> CreateTopicResponse:
        """Answers when it exists and survives a crash; there must be none of that name yet."""
        topic = await self._operations.topics.create(caller, data.name, _all_settings(data))
        return CreateTopicResponse(topic.name, len(topic.partitions), created=True)

    @get("/topics/{topic_name}", errors=(404,), summary="Look at a topic")
    async def describe_topic(self, caller: Caller, topic_name: TopicPath) -> TopicDetails:
        """Its settings in effect, the offsets of each partition, and how much it holds."""
        return _details(self._operations.topics.describe(caller, topic_name))

    @patch("/topics/{topic_name}", errors=(404,), summary="Change a topic's settings")
    async def change_topic(self, caller: Caller, topic_name: TopicPath, data: ChangeTopicRequest) -> TopicDetails:
        """Settings that are not named stay; the number of partitions cannot be changed."""
        topic = await self._operations.topics.change(caller, topic_name, data.settings, data.unset)
        return _details(described(topic))

    @delete("/topics/{topic_name}", errors=(404,), summary="Delete a topic and its messages")
    async def delete_topic(self, caller: Caller, topic_name: TopicPath) -> DeleteTopicResponse:
        """Nothing of it comes back; a new topic of that name inherits nothing."""
        await self._operations.topics.delete(caller, topic_name)
        return DeleteTopicResponse(deleted=True, name=topic_name)

    @post("/admin/topics/{topic_name}/partitions", errors=(404,), status=501, summary="Give a topic more partitions")
    async def add_partitions(self, caller: Caller, topic_name: TopicPath, data: AddPartitionsRequest) -> ErrorResponse:
        """This version cannot: it answers 501 with the code unsupported_feature, and changes nothing."""
        topic = self._operations.topics.locate(caller, topic_name)
        raise UnsupportedFeature(
            f"topic {topic.name!r} has {topic.partitions} partitions and cannot have {data.count}: this version "
            "cannot change how many there are; make another topic with as many as you need, and copy the messages"
        )

    @post(
        "/admin/topics/{topic_name}/purge",
        errors=(404,),
        summary="Remove the messages of a topic that are there now",
    )
    async def purge_topic(self, caller: Caller, topic_name: TopicPath, data: PurgeRequest) -> PurgeResponse:
        """What is removed does not come back. What is delayed or part of an open transaction stays."""
        before_ns = None if data.before is None else parse_instant_ns(data.before)
        purged = await self._operations.topics.purge(caller, topic_name, data.partition, before_ns)
        return PurgeResponse(
            topic=topic_name,
            removed_messages=sum(each.removed for each in purged),
            delayed_messages=sum(each.delayed for each in purged),
            partitions=[
                PurgedPartition(each.partition, each.earliest_before, each.earliest, each.removed, each.delayed)
                for each in purged
            ],
        )


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
