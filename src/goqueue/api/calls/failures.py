"""Failures of calls, streams and requests, whatever transport they came by."""

from __future__ import annotations

from goqueue.broker.operations.failures import disk_failure
from goqueue.model.errors import GoQueueError, InternalError, ShuttingDown
from goqueue.model.logging import get_logger

log = get_logger(__name__)


def unexpected(error: Exception, method: str) -> GoQueueError:
    """A failing disk is told as such; all else is a defect: the log has the story, the caller gets no internals."""
    if (failed := disk_failure(error)) is not None:
        log.error("the disk failed a call", error=getattr(error, "strerror", None) or str(error), method=method)
        return failed
    log.error("call failed", exc_info=error, method=method)
    return InternalError("the broker could not answer; its log tells why")


def shutting_down() -> ShuttingDown:
    return ShuttingDown("the broker is stopping; go on when it is back", retry_after_s=1)
