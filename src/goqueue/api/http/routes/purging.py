"""Purging a topic."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from goqueue.api.http.bodies.fields import PartitionField, TopicField, TopicPath
from goqueue.api.http.bodies.message_schemas import Request
from goqueue.api.http.routes.broker_routes import BrokerRoutes
from goqueue.api.http.routing.declaration import post
from goqueue.broker.operations import Caller
from goqueue.model.topic_settings import MAX_PARTITIONS
from goqueue.model.units import parse_instant_ns

RemovedField = Annotated[int, Meta(description="How many messages were removed.")]
DelayedField = Annotated[int, Meta(description="How many messages wait for their time, and will still come.")]


class PurgeRequest(Request):
    """Which messages go: those that nothing here excludes."""

    partition: Annotated[int, Meta(ge=0, lt=MAX_PARTITIONS, description="Only this one; all if left out.")] | None = (
        None
    )
    before: Annotated[
        str | None, Meta(description="Only what is before this instant (RFC 3339); all that readers see if left out.")
    ] = None


class PurgedPartition(Struct):
    """What was removed from one partition."""

    partition: PartitionField
    earliest_before: Annotated[int, Meta(description="The offset that it began with before.")]
    earliest: Annotated[int, Meta(description="The offset that it begins with now.")]
    removed_messages: RemovedField
    delayed_messages: DelayedField


class PurgeResponse(Struct):
    """What was removed does not come back. Delayed messages and those of open transactions stay."""

    topic: TopicField
    removed_messages: RemovedField
    delayed_messages: DelayedField
    partitions: Annotated[list[PurgedPartition], Meta(description="The same, partition by partition.")]


class PurgeRoutes(BrokerRoutes):
    """Purging topics."""

    tag = "Topics"

    @post(
        "/admin/topics/{topic_name}/purge",
        errors=(404, 413),
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
