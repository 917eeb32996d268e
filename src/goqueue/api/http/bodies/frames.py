"""Batches of frames over HTTP: ``application/octet-stream`` both ways, in the envelope of ``goqueue.wire.batch``."""

from __future__ import annotations

from dataclasses import dataclass

from litestar.openapi.spec import OpenAPIMediaType, Operation, RequestBody, Schema
from litestar.openapi.spec.enums import OpenAPIFormat, OpenAPIType

from goqueue.api.http.caller import AnyRequest
from goqueue.model.errors import InvalidRequest
from goqueue.model.units import parse_instant_ns

FRAMES = "application/octet-stream"


def wants_frames(request: AnyRequest) -> bool:
    return FRAMES in request.headers.get("accept", "")


def instant(offset: int | None, from_time: str | None) -> int | None:
    """``from_time`` in nanoseconds; a reader begins at an offset or at an instant, not at both."""
    if offset is not None and from_time is not None:
        raise InvalidRequest("offset and from_time exclude each other; give one of them")
    return None if from_time is None else parse_instant_ns(from_time)


@dataclass
class FRAMES_BODY(Operation):  # noqa: N801
    """Tells OpenAPI that the body is a batch of frames."""

    def __post_init__(self) -> None:
        self.request_body = RequestBody(
            content={FRAMES: OpenAPIMediaType(Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.BINARY))},
            description="A batch of frames: see docs/frames.md.",
            required=True,
        )
