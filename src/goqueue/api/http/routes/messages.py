"""Publishing and reading, in JSON and as batches of frames."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated

from msgspec import UNSET, Meta

from goqueue.api.http.bodies.answer import Answer
from goqueue.api.http.bodies.convert import PageOfMessages
from goqueue.api.http.bodies.durations import bounded_ms
from goqueue.api.http.bodies.fields import EncodingParameter, PartitionPath, TopicPath
from goqueue.api.http.bodies.message_schemas import (
    ConsumeAllResponse,
    ConsumeMessage,
    ConsumeResponse,
    DuplicateFrame,
    FramesPublished,
)
from goqueue.api.http.routes.broker_routes import BrokerRoutes
from goqueue.api.http.routing.declaration import Documented, get, post
from goqueue.api.http.server.request import Request
from goqueue.broker.operations import AppendedBatch, Bounds, MessagesRead, TimeSlice
from goqueue.broker.operations.limits import UNBOUNDED
from goqueue.model.errors import InvalidRequest, UnsupportedMediaType
from goqueue.model.fields import shown
from goqueue.model.units import parse_instant_ns
from goqueue.wire.batch import parse_batch

Page = PageOfMessages[ConsumeMessage]

FRAMES = "application/octet-stream"
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

OffsetParameter = (
    Annotated[int, Meta(ge=0, le=_MAX_OFFSET, description="Where to begin; 0 or nothing: at the earliest message.")]
    | None
)
LimitParameter = Annotated[
    int, Meta(ge=1, description="The most messages to answer with; at most http.max_read_messages.")
]
FromTimeParameter = Annotated[
    str | None, Meta(description="Begin at the first message at or after this instant (RFC 3339).")
]
WaitParameter = Annotated[
    str | None,
    Meta(description="How long to wait for a message if there is none, such as 5s; at most http.max_wait_ms."),
]
MaxBytesParameter = (
    Annotated[int, Meta(ge=1, description="The most bytes of frames to answer with; at most http.max_read_bytes.")]
    | None
)
IsolationParameter = Annotated[
    str,
    Meta(
        description="read_committed: nothing of transactions that are open or were aborted; read_uncommitted: all.",
        extra_json_schema={"enum": list(_ISOLATIONS)},
    ),
]


class MessageRoutes(BrokerRoutes):
    """Reading topics in JSON and as frames, and publishing frames."""

    tag = "Messages"

    @get("/topics/{topic_name}/messages", errors=(404, 416), summary="Read one partition, or all of them")
    async def read_topic(
        self,
        request: Request,
        topic_name: TopicPath,
        partition: Annotated[int, Meta(ge=0, description="Only this one; all of them if left out.")] | None = None,
        offset: OffsetParameter = None,
        limit: LimitParameter = 100,
        from_time: FromTimeParameter = None,
        wait: WaitParameter = None,
        encoding: EncodingParameter = None,
        isolation: IsolationParameter = "read_committed",
    ) -> ConsumeAllResponse:
        """Reading removes nothing. Without a partition an offset other than 0 and a wait are refused."""
        if partition is not None:
            limits = self._bounds(limit, wait, isolation)
            page = Page(encoding, self._config.max_read_bytes)
            read = await self._read(request, topic_name, partition, limits, offset, from_time)
            next_offset = await self._fill(page, read, topic_name, partition)
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
        limits = self._bounds(limit, None, isolation)
        left_bytes = limits.max_bytes
        page = Page(encoding, self._config.max_read_bytes)
        everything = ConsumeAllResponse(page.messages, {}, {})
        starts = await self._operations.reading.find_starts(request.caller, topic_name, _instant(offset, from_time))
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
                read = await self._operations.reading.read(request.caller, topic_name, number, here, offset=each.offset)
                everything.last_stable_offsets[str(number)] = read.stable_end
                left_bytes -= sum(len(message.value) for message in read.messages)
                everything.next_offsets[str(number)] = await self._fill(page, read, topic_name, number)
                if read.damaged:
                    everything.damaged = {**(everything.damaged or {}), str(number): read.damaged}
        return everything

    @get(
        "/topics/{topic_name}/partitions/{partition_id}/messages",
        errors=(404, 416),
        answer=Documented(
            "Messages in offset order. With Accept: application/octet-stream, a batch of frames.",
            _READ,
            ConsumeResponse,
        ),
        others={204: Documented("No frames to read yet.")},
        summary="Read a partition by offset or instant",
    )
    async def read_partition(
        self,
        request: Request,
        topic_name: TopicPath,
        partition_id: PartitionPath,
        offset: OffsetParameter = None,
        limit: LimitParameter = 100,
        from_time: FromTimeParameter = None,
        wait: WaitParameter = None,
        max_bytes: MaxBytesParameter = None,
        encoding: EncodingParameter = None,
        isolation: IsolationParameter = "read_committed",
    ) -> ConsumeResponse | Answer:
        """Reading removes nothing, and sees only what is durable."""
        if FRAMES not in request.header(b"accept"):
            limits = self._bounds(limit, wait, isolation, max_bytes)
            page = Page(encoding, self._config.max_read_bytes)
            read = await self._read(request, topic_name, partition_id, limits, offset, from_time)
            next_offset = await self._fill(page, read, topic_name, partition_id)
            return ConsumeResponse(
                page.messages, next_offset, read.high_watermark, read.stable_end, read.damaged or UNSET
            )
        limits = self._bounds(1, wait, isolation, max_bytes)
        # Frames are bounded by bytes, and by messages only if that is asked for.
        most = limit if _has_limit(request.query) else UNBOUNDED
        limits = replace(limits, max_messages=most)
        return await self._frames(request, topic_name, partition_id, limits, offset, from_time)

    @post(
        "/topics/{topic_name}/partitions/{partition_id}/messages",
        errors=(404, 429, 501, 507),
        summary="Publish a batch of frames",
        body=bytes,
    )
    async def publish_frames(
        self, request: Request, topic_name: TopicPath, partition_id: PartitionPath
    ) -> FramesPublished:
        """The batch is stored whole or not at all."""
        if request.header(b"content-type").partition(";")[0].strip().lower() != FRAMES:
            raise UnsupportedMediaType(f"this path takes a batch of frames; send Content-Type: {FRAMES}")
        self._operations.publishing.check_target(request.caller, topic_name, partition_id)
        run = parse_batch(await request.body())
        appended = self._operations.publishing.append(request.caller, topic_name, partition_id, run)
        if not isinstance(appended, AppendedBatch):
            appended = await appended
        await appended.durable()
        known = [DuplicateFrame(place, *first) for place, first in appended.duplicates.items()]
        return FramesPublished(partition_id, appended.first_offset, len(run), known or UNSET)

    def _bounds(self, limit: int, wait: str | None, isolation: str, max_bytes: int | None = None) -> Bounds:
        wait_ms = 0 if wait is None else bounded_ms("wait", wait, self._config.max_wait_ms)
        for name, value, most in (
            ("limit", limit, self._config.max_read_messages),
            ("max_bytes", max_bytes or 1, self._config.max_read_bytes),
        ):
            if value > most:
                raise InvalidRequest(f"{name} is {shown(value)}; at most {most} is allowed")
        uncommitted = _ISOLATIONS.get(isolation)
        if uncommitted is None:
            raise InvalidRequest(f"isolation is {shown(isolation)}; {' and '.join(_ISOLATIONS)} are allowed")
        return Bounds(max_bytes or self._config.max_read_bytes, limit, wait_ms, uncommitted)

    async def _fill(self, page: Page, read: MessagesRead, topic_name: str, number: int) -> int:
        """Add what fits; return where to go on."""
        max_message_bytes = self._operations.max_message_bytes(topic_name)
        make = partial(ConsumeMessage, number)
        stretch = TimeSlice()
        for message in read.messages:
            if not page.add(message, max_message_bytes, make):
                return message.offset
            if stretch.is_over:
                await stretch.rest()
        return read.next_offset

    async def _read(
        self, request: Request, name: str, number: int, limits: Bounds, offset: int | None, from_time: str | None
    ) -> MessagesRead:
        read = self._operations.reading.read(
            request.caller, name, number, limits, offset=offset, from_time_ns=_instant(offset, from_time)
        )
        return await (request.waiting_read(read) if limits.wait_ms else read)

    async def _frames(
        self, request: Request, name: str, number: int, limits: Bounds, offset: int | None, from_time: str | None
    ) -> Answer:
        """One batch, or an empty body with status 204 when there is nothing to read."""
        reading = self._operations.reading.read_frames(
            request.caller, name, number, limits, offset=offset, from_time_ns=_instant(offset, from_time)
        )
        read = await (request.waiting_read(reading) if limits.wait_ms else reading)
        headers = {
            "GoQueue-Next-Offset": str(read.next_offset),
            "GoQueue-High-Watermark": str(read.high_watermark),
            "GoQueue-Last-Stable-Offset": str(read.stable_end),
        }
        if read.run is None:
            return Answer(b"", 204, "", headers)
        return Answer(read.run.to_wire(), 200, FRAMES, headers)


def _instant(offset: int | None, from_time: str | None) -> int | None:
    """``from_time`` in nanoseconds. A reader begins at an offset or at an instant, not at both."""
    if offset is not None and from_time is not None:
        raise InvalidRequest("offset and from_time exclude each other; give one of them")
    return None if from_time is None else parse_instant_ns(from_time)


def _has_limit(query: bytes) -> bool:
    return any(each.partition(b"=")[0] == b"limit" for each in query.split(b"&"))
