"""Publishing and reading, in JSON and as batches of frames."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from litestar import Response, get, post
from litestar.datastructures import ResponseHeader
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody, QueryParameter
from msgspec import UNSET

from goqueue.api.http.bodies.convert import PageOfMessages
from goqueue.api.http.bodies.durations import bounded_ms
from goqueue.api.http.bodies.errors import documented
from goqueue.api.http.bodies.frames import FRAMES, FRAMES_BODY, instant, wants_frames
from goqueue.api.http.bodies.message_schemas import (
    ConsumeAllResponse,
    ConsumeMessage,
    ConsumeResponse,
    DuplicateFrame,
    FramesPublished,
    PublishRequest,
    PublishResponse,
)
from goqueue.api.http.bodies.parameters import EncodingParameter, PartitionPath, TopicPath
from goqueue.api.http.caller import AnyRequest, caller_of
from goqueue.api.http.routes.frame_reads import frames_response
from goqueue.api.http.routes.publish import Publish, trace_of
from goqueue.api.http.server.admission import Admission
from goqueue.api.http.server.openapi import answer
from goqueue.broker.operations import Bounds, MessagesRead, Operations, TimeSlice
from goqueue.broker.operations.limits import UNBOUNDED
from goqueue.model.config import HttpConfig
from goqueue.model.errors import InvalidRequest, UnsupportedMediaType
from goqueue.model.fields import shown
from goqueue.wire.batch import parse_batch

Page = PageOfMessages[ConsumeMessage]

_TAGS = ["Messages"]
_MAX_OFFSET = (1 << 63) - 1
_READ = {
    "messages": [
        {
            "partition": 0,
            "offset": 17,
            "timestamp": "2030-01-01T09:00:00Z",
            "value": "2 tickets",
            "priority": "normal",
            "encoding": "text",
            "key": "order-1",
        }
    ],
    "next_offset": 18,
    "high_watermark": 18,
    "last_stable_offset": 18,
}
_ISOLATIONS = {"read_committed": False, "read_uncommitted": True}
"""By name: whether what is not committed is shown."""

OffsetParameter = Annotated[
    int | None,
    QueryParameter(ge=0, le=_MAX_OFFSET, description="Where to begin; 0 or nothing: at the earliest message."),
]
LimitParameter = Annotated[
    int, QueryParameter(ge=1, description="The most messages to answer with; at most http.max_read_messages.")
]
FromTimeParameter = Annotated[
    str | None, QueryParameter(description="Begin at the first message at or after this instant (RFC 3339).")
]
WaitParameter = Annotated[
    str | None,
    QueryParameter(
        description="How long to wait for a message if there is none, such as 5s; at most http.max_wait_ms."
    ),
]
MaxBytesParameter = Annotated[
    int | None,
    QueryParameter(ge=1, description="The most bytes of frames to answer with; at most http.max_read_bytes."),
]
IsolationParameter = Annotated[
    str,
    QueryParameter(
        description="read_committed: nothing of transactions that are open or were aborted; read_uncommitted: all.",
        schema_extra={"enum": list(_ISOLATIONS)},
    ),
]


def message_routes(
    operations: Operations, admission: Admission, config: HttpConfig, publish_answer: Publish
) -> list[HTTPRouteHandler]:
    def bounds(limit: int, wait: str | None, isolation: str, max_bytes: int | None = None) -> Bounds:
        wait_ms = 0 if wait is None else bounded_ms("wait", wait, config.max_wait_ms)
        for name, value, most in (
            ("limit", limit, config.max_read_messages),
            ("max_bytes", max_bytes or 1, config.max_read_bytes),
        ):
            if value > most:
                raise InvalidRequest(f"{name} is {shown(value)}; at most {most} is allowed")
        uncommitted = _ISOLATIONS.get(isolation)
        if uncommitted is None:
            raise InvalidRequest(f"isolation is {shown(isolation)}; {' and '.join(_ISOLATIONS)} are allowed")
        return Bounds(max_bytes or config.max_read_bytes, limit, wait_ms, uncommitted)

    async def fill(page: Page, read: MessagesRead, topic_name: str, number: int) -> int:
        """Add what fits; return where to go on."""
        max_message_bytes = operations.max_message_bytes(topic_name)
        make = partial(ConsumeMessage, number)
        stretch = TimeSlice()
        for message in read.messages:
            if not page.add(message, max_message_bytes, make):
                return message.offset
            if stretch.is_over:
                await stretch.rest()
        return read.next_offset

    async def read_one(
        request: AnyRequest, name: str, number: int, limits: Bounds, offset: int | None, from_time: str | None
    ) -> MessagesRead:
        read = operations.reading.read(
            caller_of(request), name, number, limits, offset=offset, from_time_ns=instant(offset, from_time)
        )
        return await (admission.waiting_read(request.receive, read) if limits.wait_ms else read)

    @post(
        "/topics/{topic_name:str}/messages",
        tags=_TAGS,
        status_code=200,
        responses=documented(404, 413, 415, 429, 507),
        request_max_body_size=None,
        summary="Publish one message or many",
    )
    async def publish(
        request: AnyRequest, topic_name: TopicPath, data: JSONBody[PublishRequest]
    ) -> Response[PublishResponse]:
        """Answers when they are as durable as the topic promises. One that is refused does not hold up the others."""
        answered = await publish_answer(caller_of(request), topic_name, data, trace_of(request.scope["headers"]))
        return Response(answered.body, status_code=answered.status, headers=answered.headers)

    @get(
        "/topics/{topic_name:str}/messages",
        tags=_TAGS,
        responses=documented(404, 416),
        summary="Read one partition, or all of them",
    )
    async def read_topic(
        request: AnyRequest,
        topic_name: TopicPath,
        partition: Annotated[
            int | None, QueryParameter(ge=0, description="Only this one; all of them if left out.")
        ] = None,
        offset: OffsetParameter = None,
        limit: LimitParameter = 100,
        from_time: FromTimeParameter = None,
        wait: WaitParameter = None,
        encoding: EncodingParameter = None,
        isolation: IsolationParameter = "read_committed",
    ) -> ConsumeAllResponse:
        """Reading removes nothing. Without a partition an offset other than 0 and a wait are refused."""
        if partition is not None:
            limits = bounds(limit, wait, isolation)
            page = Page(encoding, config.max_read_bytes)
            read = await read_one(request, topic_name, partition, limits, offset, from_time)
            next_offset = await fill(page, read, topic_name, partition)
            damaged = {str(partition): read.damaged} if read.damaged else UNSET
            return ConsumeAllResponse(
                page.messages,
                {str(partition): next_offset},
                {str(partition): read.stable_end},
                next_offset,
                read.stable_end,
                damaged,
            )
        if wait is not None:
            raise InvalidRequest("wait needs a partition; without one the answer comes at once")
        if offset:
            raise InvalidRequest("an offset other than 0 needs a partition: each one counts its own")
        limits = bounds(limit, None, isolation)
        left_bytes = limits.max_bytes
        page = Page(encoding, config.max_read_bytes)
        everything = ConsumeAllResponse(page.messages, {}, {})
        caller = caller_of(request)
        starts = await operations.reading.find_starts(caller, topic_name, instant(offset, from_time))
        stretch = TimeSlice()
        for each in starts:
            number = each.partition
            if stretch.is_over:
                await stretch.rest()
            share = -(-(limit - len(everything.messages)) // (len(starts) - number))
            everything.next_offsets[str(number)] = each.offset
            everything.last_stable_offsets[str(number)] = each.stable_end
            if share and left_bytes > 0:
                here = replace(limits, max_bytes=left_bytes, max_messages=share)
                read = await operations.reading.read(caller, topic_name, number, here, offset=each.offset)
                everything.last_stable_offsets[str(number)] = read.stable_end
                left_bytes -= sum(len(message.value) for message in read.messages)
                everything.next_offsets[str(number)] = await fill(page, read, topic_name, number)
                if read.damaged:
                    everything.damaged = {**(everything.damaged or {}), str(number): read.damaged}
        return everything

    @get(
        "/topics/{topic_name:str}/partitions/{partition_id:int}/messages",
        tags=_TAGS,
        responses={
            **documented(404, 416),
            200: answer(
                ConsumeResponse,
                "Messages in offset order. With Accept: application/octet-stream, a batch of frames.",
                _READ,
            ),
            204: ResponseSpec(None, generate_examples=False, description="No frames to read yet."),
        },
        response_headers=[
            ResponseHeader(name="GoQueue-Next-Offset", description="Where to go on (frames).", documentation_only=True),
            ResponseHeader(
                name="GoQueue-Last-Stable-Offset",
                description="Where what is committed ends (frames).",
                documentation_only=True,
            ),
        ],
        summary="Read a partition by offset or instant",
    )
    async def read_partition(
        request: AnyRequest,
        topic_name: TopicPath,
        partition_id: PartitionPath,
        offset: OffsetParameter = None,
        limit: LimitParameter = 100,
        from_time: FromTimeParameter = None,
        wait: WaitParameter = None,
        max_bytes: MaxBytesParameter = None,
        encoding: EncodingParameter = None,
        isolation: IsolationParameter = "read_committed",
    ) -> Response[Any]:
        """Reading removes nothing, and sees only what is durable."""
        if not wants_frames(request):
            limits = bounds(limit, wait, isolation, max_bytes)
            page = Page(encoding, config.max_read_bytes)
            read = await read_one(request, topic_name, partition_id, limits, offset, from_time)
            next_offset = await fill(page, read, topic_name, partition_id)
            return Response(
                ConsumeResponse(page.messages, next_offset, read.high_watermark, read.stable_end, read.damaged or UNSET)
            )
        limits = bounds(1, wait, isolation, max_bytes)
        # Frames are bounded by bytes, and by messages only if that is asked for.
        most = limit if "limit" in request.query_params else UNBOUNDED
        return await frames_response(
            request,
            operations,
            admission,
            topic_name,
            partition_id,
            replace(limits, max_messages=most),
            offset,
            from_time,
        )

    @post(
        "/topics/{topic_name:str}/partitions/{partition_id:int}/messages",
        tags=_TAGS,
        status_code=200,
        responses=documented(404, 413, 415, 429, 501, 507),
        request_max_body_size=None,
        summary="Publish a batch of frames",
        operation_class=FRAMES_BODY,
    )
    async def publish_frames(
        request: AnyRequest, topic_name: TopicPath, partition_id: PartitionPath
    ) -> FramesPublished:
        """The batch is stored whole or not at all."""
        if request.content_type[0] != FRAMES:
            raise UnsupportedMediaType(f"this path takes a batch of frames; send Content-Type: {FRAMES}")
        caller = caller_of(request)
        operations.publishing.check_target(caller, topic_name, partition_id)
        run = parse_batch(await request.body())
        appended = await operations.publishing.append(caller, topic_name, partition_id, run)
        await appended.durable()
        known = [DuplicateFrame(place, *first) for place, first in appended.duplicates.items()]
        return FramesPublished(partition_id, appended.first_offset, len(run), known or UNSET)

    return [publish, read_topic, read_partition, publish_frames]
