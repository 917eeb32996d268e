"""Delayed messages, call by call."""

from __future__ import annotations

from goqueue.api.grpc.calls import Calls, answered, caller_of
from goqueue.api.grpc.errors import Context
from goqueue.broker.operations import DelayedMessage, Operations
from goqueue.model.config import GrpcConfig
from goqueue.model.errors import InvalidRequest
from goqueue.wire.batch import join_frames
from goqueue.wire.frame import encode_message
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.proto import goqueue_pb2_grpc as pb_grpc

_LISTED = 100


class DelaysService(pb_grpc.DelaysServicer):
    """Thin: decodes, asks the broker, encodes."""

    def __init__(self, operations: Operations, config: GrpcConfig, calls: Calls) -> None:
        self._operations = operations
        self._max_list_bytes = min(config.max_batch_bytes, config.max_message_bytes // 2)
        self.calls = calls

    @answered
    async def ListDelayed(self, request: pb.ListDelayedRequest, context: Context) -> pb.ListDelayedResponse:
        page = await self._operations.delays.page(
            caller_of(context), request.topic, request.limit or _LISTED, request.after or None
        )
        response = pb.ListDelayedResponse(next=page.next or "", total=page.total)
        left = self._max_list_bytes
        for each in page.messages:
            shown = _to_delayed(each)
            if len(shown.message) > left:
                # It has to be asked for on its own.
                shown.ClearField("message")
            left -= len(shown.message)
            response.messages.append(shown)
        return response

    @answered
    async def GetDelayed(self, request: pb.GetDelayedRequest, context: Context) -> pb.DelayedMessage:
        return _to_delayed(
            await self._operations.delays.get(caller_of(context), request.topic, request.partition, request.offset)
        )

    @answered
    async def CancelDelayed(self, request: pb.CancelDelayedRequest, context: Context) -> pb.CancelDelayedResponse:
        await self._operations.delays.cancel(caller_of(context), request.topic, request.partition, request.offset)
        return pb.CancelDelayedResponse()

    @answered
    async def RescheduleDelayed(self, request: pb.RescheduleDelayedRequest, context: Context) -> pb.DelayedMessage:
        when = request.WhichOneof("when")
        if when is None:
            raise InvalidRequest("say when the message is to be seen: delay_ms or deliver_at_ns")
        moved = await self._operations.delays.reschedule(
            caller_of(context),
            request.topic,
            request.partition,
            request.offset,
            delay_ms=request.delay_ms if when == "delay_ms" else None,
            deliver_at_ns=request.deliver_at_ns if when == "deliver_at_ns" else None,
        )
        return _to_delayed(moved)

    @answered
    async def DelayStats(self, request: pb.DelayStatsRequest, context: Context) -> pb.DelayStatsResponse:
        stats = self._operations.delays.stats(caller_of(context))
        tally = stats.tally
        return pb.DelayStatsResponse(
            pending=stats.pending,
            delivered=tally.delivered,
            cancelled=tally.cancelled,
            rescheduled=tally.rescheduled,
            lost=tally.lost,
            # A producer's clock may be ahead of the broker's.
            delay_ns=max(0, tally.delay_ns),
            next_due_ns=stats.next_due_ns,
        )


def _to_delayed(delayed: DelayedMessage) -> pb.DelayedMessage:
    message = delayed.message
    shown = pb.DelayedMessage(
        topic=delayed.topic, partition=delayed.partition, offset=delayed.offset, deliver_at_ns=delayed.deliver_at_ns
    )
    if message is not None:
        shown.priority = message.priority
        shown.message = join_frames([encode_message(message)], message.timestamp_ns).to_wire()
    return shown
