"""The broker called directly."""

from __future__ import annotations

import dataclasses
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from behaviour.delays_in_process import DelaysInProcess
from behaviour.driver import Described, Driver, Got, Page, Purged, Result, Stored
from behaviour.groups_in_process import GroupsInProcess, refused
from goqueue.broker.operations import IN_PROCESS, Bounds
from goqueue.model.errors import GoQueueError
from goqueue.model.message import PRIORITY_LABELS, Message
from goqueue.model.publishing import NewMessage, Outcome

T = TypeVar("T")


class InProcessDriver(Driver):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.groups = GroupsInProcess(self.host)
        self.delays = DelaysInProcess(self.host)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self.host.thread.run(work)
        except GoQueueError as error:
            raise refused(error) from error

    def create_topic(self, name: str, **settings: Any) -> int:
        return len(self._run(self.host.broker.create_topic(name, settings)).partitions)

    def list_topics(self) -> list[str]:
        return self.host.broker.operations.topics.names(IN_PROCESS)

    def describe(self, name: str) -> Described:
        return self._run(self._describe(name))

    async def _describe(self, name: str) -> Described:
        topic = self.host.broker.operations.topics.describe(IN_PROCESS, name)
        bounds = {number: (each.earliest, each.latest) for number, each in enumerate(topic.partitions)}
        total = sum(latest - earliest for earliest, latest in bounds.values())
        return Described(topic.topic_id, len(topic.partitions), total, bounds, dataclasses.asdict(topic.settings))

    def change_topic(self, name: str, **settings: Any) -> None:
        self._run(self.host.broker.change_topic(name, settings))

    def unset(self, name: str, *settings: str) -> None:
        self._run(self.host.broker.change_topic(name, {}, settings))

    def purge(self, name: str, partition: int | None = None, before_ns: int | None = None) -> list[Purged]:
        found = self._run(self.host.broker.purge_topic(name, partition, before_ns))
        return [Purged(**dataclasses.asdict(each)) for each in found]

    def delete_topic(self, name: str) -> None:
        self._run(self.host.broker.delete_topic(name))

    def publish(self, topic: str, messages: Sequence[NewMessage]) -> list[Result]:
        return [_result(outcome) for outcome in self._run(self.host.broker.publish(topic, messages))]

    def read(
        self,
        topic: str,
        partition: int = 0,
        *,
        offset: int | None = None,
        from_time_ns: int | None = None,
        limit: int = 100,
        max_bytes: int | None = None,
        wait_ms: int = 0,
    ) -> Page:
        bounds = Bounds(max_bytes or 4 << 20, limit, wait_ms)
        found = self._run(self.host.broker.read(topic, partition, bounds, offset=offset, from_time_ns=from_time_ns))
        return Page([_got(message, partition) for message in found.messages], found.next_offset, found.high_watermark)


def _result(outcome: Outcome) -> Result:
    if isinstance(outcome, GoQueueError):
        return refused(outcome)
    return Stored(outcome.partition, outcome.offset, PRIORITY_LABELS[outcome.priority], outcome.deliver_at_ns)


def _got(message: Message, partition: int) -> Got:
    return Got(
        partition,
        message.offset,
        message.timestamp_ns,
        message.key,
        None if message.tombstone else message.value,
        message.headers,
        PRIORITY_LABELS[message.priority],
    )
