"""Groups, call by call."""

from __future__ import annotations

import asyncio
from typing import Any

from goqueue.api.grpc.calls import Calls, answered, caller_of, streamed
from goqueue.api.grpc.errors import Context
from goqueue.api.grpc.group_messages import (
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
from goqueue.api.grpc.messages import settings_of, start_at
from goqueue.api.grpc.subscription import Subscription
from goqueue.broker.operations import Operations, PollBounds
from goqueue.broker.operations.limits import MAX_NAMED_PARTITIONS
from goqueue.model.config import GrpcConfig
from goqueue.model.errors import InvalidRequest, Overloaded
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.proto import goqueue_pb2_grpc as pb_grpc

_MAX_WAIT_MS = 30_000
_LETTERS = 100
_MAX_LETTERS = 1_000
_REDRIVEN_AT_ONCE = 1_000


class GroupsService(pb_grpc.GroupsServicer):
    """Thin: decodes, asks the broker, encodes."""

    def __init__(self, operations: Operations, config: GrpcConfig, calls: Calls) -> None:
        self._operations = operations
        self._config = config
        self.calls = calls
        self._subscribed = 0
        self._streams: dict[tuple[str, str], asyncio.Task[Any]] = {}

    @streamed
    async def Subscribe(self, _requests: object, context: Context) -> None:
        self.calls.begin(resumable=True)
        most = min(self._config.max_subscriptions, max(1, self._config.max_concurrent_calls // 2))
        if self._subscribed >= most:
            raise Overloaded(
                f"{self._subscribed} members subscribe already; grpc.max_subscriptions and half of "
                f"grpc.max_concurrent_calls are the bounds",
                retry_after_s=1,
            )
        self._subscribed += 1
        try:
            await Subscription(self._operations, self._config, context, self.calls.stream_room).run(self._streams)
        finally:
            self._subscribed -= 1

    @answered
    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.Assignment:
        return to_assignment(await self._operations.groups.join(caller_of(context), request.group, to_join(request)))

    @answered
    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.Assignment:
        generation = request.generation or None
        found = await self._operations.groups.heartbeat(
            caller_of(context), request.group, request.member_id, generation
        )
        return to_assignment(found)

    @answered
    async def Leave(self, request: pb.LeaveRequest, context: Context) -> pb.LeaveResponse:
        await self._operations.groups.leave(caller_of(context), request.group, request.member_id)
        return pb.LeaveResponse()

    @answered
    async def Poll(self, request: pb.PollRequest, context: Context) -> pb.PollResponse:
        limit = self._operations.config.limits.max_poll_messages
        if request.wait_ms > _MAX_WAIT_MS:
            raise InvalidRequest(f"wait_ms is {request.wait_ms}; at most {_MAX_WAIT_MS} is allowed")
        bounds = PollBounds(request.max_messages or limit, self._config.max_batch_bytes, request.wait_ms)
        caller, queues = caller_of(context), self._operations.queues
        found = await queues.poll(caller, request.group, request.member_id, bounds)
        try:
            # Many may have waited for messages when there still was room.
            self.calls.unread.check_room("Poll", sum(len(each.run.frames) for each in found))
        except Overloaded:
            queues.give_back(caller, request.group, request.member_id, found)
            raise
        return put_deliveries(pb.PollResponse(), found)

    @answered
    async def Settle(self, request: pb.SettleRequest, context: Context) -> pb.SettleResponse:
        return await settle(self._operations, caller_of(context), request)

    @answered
    async def CommitOffsets(self, request: pb.CommitOffsetsRequest, context: Context) -> pb.CommitOffsetsResponse:
        await self._operations.offsets.commit(
            caller_of(context),
            request.group,
            request.member_id,
            to_offsets(request.offsets),
            request.generation or None,
        )
        return pb.CommitOffsetsResponse(correlation_id=request.correlation_id)

    @answered
    async def FetchOffsets(self, request: pb.FetchOffsetsRequest, context: Context) -> pb.FetchOffsetsResponse:
        return from_offsets(
            await self._operations.offsets.committed(caller_of(context), request.group, request.topic or None)
        )

    @answered
    async def ResetOffsets(self, request: pb.ResetOffsetsRequest, context: Context) -> pb.FetchOffsetsResponse:
        if len(request.partitions) > MAX_NAMED_PARTITIONS:
            raise InvalidRequest(
                f"a request names {len(request.partitions)} partitions; {MAX_NAMED_PARTITIONS} are allowed"
            )
        partitions = list(dict.fromkeys(request.partitions)) or None
        return from_offsets(
            await self._operations.offsets.reset(
                caller_of(context), request.group, request.topic, partitions, start_at(request.start)
            )
        )

    @answered
    async def ListGroups(self, request: pb.ListGroupsRequest, context: Context) -> pb.ListGroupsResponse:
        return pb.ListGroupsResponse(names=self._operations.groups.names(caller_of(context)))

    @answered
    async def DescribeGroup(self, request: pb.DescribeGroupRequest, context: Context) -> pb.Group:
        return to_group(await self._operations.groups.describe(caller_of(context), request.name))

    @answered
    async def PeekGroup(self, request: pb.PeekGroupRequest, context: Context) -> pb.PeekGroupResponse:
        max_bytes = min(self._config.max_batch_bytes, self._config.max_message_bytes // 2)
        wanted = to_peek(request, max_bytes)
        return to_peek_response(await self._operations.queues.peek(caller_of(context), request.group, wanted))

    @answered
    async def ConfigureGroup(self, request: pb.ConfigureGroupRequest, context: Context) -> pb.Group:
        settings = settings_of(request.settings)
        return to_group(await self._operations.groups.configure(caller_of(context), request.name, settings))

    @answered
    async def DeleteGroup(self, request: pb.DeleteGroupRequest, context: Context) -> pb.DeleteGroupResponse:
        await self._operations.groups.delete(caller_of(context), request.name)
        return pb.DeleteGroupResponse()

    @answered
    async def ReliabilityStats(
        self, request: pb.ReliabilityStatsRequest, context: Context
    ) -> pb.ReliabilityStatsResponse:
        tally = self._operations.queues.settlement_stats(caller_of(context))
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

    @answered
    async def ListDeadLetters(self, request: pb.ListDeadLettersRequest, context: Context) -> pb.ListDeadLettersResponse:
        if request.limit > _MAX_LETTERS:
            raise InvalidRequest(f"limit is {request.limit}; at most {_MAX_LETTERS} is allowed")
        after = (request.from_partition, request.from_offset)
        found = await self._operations.dead_letters.browse(
            caller_of(context), request.topic, to_filter(request.filter), request.limit or _LETTERS, after
        )
        return pb.ListDeadLettersResponse(dead_letters=[to_dead_letter(letter) for letter in found])

    @answered
    async def Redrive(self, request: pb.RedriveRequest, context: Context) -> pb.RedriveResponse:
        report = await self._operations.dead_letters.redrive(
            caller_of(context),
            request.topic,
            to_filter(request.filter),
            request.limit or _REDRIVEN_AT_ONCE,
            request.rate or None,
            (request.from_partition, request.from_offset),
            dry_run=request.dry_run,
            delay_ms=request.delay_ms or None,
        )
        return to_redrive_response(report)

    @answered
    async def LaneStats(self, request: pb.LaneStatsRequest, context: Context) -> pb.LaneStatsResponse:
        return to_lane_stats(
            await self._operations.queues.lane_stats(caller_of(context), request.topic or None), request
        )
