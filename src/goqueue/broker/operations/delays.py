"""Operations on delayed messages: look at what waits, cancel, reschedule."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from goqueue.broker.delays.delayed_messages import DelayedMessage, DelayedPage, DelayStats
from goqueue.broker.operations.caller import Caller
from goqueue.broker.operations.gate import Resource, ResourceOperations, operation


class DelayOperations(ResourceOperations):
    """A delayed message is named by the partition and the offset at which it was published."""

    @operation("delays.list", Resource.TOPIC)
    def page(
        self, caller: Caller, topic: str, limit: int, after: str | None = None
    ) -> Coroutine[Any, Any, DelayedPage]:
        """What waits in a topic, the next due first."""
        return self._host.delays.page(topic, limit, after)

    @operation("delays.get", Resource.TOPIC)
    def get(self, caller: Caller, topic: str, partition: int, offset: int) -> Coroutine[Any, Any, DelayedMessage]:
        """One message that waits."""
        return self._host.delays.get(topic, partition, offset)

    @operation("delays.find_partitions", Resource.TOPIC)
    def partitions_of(self, caller: Caller, topic: str, offset: int) -> list[int]:
        """The partitions in which a message waits at this offset."""
        return self._host.delays.partitions_of(topic, offset)

    @operation("delays.cancel", Resource.TOPIC)
    def cancel(self, caller: Caller, topic: str, partition: int, offset: int) -> Coroutine[Any, Any, None]:
        """Take a message back: no one will see it, not even after a crash."""
        return self._host.delays.cancel(topic, partition, offset)

    @operation("delays.reschedule", Resource.TOPIC)
    def reschedule(
        self,
        caller: Caller,
        topic: str,
        partition: int,
        offset: int,
        *,
        delay_ms: int | None = None,
        deliver_at_ns: int | None = None,
    ) -> Coroutine[Any, Any, DelayedMessage]:
        """Give a message another time; its offset stays the same while it waits."""
        return self._host.delays.reschedule(topic, partition, offset, delay_ms=delay_ms, deliver_at_ns=deliver_at_ns)

    @operation("delays.stats", Resource.BROKER)
    def stats(self, caller: Caller) -> DelayStats:
        """How many messages wait, and what became of others since the broker started."""
        return self._host.delays.stats()
