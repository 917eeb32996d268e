"""Groups, call by call."""

from __future__ import annotations

from goqueue.api.calls.conversion import settings_of, start_at
from goqueue.api.calls.group_messages import (
    from_offsets,
    put_deliveries,
    settle,
    to_assignment,
    to_dead_letter,
    to_filter,
    to_group,
    to_join,
    to_lane_stats,
    to_offsets,
    to_peek,
    to_peek_response,
    to_redrive_response,
)
from goqueue.api.calls.limits import AnswerLimits
from goqueue.broker.operations import Caller, Operations, PollBounds
from goqueue.broker.operations.limits import MAX_NAMED_PARTITIONS
from goqueue.model.errors import InvalidRequest, Overloaded
from goqueue.wire.proto import goqueue_pb2 as pb

_MAX_WAIT_MS = 30_000
_LETTERS = 100
_MAX_LETTERS = 1_000
_REDRIVEN_AT_ONCE = 1_000


class GroupCalls:
    """The service ``Groups``, but for its stream."""

    def __init__(self, operations: Operations, limits: AnswerLimits) -> None:
        self._operations = operations
        self._limits = limits

    async def Join(self, caller: Caller, request: pb.JoinRequest) -> pb.Assignment:
        return to_assignment(await self._operations.groups.join(caller, request.group, to_join(request)))

    async def Heartbeat(self, caller: Caller, request: pb.HeartbeatRequest) -> pb.Assignment:
        generation = request.generation or None
        found = await self._operations.groups.heartbeat(caller, request.group, request.member_id, generation)
        return to_assignment(found)

    async def Leave(self, caller: Caller, request: pb.LeaveRequest) -> pb.LeaveResponse:
        await self._operations.groups.leave(caller, request.group, request.member_id)
        return pb.LeaveResponse()

    async def Poll(self, caller: Caller, request: pb.PollRequest) -> pb.PollResponse:
        limit = self._operations.config.limits.max_poll_messages
        if request.wait_ms > _MAX_WAIT_MS:
            raise InvalidRequest(f"wait_ms is {request.wait_ms}; at most {_MAX_WAIT_MS} is allowed")
        bounds = PollBounds(request.max_messages or limit, self._limits.max_batch_bytes, request.wait_ms)
        queues = self._operations.queues
        found = await queues.poll(caller, request.group, request.member_id, bounds)
        try:
            # Many may have waited for messages when there still was room.
            self._limits.check_room("Poll", sum(len(each.run.frames) for each in found))
        except Overloaded:
            queues.give_back(caller, request.group, request.member_id, found)
            raise
        return put_deliveries(pb.PollResponse(), found)

    async def Settle(self, caller: Caller, request: pb.SettleRequest) -> pb.SettleResponse:
        return await settle(self._operations, caller, request)

    async def CommitOffsets(self, caller: Caller, request: pb.CommitOffsetsRequest) -> pb.CommitOffsetsResponse:
        await self._operations.offsets.commit(
            caller,
            request.group,
            request.member_id,
            to_offsets(request.offsets),
            request.generation or None,
        )
        return pb.CommitOffsetsResponse(correlation_id=request.correlation_id)

    async def FetchOffsets(self, caller: Caller, request: pb.FetchOffsetsRequest) -> pb.FetchOffsetsResponse:
        return from_offsets(await self._operations.offsets.committed(caller, request.group, request.topic or None))

    async def ResetOffsets(self, caller: Caller, request: pb.ResetOffsetsRequest) -> pb.FetchOffsetsResponse:
        if len(request.partitions) > MAX_NAMED_PARTITIONS:
            raise InvalidRequest(
                f"a request names {len(request.partitions)} partitions; {MAX_NAMED_PARTITIONS} are allowed"
            )
        partitions = list(dict.fromkeys(request.partitions)) or None
        return from_offsets(
            await self._operations.offsets.reset(
                caller, request.group, request.topic, partitions, start_at(request.start)
            )
        )

    async def ListGroups(self, caller: Caller, request: pb.ListGroupsRequest) -> pb.ListGroupsResponse:
        return pb.ListGroupsResponse(names=self._operations.groups.names(caller))

    async def DescribeGroup(self, caller: Caller, request: pb.DescribeGroupRequest) -> pb.Group:
        return to_group(await self._operations.groups.describe(caller, request.name))

    async def PeekGroup(self, caller: Caller, request: pb.PeekGroupRequest) -> pb.PeekGroupResponse:
        wanted = to_peek(request, self._limits.max_listed_bytes)
        return to_peek_response(await self._operations.queues.peek(caller, request.group, wanted))

    async def ConfigureGroup(self, caller: Caller, request: pb.ConfigureGroupRequest) -> pb.Group:
        settings = settings_of(request.settings)
        return to_group(await self._operations.groups.configure(caller, request.name, settings))

    async def DeleteGroup(self, caller: Caller, request: pb.DeleteGroupRequest) -> pb.DeleteGroupResponse:
        await self._operations.groups.delete(caller, request.name)
        return pb.DeleteGroupResponse()

    async def ReliabilityStats(
        self, caller: Caller, request: pb.ReliabilityStatsRequest
    ) -> pb.ReliabilityStatsResponse:
        tally = self._operations.queues.settlement_stats(caller)
        return pb.ReliabilityStatsResponse(
            acks=tally.acks,
            nacks=tally.nacks,
            rejects=tally.rejects,
            extensions=tally.extensions,
            redeliveries=tally.redeliveries,
            visibility_timeouts=tally.visibility_timeouts,
            dead_letters=tally.dead_letters,
            redriven=tally.redriven,
            expired=tally.expired,
        )

    async def ListDeadLetters(self, caller: Caller, request: pb.ListDeadLettersRequest) -> pb.ListDeadLettersResponse:
        if request.limit > _MAX_LETTERS:
            raise InvalidRequest(f"limit is {request.limit}; at most {_MAX_LETTERS} is allowed")
        after = (request.from_partition, request.from_offset)
        found = await self._operations.dead_letters.browse(
            caller, request.topic, to_filter(request.filter), request.limit or _LETTERS, after
        )
        return pb.ListDeadLettersResponse(dead_letters=[to_dead_letter(letter) for letter in found])

    async def Redrive(self, caller: Caller, request: pb.RedriveRequest) -> pb.RedriveResponse:
        report = await self._operations.dead_letters.redrive(
            caller,
            request.topic,
            to_filter(request.filter),
            request.limit or _REDRIVEN_AT_ONCE,
            request.rate or None,
            (request.from_partition, request.from_offset),
            dry_run=request.dry_run,
            delay_ms=request.delay_ms or None,
        )
        return to_redrive_response(report)

    async def LaneStats(self, caller: Caller, request: pb.LaneStatsRequest) -> pb.LaneStatsResponse:
        return to_lane_stats(await self._operations.queues.lane_stats(caller, request.topic or None), request)
