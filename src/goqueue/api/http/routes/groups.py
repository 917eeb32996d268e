"""Groups: who is in them, what they are set to, and how far they are."""

from __future__ import annotations

from typing import Annotated

from litestar import delete, get, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody, QueryParameter

from goqueue.api.http.bodies.durations import bounded_ms
from goqueue.api.http.bodies.errors import documented
from goqueue.api.http.bodies.group_details import details, heartbeat_interval, names_of, state_of
from goqueue.api.http.bodies.group_schemas import (
    CommitOffsetsRequest,
    CommitOffsetsResponse,
    ConfigureGroupRequest,
    DeleteGroupResponse,
    GroupDetails,
    GroupListResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetsResponse,
    ResetOffsetsRequest,
    ResetOffsetsResponse,
)
from goqueue.api.http.bodies.parameters import GroupPath
from goqueue.api.http.bodies.settings import with_fields
from goqueue.broker.broker import Broker
from goqueue.broker.groups.group_service import Join
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.read import start_of
from goqueue.broker.runtime.time_slices import Stretch
from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import specs
from goqueue.model.group_settings import GroupSettings
from goqueue.model.units import format_duration_ms, parse_instant_ns

_TAGS = ["Groups"]
_SESSION = specs(GroupSettings)["session_timeout_ms"]


def group_routes(broker: Broker) -> list[HTTPRouteHandler]:
    return [*_routes_of_groups(broker), *_routes_of_members(broker), *_routes_of_offsets(broker)]


def _routes_of_groups(broker: Broker) -> list[HTTPRouteHandler]:
    groups = broker.groups

    @get("/groups", tags=_TAGS, responses=documented(), summary="List groups")
    async def list_groups() -> GroupListResponse:
        """Their names, all of them."""
        return GroupListResponse(groups.shards.names())

    @get("/groups/{group_id:str}", tags=_TAGS, responses=documented(404), summary="Look at a group and its lag")
    async def describe_group(group_id: GroupPath) -> GroupDetails:
        """Its settings in effect, who works for it, and how far it is in each partition."""
        return await details(broker, group_id)

    @put(
        "/groups/{group_id:str}",
        tags=_TAGS,
        responses=documented(409, 413),
        summary="Make a group, or change its settings",
    )
    async def configure_group(group_id: GroupPath, data: JSONBody[ConfigureGroupRequest]) -> GroupDetails:
        """Settings that are not named stay; mode and ordering never change, kind only while nobody is in the group."""
        await groups.configure(group_id, data.settings)
        return await details(broker, group_id)

    @delete(
        "/groups/{group_id:str}",
        tags=_TAGS,
        responses=documented(404, 409),
        status_code=200,
        summary="Delete a group that has no members",
    )
    async def delete_group(group_id: GroupPath) -> DeleteGroupResponse:
        """It is forgotten with its offsets; a new group of that name inherits nothing."""
        await groups.delete(group_id)
        return DeleteGroupResponse(deleted=True)

    return [list_groups, describe_group, configure_group, delete_group]


def _routes_of_members(broker: Broker) -> list[HTTPRouteHandler]:
    groups = broker.groups

    @post(
        "/groups/{group_id:str}/join",
        tags=_TAGS,
        status_code=200,
        responses=documented(404, 409, 413),
        summary="Become a member of a group",
    )
    async def join_group(group_id: GroupPath, data: JSONBody[JoinGroupRequest]) -> JoinGroupResponse:
        """The first join makes the group."""
        joined = await groups.join(group_id, _join(data))
        group = groups.shards.find(group_id)
        session_ms = group.member(joined.member_id).session_timeout_ms
        return JoinGroupResponse(
            member_id=joined.member_id,
            generation=joined.generation,
            leader_id=joined.leader_id,
            assigned_partitions=names_of(joined.assigned),
            partitions=[number for _, number in joined.assigned],
            members=list(group.state.members),
            rebalance_required=False,
            revoking_partitions=names_of(joined.revoking),
            heartbeat_interval=heartbeat_interval(session_ms),
            session_timeout=format_duration_ms(session_ms),
        )

    @post(
        "/groups/{group_id:str}/heartbeat",
        tags=_TAGS,
        status_code=200,
        responses=documented(404, 409, 413),
        summary="Stay in a group, and hear what is assigned",
    )
    async def heartbeat(group_id: GroupPath, data: JSONBody[HeartbeatRequest]) -> HeartbeatResponse:
        """A member that neither polls nor sends a heartbeat for its session timeout is taken out of its group."""
        present = await groups.heartbeat(group_id, data.member_id, data.generation)
        return HeartbeatResponse(
            rebalance_required=data.generation != present.generation,
            state=state_of(broker, group_id),
            generation=present.generation,
            assigned_partitions=names_of(present.assigned),
            revoking_partitions=names_of(present.revoking),
        )

    @post(
        "/groups/{group_id:str}/leave",
        tags=_TAGS,
        status_code=200,
        responses=documented(404, 409, 413),
        summary="Leave a group",
    )
    async def leave_group(group_id: GroupPath, data: JSONBody[LeaveGroupRequest]) -> LeaveGroupResponse:
        """What the member has in flight goes to others at once."""
        return LeaveGroupResponse(left=await groups.leave(group_id, data.member_id, if_idle=data.if_idle))

    return [join_group, heartbeat, leave_group]


def _routes_of_offsets(broker: Broker) -> list[HTTPRouteHandler]:
    groups = broker.groups

    @get(
        "/groups/{group_id:str}/offsets",
        tags=_TAGS,
        responses=documented(404),
        summary="Committed offsets of a group",
    )
    async def read_offsets(
        group_id: GroupPath,
        topic: Annotated[str | None, QueryParameter(description="Only this topic's.")] = None,
    ) -> OffsetsResponse:
        """Where what the group is done with ends, by topic and partition."""
        if topic is not None:
            broker.topic(topic)
        return OffsetsResponse(_in_text(await groups.offsets(group_id, topic)))

    @post(
        "/groups/{group_id:str}/offsets",
        tags=_TAGS,
        status_code=200,
        responses=documented(404, 409, 413, 416),
        summary="Commit offsets",
    )
    async def commit_offsets(group_id: GroupPath, data: JSONBody[CommitOffsetsRequest]) -> CommitOffsetsResponse:
        """In a stream everything below these offsets is done; in a queue only what was delivered below them."""
        await groups.commit(group_id, data.member_id, data.offsets, data.generation)
        return CommitOffsetsResponse(committed=True)

    @post(
        "/groups/{group_id:str}/reset",
        tags=_TAGS,
        status_code=200,
        responses=documented(404, 413, 416),
        summary="Begin again at an offset or an instant",
    )
    async def reset_offsets(group_id: GroupPath, data: JSONBody[ResetOffsetsRequest]) -> ResetOffsetsResponse:
        """Back or ahead; receipts from before are void."""
        groups.shards.find(group_id)
        topic = broker.topic(data.topic)
        numbers = range(len(topic.partitions)) if data.partitions is None else data.partitions
        beginnings: dict[int, int] = {}
        stretch = Stretch()
        for number in numbers:
            beginnings[number] = _beginning(topic.partition(number), data)
            if stretch.is_over:
                await stretch.rest()
        places = {data.topic: beginnings}
        await groups.reset(group_id, places)
        return ResetOffsetsResponse(reset=True, offsets=_in_text(places))

    return [read_offsets, commit_offsets, reset_offsets]


def _join(data: JoinGroupRequest) -> Join:
    session_ms = None
    if data.session_timeout is not None:
        session_ms = bounded_ms("session_timeout", data.session_timeout, int(_SESSION.maximum), int(_SESSION.minimum))
    own = {"kind": data.kind, "mode": data.mode, "ordering": data.ordering}
    return Join(
        client_id=data.client_id,
        topics=data.topics,
        settings=with_fields(data.settings, own),
        session_timeout_ms=session_ms,
        instance_id=data.instance_id,
        auto_commit=data.auto_commit,
    )


def _beginning(partition: Partition, data: ResetOffsetsRequest) -> int:
    if sum(each is not None for each in (data.to, data.offset, data.instant)) != 1:
        raise InvalidRequest("give exactly one of to, offset and instant")
    if data.instant is not None:
        return start_of(partition, None, parse_instant_ns(data.instant))
    if data.offset is not None:
        return data.offset
    return partition.stable_end if data.to == "latest" else partition.log.start_offset


def _in_text(offsets: dict[str, dict[int, int]]) -> dict[str, dict[str, int]]:
    return {
        topic: {str(number): offset for number, offset in by_partition.items()}
        for topic, by_partition in offsets.items()
    }
