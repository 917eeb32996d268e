"""Delayed messages of a broker that is called directly."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from behaviour.delays import DelayCounts, Delays, LaneOfGroup, LanesOfPartition, Waiting, WaitingPage
from behaviour.groups_in_process import refused
from behaviour.host import Host
from goqueue.broker.operations import IN_PROCESS, DelayedMessage, PartitionLanes
from goqueue.model.errors import GoQueueError
from goqueue.model.message import PRIORITY_LABELS

T = TypeVar("T")


class DelaysInProcess(Delays):
    def __init__(self, host: Host) -> None:
        self._host = host

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._host.thread.run(work)
        except GoQueueError as error:
            raise refused(error) from error

    def page(self, topic: str, limit: int = 100, after: str | None = None) -> WaitingPage:
        found = self._run(self._host.broker.operations.delays.page(IN_PROCESS, topic, limit, after))
        return WaitingPage([_waiting(each, with_value=False) for each in found.messages], found.next, found.total)

    def get(self, topic: str, partition: int, offset: int) -> Waiting:
        return _waiting(
            self._run(self._host.broker.operations.delays.get(IN_PROCESS, topic, partition, offset)), with_value=True
        )

    def cancel(self, topic: str, partition: int, offset: int) -> None:
        self._run(self._host.broker.operations.delays.cancel(IN_PROCESS, topic, partition, offset))

    def reschedule(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        delay_ms: int | None = None,
        deliver_at_ns: int | None = None,
    ) -> int:
        work = self._host.broker.operations.delays.reschedule(
            IN_PROCESS, topic, partition, offset, delay_ms=delay_ms, deliver_at_ns=deliver_at_ns
        )
        return self._run(work).deliver_at_ns

    def counts(self) -> DelayCounts:
        async def look() -> DelayCounts:
            stats = self._host.broker.operations.delays.stats(IN_PROCESS)
            tally = stats.tally
            return DelayCounts(
                stats.pending, tally.delivered, tally.cancelled, tally.rescheduled, tally.lost, stats.next_due_ns
            )

        return self._run(look())

    def lanes(self, topic: str) -> list[LanesOfPartition]:
        return [_lanes(each) for each in self._run(self._host.broker.operations.queues.lane_stats(IN_PROCESS, topic))]


def _waiting(found: DelayedMessage, *, with_value: bool) -> Waiting:
    message = found.message
    assert message is not None
    return Waiting(
        found.partition,
        found.offset,
        found.deliver_at_ns,
        message.timestamp_ns,
        message.key,
        message.value if with_value and not message.tombstone else None,
        message.headers,
        PRIORITY_LABELS[message.priority],
    )


def _lanes(found: PartitionLanes) -> LanesOfPartition:
    return LanesOfPartition(
        found.topic,
        found.partition,
        {PRIORITY_LABELS[each.lane]: each.stored for each in found.lanes},
        {PRIORITY_LABELS[each.lane]: each.published for each in found.lanes},
        {
            group.group: {
                PRIORITY_LABELS[each.lane]: LaneOfGroup(each.ready, each.in_flight, each.delivered, each.last_served_ns)
                for each in group.lanes
            }
            for group in found.groups
        },
    )
