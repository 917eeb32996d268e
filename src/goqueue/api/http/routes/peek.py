"""Looking into a group: what it still has to do, without taking anything."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.api.http.bodies.convert import PageOfMessages
from goqueue.api.http.bodies.fields import DeliveriesField, EncodingParameter, GroupPath, NextPageField, TopicField
from goqueue.api.http.bodies.message_schemas import ConsumeMessage
from goqueue.api.http.routes.broker_routes import BrokerRoutes
from goqueue.api.http.routing.declaration import Documented, get
from goqueue.api.http.server.request import Request
from goqueue.broker.operations import Peek, Peeked, PeekState, Place
from goqueue.broker.operations.limits import MAX_PEEKED
from goqueue.model.units import format_instant_ns

_MAX_AFTER = 300
_MAX_PARTITION = 1 << 31
_PAGE = {
    "messages": [
        {
            "partition": 0,
            "offset": 17,
            "timestamp": "2030-01-01T09:00:00.000000000Z",
            "value": "2 tickets",
            "priority": "normal",
            "encoding": "text",
            "topic": "orders",
            "state": "in-flight",
            "deliveries": 1,
            "member": "worker-1",
            "until": "2030-01-01T09:00:30.250000000Z",
        }
    ],
    "complete": True,
}


class PeekedMessage(ConsumeMessage, kw_only=True):
    """A message that a group is not done with, and where the group is with it."""

    topic: TopicField
    state: Annotated[
        PeekState, Meta(description="in-transaction: acked in one that has not ended; moving: to the dead letters.")
    ]
    deliveries: DeliveriesField = 0
    member: Annotated[str | UnsetType, Meta(description="The member that has it, if one does.")] = UNSET
    until: Annotated[
        str | UnsetType,
        Meta(description="When it is no longer in flight, or is tried again (RFC 3339); left out, that is now."),
    ] = UNSET
    error: Annotated[str | UnsetType, Meta(description="Why it was not done the last time, if anyone said so.")] = UNSET


class PeekResponse(Struct, omit_defaults=True):
    """What a group still has to do."""

    messages: Annotated[list[PeekedMessage], Meta(description="By topic, partition and offset.")]
    complete: Annotated[bool, Meta(description="false: it had looked at enough, and stopped before the page was full.")]
    next: NextPageField | UnsetType = UNSET


class PeekRoutes(BrokerRoutes):
    """Looking into a group."""

    tag = "Groups"

    @get(
        "/groups/{group_id}/messages",
        errors=(404,),
        answer=Documented("Nothing is changed by it.", _PAGE),
        summary="What a group still has to do",
    )
    async def peek(
        self,
        request: Request,
        group_id: GroupPath,
        topic: Annotated[str | None, Meta(description="Only messages of this topic.")] = None,
        partition: Annotated[
            int, Meta(ge=0, le=_MAX_PARTITION, description="Only messages of this partition of the topic.")
        ]
        | None = None,
        state: Annotated[PeekState | None, Meta(description="Only messages that the group is so with.")] = None,
        limit: Annotated[int, Meta(ge=1, le=MAX_PEEKED, description="The most messages to answer with.")] = 100,
        after: Annotated[str, Meta(max_length=_MAX_AFTER, description="Where to go on: next of the page before.")]
        | None = None,
        encoding: EncodingParameter = None,
    ) -> PeekResponse:
        """Messages that the group is not done with. Nothing is taken or changed by it."""
        wanted = Peek(topic, partition, state, limit, after, self._config.max_read_bytes)
        # A search may take long. It ends when its client leaves.
        peeking = self._operations.queues.peek(request.caller, group_id, wanted)
        found = await request.waiting_read(peeking)
        page = PageOfMessages[PeekedMessage](encoding, self._config.max_read_bytes)
        response = PeekResponse(page.messages, found.is_complete, found.next or UNSET)
        for each in found.messages:
            if not page.add(each.message, self._operations.max_message_bytes(each.topic), _maker(each)):
                # Unpacked they are too large for one answer.
                response.next = str(Place(each.topic, each.partition, each.message.offset))
                response.complete = True
                break
        return response


def _maker(each: Peeked) -> partial[PeekedMessage]:
    return partial(
        PeekedMessage,
        partition=each.partition,
        topic=each.topic,
        state=each.state,
        deliveries=each.deliveries,
        member=each.member or UNSET,
        until=format_instant_ns(each.until_ns) if each.until_ns else UNSET,
        error=each.error or UNSET,
    )
