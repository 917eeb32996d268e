"""Reading a partition by offset as one batch of frames (``application/octet-stream``)."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response

from goqueue.api.http.bodies.frames import FRAMES, instant
from goqueue.api.http.server.admission import Admission
from goqueue.broker.broker import Broker
from goqueue.broker.partitions.read import Bounds


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
