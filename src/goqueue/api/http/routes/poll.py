"""Polling: the next messages for a member of a group."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter
from msgspec import UNSET, UnsetType

from goqueue.api.http.bodies.convert import PageOfMessages
from goqueue.api.http.bodies.durations import bounded_ms
from goqueue.api.http.bodies.errors import documented
from goqueue.api.http.bodies.group_schemas import PollMessage, PollResponse
from goqueue.api.http.bodies.parameters import EncodingParameter, GroupPath
from goqueue.api.http.caller import AnyRequest, caller_of
from goqueue.api.http.server.admission import Admission
from goqueue.broker.operations import Delivery, Operations, PollBounds, TimeSlice, decoded
from goqueue.model.config import HttpConfig

Page = PageOfMessages[PollMessage]
_DEFAULT_WAIT_MS = 30_000


def poll_routes(operations: Operations, admission: Admission, config: HttpConfig) -> list[HTTPRouteHandler]:
    def bounds(max_messages: int, timeout: str | None) -> PollBounds:
        if timeout is None:
            return PollBounds(max_messages, config.max_read_bytes, min(_DEFAULT_WAIT_MS, config.max_wait_ms))
        return PollBounds(max_messages, config.max_read_bytes, bounded_ms("timeout", timeout, config.max_wait_ms))

    @get(
        "/groups/{group_id:str}/poll",
        tags=["Groups"],
        responses=documented(404, 409),
        summary="Get the next messages, waiting for them if there are none",
    )
    async def poll(
        request: AnyRequest,
        group_id: GroupPath,
        member_id: Annotated[str, QueryParameter(description="As the join answered it.")],
        max_messages: Annotated[
            int, QueryParameter(ge=1, description="The most messages to answer with; at most limits.max_poll_messages.")
        ] = 100,
        timeout: Annotated[
            str | None,
            QueryParameter(description="How long to wait for a message, at most http.max_wait_ms; 30s if left out."),
        ] = None,
        encoding: EncodingParameter = None,
    ) -> PollResponse:
        """In a queue other members do not get them until they are given back or their visibility timeout is over."""
        limits = bounds(max_messages, timeout)
        caller = caller_of(request)
        polling = operations.queues.poll(caller, group_id, member_id, limits)
        found = await (admission.waiting_read(request.receive, polling) if limits.wait_ms else polling)
        page = Page(encoding, config.max_read_bytes)
        damaged: dict[str, dict[str, list[int]]] = {}
        for delivery in found:
            if hurt := await _write(operations, page, delivery):
                operations.queues.report_damage(caller, group_id, delivery, hurt)
                damaged.setdefault(delivery.topic, {}).setdefault(str(delivery.partition), []).extend(hurt)
        return PollResponse(page.messages, _next_offsets(found), damaged or UNSET)

    return [poll]


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
