"""Streams of members over gRPC."""

from __future__ import annotations

from typing import Any

import grpc.aio

from goqueue.api.calls import subscription as calls
from goqueue.api.calls.subscription import Subscription, Subscriptions
from goqueue.api.grpc.calls import Calls, caller_of, streamed
from goqueue.api.grpc.errors import Context, unexpected
from goqueue.api.grpc.stream_room import StreamRoom, Turn
from goqueue.api.grpc.unreadable import check_readable
from goqueue.broker.operations import Operations
from goqueue.model.config import GrpcConfig
from goqueue.model.errors import GoQueueError, Overloaded
from goqueue.wire.proto import goqueue_pb2 as pb


class _GrpcStream:
    """A call in both directions."""

    def __init__(self, context: Context, room: StreamRoom) -> None:
        self._context = context
        self.caller = caller_of(context)
        self.turn: calls.Turn = Turn(room, context)
        self.write = context.write

    async def read(self) -> pb.SubscribeRequest | None:
        read: Any = await self._context.read()
        return None if read is grpc.aio.EOF else check_readable(read)

    def unexpected(self, error: Exception) -> GoQueueError:
        return unexpected(error, "Subscribe", self._context)


class SubscriptionService:
    """As many streams as are configured."""

    def __init__(self, operations: Operations, config: GrpcConfig, calls: Calls) -> None:
        self._config = config
        self.calls = calls
        self._subscribed = 0
        self._subscriptions = Subscriptions(operations, config.max_call_ms, config.max_batch_bytes)

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
            await Subscription(self._subscriptions, _GrpcStream(context, self.calls.stream_room)).run()
        finally:
            self._subscribed -= 1
