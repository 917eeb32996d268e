"""Delayed messages over gRPC: lists through the stub, for their bounds, and all else through the client."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import grpc

from behaviour.delays import DelayCounts, Delays, LaneOfGroup, LanesOfPartition, Waiting, WaitingPage
from behaviour.groups_in_process import refused
from goqueue import AsyncClient, DelayedMessage, PartitionLanes
from goqueue.client.admin.delays import to_delayed
from goqueue.client.connection.grpc_connection import to_error
from goqueue.model.message import PRIORITY_LABELS
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.proto import goqueue_pb2_grpc as pb_grpc

_TIMEOUT_S = 60.0


class DelaysOverGrpc(Delays):
    """``channel`` and ``client`` tell the present ones; ``run`` has work done on the client's loop."""

    def __init__(
        self,
        channel: Callable[[], grpc.Channel],
        client: Callable[[], AsyncClient],
        run: Callable[[Coroutine[Any, Any, Any]], Any],
    ) -> None:
        self._channel = channel
        self._client = client
        self._run = run

    def page(self, topic: str, limit: int = 100, after: str | None = None) -> WaitingPage:
        request = pb.ListDelayedRequest(topic=topic, limit=limit, after=after or "")
        try:
            found = pb_grpc.DelaysStub(self._channel()).ListDelayed(request, timeout=_TIMEOUT_S, wait_for_ready=True)
        except grpc.RpcError as error:
            raise refused(to_error(error, "the broker")) from error
        messages = [_waiting(to_delayed(each), with_value=False) for each in found.messages]
        return WaitingPage(messages, found.next or None, found.total)

    def get(self, topic: str, partition: int, offset: int) -> Waiting:
        return _waiting(self._run(self._client().get_delayed(topic, partition, offset)), with_value=True)

    def cancel(self, topic: str, partition: int, offset: int) -> None:
        self._run(self._client().cancel_delayed(topic, partition, offset))

    def reschedule(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        delay_ms: int | None = None,
        deliver_at_ns: int | None = None,
    ) -> int:
        delay = None if delay_ms is None else timedelta(milliseconds=delay_ms)
        work = self._client().reschedule_delayed(topic, partition, offset, delay=delay, deliver_at=deliver_at_ns)
        return int(self._run(work).deliver_at_ns)

    def counts(self) -> DelayCounts:
        stats = self._run(self._client().delay_stats())
        return DelayCounts(
            stats.pending, stats.delivered, stats.cancelled, stats.rescheduled, stats.lost, stats.next_due_ns
        )

    def lanes(self, topic: str) -> list[LanesOfPartition]:
        return [_lanes(each) for each in self._run(self._client().lane_stats(topic))]


def _waiting(found: DelayedMessage, *, with_value: bool) -> Waiting:
    assert not found.damaged
    return Waiting(
        found.partition,
        found.offset,
        found.deliver_at_ns,
        found.timestamp_ns,
        found.key,
        found.value if with_value else None,
        found.headers,
        PRIORITY_LABELS[found.priority],
    )


def _lanes(found: PartitionLanes) -> LanesOfPartition:
    return LanesOfPartition(
        found.topic,
        found.partition,
        {PRIORITY_LABELS[each.priority]: each.stored for each in found.lanes},
        {PRIORITY_LABELS[each.priority]: each.published for each in found.lanes},
        {
            group.group: {
                PRIORITY_LABELS[each.priority]: LaneOfGroup(
                    each.ready, each.in_flight, each.delivered, each.last_served_ns
                )
                for each in group.lanes
            }
            for group in found.groups
        },
    )
