"""What partitions have lost, and accepting it."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.api.http.bodies.fields import PartitionField, TopicField, TopicPath
from goqueue.api.http.bodies.message_schemas import Request
from goqueue.api.http.routes.broker_routes import BrokerRoutes
from goqueue.api.http.routing.declaration import get, post
from goqueue.broker.operations import Caller, Loss
from goqueue.model.topic_settings import MAX_PARTITIONS
from goqueue.model.units import format_instant_ns

_MOST = 10_000


class LossEntry(Struct, omit_defaults=True):
    """Messages that were damaged or gone when a broker looked at its files."""

    topic: TopicField
    partition: PartitionField
    first_offset: Annotated[int, Meta(description="The first offset that is lost.")]
    last_offset: Annotated[int, Meta(description="The last one.")]
    found_at: Annotated[str, Meta(description="When it was found (RFC 3339).")]
    acknowledged_at: Annotated[
        str | UnsetType, Meta(description="When it was accepted; until then the broker is degraded.")
    ] = UNSET


class DamageResponse(Struct):
    """What was lost."""

    damage: Annotated[list[LossEntry], Meta(description="In order of topic, partition and offset.")]
    total: Annotated[int, Meta(description="How many entries there are; the answer has at most 10,000 of them.")]


class AcknowledgeRequest(Request):
    """Which losses are accepted."""

    partition: (
        Annotated[int, Meta(ge=0, lt=MAX_PARTITIONS, description="Only of this partition; of all if left out.")] | None
    ) = None


class DamageRoutes(BrokerRoutes):
    """Messages that were lost to damage."""

    tag = "Topics"

    @get("/admin/damage", tag="Broker", errors=(404,), summary="What messages were lost to damage")
    async def list_damage(
        self,
        caller: Caller,
        topic: Annotated[str | None, Meta(description="Only of this topic.")] = None,
        all: Annotated[bool, Meta(description="Also what was acknowledged.")] = False,
    ) -> DamageResponse:
        """What a start, or an index made anew, has found damaged or gone. Reads list these offsets under damaged."""
        found = self._operations.maintenance.losses(caller, topic)
        return _told([each for each in found if all or not each.range.acknowledged_ns])

    @post(
        "/admin/topics/{topic_name}/damage/acknowledge",
        errors=(404, 507),
        summary="Accept that messages of a topic are lost",
    )
    async def acknowledge_damage(
        self, caller: Caller, topic_name: TopicPath, data: AcknowledgeRequest
    ) -> DamageResponse:
        """From then on readers step over what is lost, and the broker is not degraded by it. Answers with what was
        accepted by this."""
        return _told(await self._operations.maintenance.acknowledge_losses(caller, topic_name, data.partition))


def _told(found: list[Loss]) -> DamageResponse:
    return DamageResponse([_entry(each) for each in found[:_MOST]], len(found))


def _entry(each: Loss) -> LossEntry:
    accepted_ns = each.range.acknowledged_ns
    return LossEntry(
        topic=each.topic,
        partition=each.partition,
        first_offset=each.range.first,
        last_offset=each.range.end - 1,
        found_at=format_instant_ns(each.range.found_ns),
        acknowledged_at=format_instant_ns(accepted_ns) if accepted_ns else UNSET,
    )
