"""Batches of frames over HTTP: ``application/octet-stream`` both ways, in the envelope of ``goqueue.wire.batch``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from litestar import Request, Response
from litestar.openapi.spec import OpenAPIMediaType, Operation, RequestBody, Schema
from litestar.openapi.spec.enums import OpenAPIFormat, OpenAPIType

from goqueue.api.http.server.admission import Admission
from goqueue.broker.broker import Broker
from goqueue.broker.partitions.read import Bounds
from goqueue.model.errors import InvalidRequest
from goqueue.model.units import parse_instant_ns

FRAMES = "application/octet-stream"


def wants_frames(request: Request[Any, Any, Any]) -> bool:
    return FRAMES in request.headers.get("accept", "")


def instant(offset: int | None, from_time: str | None) -> int | None:
    """``from_time`` in nanoseconds; a reader begins at an offset or at an instant, not at both."""
    if offset is not None and from_time is not None:
        raise InvalidRequest("offset and from_time exclude each other; give one of them")
    return None if from_time is None else parse_instant_ns(from_time)


async def frames_response(
    request: Request[Any, Any, Any],
    broker: Broker,
    admission: Admission,
    name: str,
    number: int,
    bounds: Bounds,
    offset: int | None,
    from_time: str | None,
) -> Response[bytes]:
    """One batch, or an empty body with status 204 when there is nothing to read."""
    reading = broker.read_frames(name, number, bounds, offset=offset, from_time_ns=instant(offset, from_time))
    read = await (admission.waiting_read(request.receive, reading) if bounds.wait_ms else reading)
    headers = {
        "GoQueue-Next-Offset": str(read.next_offset),
        "GoQueue-High-Watermark": str(read.high_watermark),
        "GoQueue-Last-Stable-Offset": str(read.stable_end),
    }
    if read.run is None:
        return Response(b"", status_code=204, headers=headers)
    return Response(read.run.to_wire(), headers=headers, media_type=FRAMES)


@dataclass
class FRAMES_BODY(Operation):  # noqa: N801
    """Tells OpenAPI that the body is a batch of frames."""

    def __post_init__(self) -> None:
        self.request_body = RequestBody(
            content={FRAMES: OpenAPIMediaType(Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.BINARY))},
            description="A batch of frames: see docs/frames.md.",
            required=True,
        )
