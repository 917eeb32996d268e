"""Groups, call by call."""

from __future__ import annotations

import asyncio
from typing import Any

from goqueue.api.grpc.calls import Calls, answered, streamed
from goqueue.api.grpc.errors import Context
from goqueue.api.grpc.group_messages import (
    MAX_CLAIMED,
    describe,
    from_offsets,
    put_deliveries,
    settle,
    to_assignment,
    to_dead_letter,
    to_filter,
    to_join,
    to_offsets,
    to_peek,
    to_peek_response,
    to_redrive_response,
)
from goqueue.api.grpc.lane_messages import to_lane_stats
from goqueue.api.grpc.messages import find_offset
from goqueue.api.grpc.settings import settings_of
from goqueue.api.grpc.subscription import Subscription
from goqueue.broker.broker import Broker
from goqueue.broker.queues.polling import PollBounds
from goqueue.broker.runtime.time_slices import Stretch
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

    def __init__(self, broker: Broker, config: GrpcConfig, calls: Calls) -> None:
        self._broker = broker
        self._config = config
        self.calls = calls
        self._subscribed = 0
        self._streams: dict[tuple[str, str], asyncio.Task[Any]] = {}

    @streamed
    async def Subscribe(self, _requests: object, context: Context) -> None:  # noqa: N802
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
            await Subscription(self._broker, self._config, context, self.calls.stream_room).run(self._streams)
        finally:
            self._subscribed -= 1

    @answered
    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.Assignment:  # noqa: N802
        return to_assignment(self._broker, await self._broker.groups.join(request.group, to_join(request)))

    @answered
    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.Assignment:  # noqa: N802
        generation = request.generation or None
        found = await self._broker.groups.heartbeat(request.group, request.member_id, generation)
        return to_assignment(self._broker, found)

    @answered
    async def Leave(self, request: pb.LeaveRequest, context: Context) -> pb.LeaveResponse:  # noqa: N802
        await self._broker.groups.leave(request.group, request.member_id)
        return pb.LeaveResponse()

    @answered
    async def Poll(self, request: pb.PollRequest, context: Context) -> pb.PollResponse:  # noqa: N802
        limit = self._broker.config.limits.max_poll_messages
        if request.max_messages > limit:
            raise InvalidRequest(f"max_messages is {request.max_messages}; limits.max_poll_messages allows {limit}")
        if request.wait_ms > _MAX_WAIT_MS:
            raise InvalidRequest(f"wait_ms is {request.wait_ms}; at most {_MAX_WAIT_MS} is allowed")
        bounds = PollBounds(request.max_messages or limit, self._config.max_batch_bytes, request.wait_ms)
        polling = self._broker.groups.polling
        found = await polling.poll(request.group, request.member_id, bounds)
        try:
            # Many may have waited for messages when there still was room.
            self.calls.unread.check_room("Poll", sum(len(each.run.frames) for each in found))
        except Overloaded:
            polling.give_back(request.group, request.member_id, found)
            raise
        return put_deliveries(pb.PollResponse(), found)

    @answered
    async def Settle(self, request: pb.SettleRequest, context: Context) -> pb.SettleResponse:  # noqa: N802
        return await settle(self._broker, request)

    @answered
    async def CommitOffsets(  # noqa: N802
        self, request: pb.CommitOffsetsRequest, context: Context
    ) -> pb.CommitOffsetsResponse:
        await self._broker.groups.commit(
            request.group, request.member_id, to_offsets(request.offsets), request.generation or None
        )
        return pb.CommitOffsetsResponse(correlation_id=request.correlation_id)

    @answered
    async def FetchOffsets(  # noqa: N802
        self, request: pb.FetchOffsetsRequest, context: Context
    ) -> pb.FetchOffsetsResponse:
        return from_offsets(await self._broker.groups.offsets(request.group, request.topic or None))

    @answered
    async def ResetOffsets(  # noqa: N802
        self, request: pb.ResetOffsetsRequest, context: Context
    ) -> pb.FetchOffsetsResponse:
        topic = self._broker.topic(request.topic)
        if len(request.partitions) > MAX_CLAIMED:
            raise InvalidRequest(f"a request names {len(request.partitions)} partitions; {MAX_CLAIMED} are allowed")
        places: dict[int, int] = {}
        stretch = Stretch()
        for number in dict.fromkeys(request.partitions) or range(len(topic.partitions)):
            places[number] = find_offset(self._broker, request.topic, number, request.start)
            if stretch.is_over:
                await stretch.rest()
        offsets = {request.topic: places}
        await self._broker.groups.reset(request.group, offsets)
        return from_offsets(offsets)

    @answered
    async def ListGroups(self, request: pb.ListGroupsRequest, context: Context) -> pb.ListGroupsResponse:  # noqa: N802
        return pb.ListGroupsResponse(names=self._broker.groups.shards.names())

    @answered
    async def DescribeGroup(self, request: pb.DescribeGroupRequest, context: Context) -> pb.Group:  # noqa: N802
        return await describe(self._broker, request.name)

    @answered
    async def PeekGroup(self, request: pb.PeekGroupRequest, context: Context) -> pb.PeekGroupResponse:  # noqa: N802
        max_bytes = min(self._config.max_batch_bytes, self._config.max_message_bytes // 2)
        return to_peek_response(await self._broker.groups.peeking.page(request.group, to_peek(request, max_bytes)))

    @answered
    async def ConfigureGroup(self, request: pb.ConfigureGroupRequest, context: Context) -> pb.Group:  # noqa: N802
        await self._broker.groups.configure(request.name, settings_of(request.settings))
        return await describe(self._broker, request.name)

    @answered
    async def DeleteGroup(self, request: pb.DeleteGroupRequest, context: Context) -> pb.DeleteGroupResponse:  # noqa: N802
        await self._broker.groups.delete(request.name)
        return pb.DeleteGroupResponse()

    @answered
    async def ReliabilityStats(  # noqa: N802
        self, request: pb.ReliabilityStatsRequest, context: Context
    ) -> pb.ReliabilityStatsResponse:
        tally = self._broker.groups.settling.tally
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
    async def ListDeadLetters(  # noqa: N802
        self, request: pb.ListDeadLettersRequest, context: Context
    ) -> pb.ListDeadLettersResponse:
        if request.limit > _MAX_LETTERS:
            raise InvalidRequest(f"limit is {request.limit}; at most {_MAX_LETTERS} is allowed")
        after = (request.from_partition, request.from_offset)
        found = await self._broker.groups.dead_letters.browse(
            request.topic, to_filter(request.filter), request.limit or _LETTERS, after
        )
        return pb.ListDeadLettersResponse(dead_letters=[to_dead_letter(letter) for letter in found])

    @answered
    async def Redrive(self, request: pb.RedriveRequest, context: Context) -> pb.RedriveResponse:  # noqa: N802
        report = await self._broker.groups.dead_letters.redrive(
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
    async def LaneStats(self, request: pb.LaneStatsRequest, context: Context) -> pb.LaneStatsResponse:  # noqa: N802
        return to_lane_stats(await self._broker.groups.lane_stats(request.topic or None), request)
