"""Groups: who is in them, what they are set to, and how far they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

from msgspec import Meta

from goqueue.api.http.bodies.durations import bounded_ms
from goqueue.api.http.bodies.fields import GroupPath, GroupStateName
from goqueue.api.http.bodies.group_schemas import (
    CommitOffsetsRequest,
    CommitOffsetsResponse,
    ConfigureGroupRequest,
    DeleteGroupResponse,
    GroupDetails,
    GroupListResponse,
    GroupMember,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LagOfPartition,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetsResponse,
    ResetOffsetsRequest,
    ResetOffsetsResponse,
)
from goqueue.api.http.bodies.settings import with_fields
from goqueue.api.http.routes.broker_routes import BrokerRoutes
from goqueue.api.http.routing.declaration import delete, get, post, put
from goqueue.broker.operations import Caller, GroupDescription, Join, MemberDescription, PartitionLag, StartAt
from goqueue.broker.operations.limits import heartbeat_interval_ms
from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import specs
from goqueue.model.group_settings import GroupSettings
from goqueue.model.units import format_duration_ms, parse_instant_ns

_SESSION = specs(GroupSettings)["session_timeout_ms"]


class GroupRoutes(BrokerRoutes):
    """Groups, their members and their offsets."""

    tag = "Groups"

    @get("/groups", summary="List groups")
    async def list_groups(self, caller: Caller) -> GroupListResponse:
        """Their names, all of them."""
        return GroupListResponse(self._operations.groups.names(caller))

    @get("/groups/{group_id}", errors=(404,), summary="Look at a group and its lag")
    async def describe_group(self, caller: Caller, group_id: GroupPath) -> GroupDetails:
        """Its settings in effect, who works for it, and how far it is in each partition."""
        return _details(await self._operations.groups.describe(caller, group_id))

    @put("/groups/{group_id}", errors=(409,), summary="Make a group, or change its settings")
    async def configure_group(self, caller: Caller, group_id: GroupPath, data: ConfigureGroupRequest) -> GroupDetails:
        """Settings that are not named stay; mode and ordering never change, kind only while nobody is in the group."""
        return _details(await self._operations.groups.configure(caller, group_id, data.settings))

    @delete("/groups/{group_id}", errors=(404, 409), summary="Delete a group that has no members")
    async def delete_group(self, caller: Caller, group_id: GroupPath) -> DeleteGroupResponse:
        """It is forgotten with its offsets; a new group of that name inherits nothing."""
        await self._operations.groups.delete(caller, group_id)
        return DeleteGroupResponse(deleted=True)

    @post("/groups/{group_id}/join", errors=(404, 409), summary="Become a member of a group")
    async def join_group(self, caller: Caller, group_id: GroupPath, data: JoinGroupRequest) -> JoinGroupResponse:
        """The first join makes the group."""
        joined = await self._operations.groups.join(caller, group_id, _join(data))
        session_ms = joined.session_timeout_ms
        return JoinGroupResponse(
            member_id=joined.member_id,
            generation=joined.generation,
            leader_id=joined.leader_id,
            assigned_partitions=_names(joined.assigned),
            partitions=[number for _, number in joined.assigned],
            members=self._operations.groups.member_ids(caller, group_id),
            rebalance_required=False,
            revoking_partitions=_names(joined.revoking),
            heartbeat_interval=format_duration_ms(heartbeat_interval_ms(session_ms)),
            session_timeout=format_duration_ms(session_ms),
        )

    @post("/groups/{group_id}/heartbeat", errors=(404, 409), summary="Stay in a group, and hear what is assigned")
    async def heartbeat(self, caller: Caller, group_id: GroupPath, data: HeartbeatRequest) -> HeartbeatResponse:
        """A member that neither polls nor sends a heartbeat for its session timeout is taken out of its group."""
        present = await self._operations.groups.heartbeat(caller, group_id, data.member_id, data.generation)
        return HeartbeatResponse(
            rebalance_required=data.generation != present.generation,
            state=_state_name(self._operations.groups.state(caller, group_id)),
            generation=present.generation,
            assigned_partitions=_names(present.assigned),
            revoking_partitions=_names(present.revoking),
        )

    @post("/groups/{group_id}/leave", errors=(404, 409), summary="Leave a group")
    async def leave_group(self, caller: Caller, group_id: GroupPath, data: LeaveGroupRequest) -> LeaveGroupResponse:
        """What the member has in flight goes to others at once."""
        return LeaveGroupResponse(
            left=await self._operations.groups.leave(caller, group_id, data.member_id, if_idle=data.if_idle)
        )

    @get("/groups/{group_id}/offsets", errors=(404,), summary="Committed offsets of a group")
    async def read_offsets(
        self,
        caller: Caller,
        group_id: GroupPath,
        topic: Annotated[str | None, Meta(description="Only this topic's.")] = None,
    ) -> OffsetsResponse:
        """Where what the group is done with ends, by topic and partition."""
        if topic is not None:
            self._operations.topics.locate(caller, topic)
        return OffsetsResponse(_in_text(await self._operations.offsets.committed(caller, group_id, topic)))

    @post("/groups/{group_id}/offsets", errors=(404, 409, 416), summary="Commit offsets")
    async def commit_offsets(
        self, caller: Caller, group_id: GroupPath, data: CommitOffsetsRequest
    ) -> CommitOffsetsResponse:
        """In a stream everything below these offsets is done; in a queue only what was delivered below them."""
        await self._operations.offsets.commit(caller, group_id, data.member_id, data.offsets, data.generation)
        return CommitOffsetsResponse(committed=True)

    @post("/groups/{group_id}/reset", errors=(404, 416), summary="Begin again at an offset or an instant")
    async def reset_offsets(
        self, caller: Caller, group_id: GroupPath, data: ResetOffsetsRequest
    ) -> ResetOffsetsResponse:
        """Back or ahead; receipts from before are void."""
        places = await self._operations.offsets.reset(caller, group_id, data.topic, data.partitions, _beginning(data))
        return ResetOffsetsResponse(reset=True, offsets=_in_text(places))


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


def _beginning(data: ResetOffsetsRequest) -> StartAt | int:
    if sum(each is not None for each in (data.to, data.offset, data.instant)) != 1:
        raise InvalidRequest("give exactly one of to, offset and instant")
    if data.instant is not None:
        return StartAt(from_time_ns=parse_instant_ns(data.instant))
    return data.offset if data.offset is not None else StartAt(latest=data.to == "latest")


def _in_text(offsets: dict[str, dict[int, int]]) -> dict[str, dict[str, int]]:
    return {
        topic: {str(number): offset for number, offset in by_partition.items()}
        for topic, by_partition in offsets.items()
    }


def _names(partitions: Sequence[tuple[str, int]]) -> list[str]:
    """``("orders", 0)`` is ``"orders-0"``."""
    return [f"{topic}-{number}" for topic, number in partitions]


def _state_name(state: str) -> GroupStateName:
    """The names that clients know have none for a group without members."""
    return "rebalancing" if state == "rebalancing" else "stable"


def _details(group: GroupDescription) -> GroupDetails:
    return GroupDetails(
        group_id=group.name,
        state=_state_name(group.state),
        members=[_member(each) for each in group.members],
        generation=group.generation,
        protocol=group.settings.kind,
        settings=asdict(group.settings),
        overrides=group.overrides,
        lag=[_lag(each, number) for each, number in zip(group.lag, group.held_back, strict=True)],
        total_lag=sum(each.lag for each in group.lag),
        total_held_back=sum(group.held_back),
    )


def _member(member: MemberDescription) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        client_id=member.client_id,
        assigned_partitions=_names(member.assigned),
        revoking_partitions=_names(member.revoking),
        in_flight=member.in_flight,
        topics=member.topics,
        session_timeout=format_duration_ms(member.session_timeout_ms),
        instance_id=member.instance_id,
    )


def _lag(each: PartitionLag, held_back: int) -> LagOfPartition:
    where = each.topic, each.partition, each.committed, each.latest
    return LagOfPartition(*where, each.lag, each.in_flight, each.waiting, each.owner, held_back)
