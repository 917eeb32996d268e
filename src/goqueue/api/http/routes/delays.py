"""Delayed messages: looking at what waits, taking it back, putting it off."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

from msgspec import UNSET, Meta
from msgspec.structs import replace

from goqueue.api.http.bodies.convert import PageOfMessages
from goqueue.api.http.bodies.delay_schemas import (
    CancelDelayedResponse,
    DelayedMessage,
    DelayedMessagesResponse,
    DelayStats,
    RescheduleRequest,
)
from goqueue.api.http.bodies.durations import due
from goqueue.api.http.bodies.fields import (
    AfterParameter,
    DelayedOffsetPath,
    Encoding,
    EncodingParameter,
    PartitionPath,
    TopicPath,
)
from goqueue.api.http.routes.broker_routes import BrokerRoutes
from goqueue.api.http.routing.declaration import Documented, delete, get, patch
from goqueue.broker.operations import Caller
from goqueue.broker.operations import DelayedMessage as FoundMessage
from goqueue.broker.operations.limits import MAX_DELAYED_PAGE
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.errors import AmbiguousOffset, DelayedNotFound, InvalidRequest
from goqueue.model.fields import shown
from goqueue.model.units import format_duration_ms, format_instant_ns

Page = PageOfMessages[DelayedMessage]

_MAX_AFTER_LENGTH = 100
_AT_A_STRETCH = 200
"""Messages: a millisecond or two to describe."""
_LISTED = {
    "topic": "orders",
    "partition": 0,
    "offset": 17,
    "deliver_at": "2030-01-01T09:00:00Z",
    "timestamp": "2029-12-31T09:00:00Z",
    "priority": "normal",
    "size_bytes": 8,
    "encoding": "text",
    "key": "order-1",
}
_SHOWN = {**_LISTED, "value": "reminder"}
_PAGE = {"messages": [_LISTED], "count": 1, "total": 2, "next": "1893488400000000000-0-17"}
_STATS = {
    "pending_count": 2,
    "delivered_count": 40,
    "cancelled_count": 1,
    "rescheduled_count": 0,
    "lost_count": 0,
    "avg_delay": "1m30s",
    "next_due": "2030-01-01T09:00:00Z",
}


class DelayRoutes(BrokerRoutes):
    """Messages that are not due yet."""

    tag = "Delayed messages"

    @get(
        "/topics/{topic_name}/delayed",
        errors=(404,),
        answer=Documented("The next due first.", _PAGE),
        summary="List what waits in a topic",
    )
    async def list_delayed(
        self,
        caller: Caller,
        topic_name: TopicPath,
        limit: Annotated[int, Meta(ge=1, le=MAX_DELAYED_PAGE, description="The most messages to answer with.")] = 100,
        after: AfterParameter = None,
        encoding: EncodingParameter = None,
    ) -> DelayedMessagesResponse:
        """Without their values, page by page."""
        if after is not None and len(after) > _MAX_AFTER_LENGTH:
            raise InvalidRequest(f"after has {len(after)} characters; take it from 'next' of the page before")
        found = await self._operations.delays.page(caller, topic_name, limit, after)
        messages: list[DelayedMessage] = []
        for start in range(0, len(found.messages), _AT_A_STRETCH):
            messages += [_listed(each, encoding) for each in found.messages[start : start + _AT_A_STRETCH]]
            await asyncio.sleep(0)
        return DelayedMessagesResponse(messages, len(messages), found.total, found.next or UNSET)

    @get(
        "/topics/{topic_name}/delayed/{offset}",
        errors=(404, 409),
        answer=Documented("With its value.", _SHOWN),
        summary="Look at a message that waits",
    )
    async def get_delayed(
        self,
        caller: Caller,
        topic_name: TopicPath,
        offset: DelayedOffsetPath,
        partition: Annotated[int, Meta(ge=0, description="Needed if several partitions have one at that offset.")]
        | None = None,
        encoding: EncodingParameter = None,
    ) -> DelayedMessage:
        """With its value."""
        number = partition
        if number is None:
            number = _only_partition(
                self._operations.delays.partitions_of(caller, topic_name, offset), topic_name, offset
            )
        found = await self._operations.delays.get(caller, topic_name, number, offset)
        if found.message is None:
            return _place(found)
        page = Page(encoding, self._config.max_read_bytes)
        page.add(found.message, self._operations.max_message_bytes(found.topic), _maker(found))
        return page.messages[0]

    @delete(
        "/topics/{topic_name}/delayed/{partition_id}/{offset}",
        errors=(404, 507),
        answer=Documented("It is gone.", {"cancelled": True}),
        summary="Take back a message that waits",
    )
    async def cancel_delayed(
        self, caller: Caller, topic_name: TopicPath, partition_id: PartitionPath, offset: DelayedOffsetPath
    ) -> CancelDelayedResponse:
        """Nobody will ever see it, not even after a crash."""
        await self._operations.delays.cancel(caller, topic_name, partition_id, offset)
        return CancelDelayedResponse(cancelled=True)

    @patch(
        "/topics/{topic_name}/delayed/{partition_id}/{offset}",
        errors=(404, 507),
        answer=Documented("With its new time.", _LISTED),
        summary="Give a message that waits another time",
    )
    async def reschedule_delayed(
        self,
        caller: Caller,
        topic_name: TopicPath,
        partition_id: PartitionPath,
        offset: DelayedOffsetPath,
        data: RescheduleRequest,
    ) -> DelayedMessage:
        """It keeps the offset that names it while it waits."""
        if (data.delay is None) == (data.deliverAt is None):
            raise InvalidRequest("say when: give either delay or deliverAt")
        delay_ms, deliver_at_ns = due(data.delay, data.deliverAt, self._operations.clock.now_ns())
        found = await self._operations.delays.reschedule(
            caller, topic_name, partition_id, offset, delay_ms=delay_ms, deliver_at_ns=deliver_at_ns
        )
        return _listed(found, None)

    @get(
        "/delay/stats",
        answer=Documented("Over all topics.", _STATS),
        summary="How many messages wait, and what became of others",
    )
    async def delay_stats(self, caller: Caller) -> DelayStats:
        """Over all topics."""
        stats = self._operations.delays.stats(caller)
        tally = stats.tally
        # A timestamp may lie ahead of the time at which the message became visible.
        average_ns = max(0, tally.delay_ns // tally.delivered) if tally.delivered else 0
        return DelayStats(
            pending_count=stats.pending,
            delivered_count=tally.delivered,
            cancelled_count=tally.cancelled,
            rescheduled_count=tally.rescheduled,
            lost_count=tally.lost,
            avg_delay=format_duration_ms(average_ns // NANOS_PER_MS),
            next_due=UNSET if stats.next_due_ns is None else format_instant_ns(stats.next_due_ns),
        )


def _only_partition(numbers: list[int], topic_name: str, offset: int) -> int:
    if not numbers:
        raise DelayedNotFound(
            f"no message waits at offset {shown(offset)} in any partition of {topic_name!r}: "
            "it was delivered or cancelled, or never delayed"
        )
    if len(numbers) > 1:
        named = ", ".join(map(str, numbers[:20])) + (", …" if len(numbers) > 20 else "")
        raise AmbiguousOffset(f"messages wait at offset {offset} in partitions {named}; say which with ?partition=")
    return numbers[0]


def _place(found: FoundMessage) -> DelayedMessage:
    return DelayedMessage(
        topic=found.topic,
        partition=found.partition,
        offset=found.offset,
        deliver_at=format_instant_ns(found.deliver_at_ns),
    )


def _maker(found: FoundMessage) -> partial[DelayedMessage]:
    return partial(
        DelayedMessage,
        topic=found.topic,
        partition=found.partition,
        deliver_at=format_instant_ns(found.deliver_at_ns),
        size_bytes=0 if found.message is None else len(found.message.value),
    )


def _listed(found: FoundMessage, encoding: Encoding | None) -> DelayedMessage:
    """All but its value: a list of large messages would take long to read, and longer to send."""
    if found.message is None:
        return _place(found)
    page = Page(encoding, 0)
    page.add(replace(found.message, value=b"", compressed=False), 0, _maker(found))
    listed = page.messages[0]
    listed.value = UNSET
    return listed
