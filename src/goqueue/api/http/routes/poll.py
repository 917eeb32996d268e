"""Polling: the next messages for a member of a group."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from goqueue.api.http.bodies.convert import PageOfMessages
from goqueue.api.http.bodies.durations import bounded_ms
from goqueue.api.http.bodies.fields import EncodingParameter, GroupPath
from goqueue.api.http.bodies.group_schemas import PollMessage, PollResponse
from goqueue.api.http.routes.broker_routes import BrokerRoutes
from goqueue.api.http.routing.declaration import get
from goqueue.api.http.server.request import Request
from goqueue.broker.operations import Delivery, Operations, PollBounds, TimeSlice, decoded

Page = PageOfMessages[PollMessage]
_DEFAULT_WAIT_MS = 30_000


class PollRoutes(BrokerRoutes):
    """Polling."""

    tag = "Groups"

    @get(
        "/groups/{group_id}/poll",
        errors=(404, 409),
        has_effects=True,
        summary="Get the next messages, waiting for them if there are none",
    )
    async def poll(
        self,
        request: Request,
        group_id: GroupPath,
        member_id: Annotated[str, Meta(description="As the join answered it.")],
        max_messages: Annotated[
            int, Meta(ge=1, description="The most messages to answer with; at most limits.max_poll_messages.")
        ] = 100,
        timeout: Annotated[
            str | None, Meta(description="How long to wait for a message, at most http.max_wait_ms; 30s if left out.")
        ] = None,
        encoding: EncodingParameter = None,
    ) -> PollResponse:
        """In a queue other members do not get them until they are given back or their visibility timeout is over."""
        caller, config = request.caller, self._config
        if timeout is None:
            wait_ms = min(_DEFAULT_WAIT_MS, config.max_wait_ms)
        else:
            wait_ms = bounded_ms("timeout", timeout, config.max_wait_ms)
        limits = PollBounds(max_messages, config.max_read_bytes, wait_ms)
        polling = self._operations.queues.poll(caller, group_id, member_id, limits)
        found = await (request.waiting_read(polling) if wait_ms else polling)
        page = Page(encoding, config.max_read_bytes)
        damaged: dict[str, dict[str, list[int]]] = {}
        for delivery in found:
            if hurt := await _write(self._operations, page, delivery):
                self._operations.queues.report_damage(caller, group_id, delivery, hurt)
                damaged.setdefault(delivery.topic, {}).setdefault(str(delivery.partition), []).extend(hurt)
        return PollResponse(page.messages, _next_offsets(found), damaged or UNSET)


async def _write(operations: Operations, page: Page, delivery: Delivery) -> list[int]:
    """All of it: what is not in the answer would stay hidden from everyone until its time is over. Returns the offsets
    of what is damaged."""
    messages, damaged = await decoded(delivery.run)
    hurt: list[int] = delivery.run.columns()["offset"][damaged].tolist() if damaged else []
    max_message_bytes = operations.max_message_bytes(delivery.topic)
    stretch = TimeSlice()
    for message in messages:
        receipt = delivery.receipt(message.offset)
        make = partial(
            PollMessage,
            topic=delivery.topic,
            partition=delivery.partition,
            deliveries=delivery.count if receipt else UNSET,
            receipt_handle=receipt or UNSET,
        )
        page.add(message, max_message_bytes, make, must=True)
        if stretch.is_over:
            await stretch.rest()
    return hurt


def _next_offsets(found: list[Delivery]) -> dict[str, dict[str, int]] | UnsetType:
    """Of a stream; in a queue receipts say what is done."""
    offsets: dict[str, dict[str, int]] = {}
    for delivery in found:
        if delivery.seal is None:
            offsets.setdefault(delivery.topic, {})[str(delivery.partition)] = delivery.next_offset
    return offsets or UNSET
