"""Parts of requests and answers that several services have."""

from __future__ import annotations

from collections.abc import Mapping

from goqueue.broker.operations import StartAt
from goqueue.model.errors import GoQueueError, InvalidRequest, InvalidSettings, SchemaViolation
from goqueue.model.fields import MAX_FIELDS, too_many_fields
from goqueue.wire.proto import goqueue_pb2 as pb

_MAX_OFFSET = (1 << 63) - 1


def to_error(error: GoQueueError) -> pb.Error:
    return pb.Error(
        code=error.code,
        message=str(error),
        retriable=error.retriable,
        retry_after_ms=retry_after_ms(error),
        misfits=error.misfits if isinstance(error, SchemaViolation) else None,
    )


def retry_after_ms(error: GoQueueError) -> int:
    """0: not given."""
    return 0 if error.retry_after_s is None else max(1, round(error.retry_after_s * 1_000))


def settings_of(given: Mapping[str, str]) -> dict[str, object]:
    """Settings by name: a map has no order on the wire, and problems are to be told in the same order every time."""
    if len(given) > MAX_FIELDS:
        raise InvalidSettings(too_many_fields(len(given)))
    return dict(sorted(given.items()))


def start_at(start: pb.Start) -> StartAt:
    """Where a read begins."""
    match start.WhichOneof("at"):
        case "offset" if not 0 <= start.offset <= _MAX_OFFSET:
            raise InvalidRequest(f"start.offset is {start.offset}; it must not be negative")
        case "offset":
            return StartAt(offset=start.offset)
        case "instant_ns":
            return StartAt(from_time_ns=start.instant_ns)
        case "position" if start.position == pb.POSITION_LATEST:
            return StartAt(latest=True)
        case "position" if start.position != pb.POSITION_EARLIEST:
            raise InvalidRequest(f"start.position is {start.position}; there are 0 (earliest) and 1 (latest)")
        case _:
            return StartAt()
