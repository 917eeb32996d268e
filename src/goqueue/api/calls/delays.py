"""Delayed messages, call by call."""

from __future__ import annotations

from goqueue.api.calls.limits import AnswerLimits
from goqueue.broker.operations import Caller, DelayedMessage, Operations
from goqueue.model.errors import InvalidRequest
from goqueue.wire.batch import join_frames
from goqueue.wire.frame import encode_message
from goqueue.wire.proto import goqueue_pb2 as pb

_LISTED = 100


class DelayCalls:
    """The service ``Delays``."""

    def __init__(self, operations: Operations, limits: AnswerLimits) -> None:
        self._operations = operations
        self._max_list_bytes = limits.max_listed_bytes

    async def ListDelayed(self, caller: Caller, request: pb.ListDelayedRequest) -> pb.ListDelayedResponse:
        page = await self._operations.delays.page(
            caller, request.topic, request.limit or _LISTED, request.after or None
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

    async def GetDelayed(self, caller: Caller, request: pb.GetDelayedRequest) -> pb.DelayedMessage:
        return _to_delayed(await self._operations.delays.get(caller, request.topic, request.partition, request.offset))

    async def CancelDelayed(self, caller: Caller, request: pb.CancelDelayedRequest) -> pb.CancelDelayedResponse:
        await self._operations.delays.cancel(caller, request.topic, request.partition, request.offset)
        return pb.CancelDelayedResponse()

    async def RescheduleDelayed(self, caller: Caller, request: pb.RescheduleDelayedRequest) -> pb.DelayedMessage:
        when = request.WhichOneof("when")
        if when is None:
            raise InvalidRequest("say when the message is to be seen: delay_ms or deliver_at_ns")
        moved = await self._operations.delays.reschedule(
            caller,
            request.topic,
            request.partition,
            request.offset,
            delay_ms=request.delay_ms if when == "delay_ms" else None,
            deliver_at_ns=request.deliver_at_ns if when == "deliver_at_ns" else None,
        )
        return _to_delayed(moved)

    async def DelayStats(self, caller: Caller, request: pb.DelayStatsRequest) -> pb.DelayStatsResponse:
        stats = self._operations.delays.stats(caller)
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
