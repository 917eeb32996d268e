"""Reading a partition by offset as one batch of frames (``application/octet-stream``)."""

from __future__ import annotations

from litestar import Response

from goqueue.api.http.bodies.frames import FRAMES, instant
from goqueue.api.http.caller import AnyRequest, caller_of
from goqueue.api.http.server.admission import Admission
from goqueue.broker.operations import Bounds, Operations


async def frames_response(
    request: AnyRequest,
    operations: Operations,
    admission: Admission,
    name: str,
    number: int,
    bounds: Bounds,
    offset: int | None,
    from_time: str | None,
) -> Response[bytes]:
    """One batch, or an empty body with status 204 when there is nothing to read."""
    reading = operations.reading.read_frames(
        caller_of(request), name, number, bounds, offset=offset, from_time_ns=instant(offset, from_time)
    )
    read = await (admission.waiting_read(request.receive, reading) if bounds.wait_ms else reading)
    headers = {
        "GoQueue-Next-Offset": str(read.next_offset),
        "GoQueue-High-Watermark": str(read.high_watermark),
        "GoQueue-Last-Stable-Offset": str(read.stable_end),
    }
    if read.run is None:
        return Response(b"", status_code=204, headers=headers)
    return Response(read.run.to_wire(), headers=headers, media_type=FRAMES)
