"""Failures that are no answer of the broker."""

from __future__ import annotations

from goqueue.broker.operations.failures import disk_failure
from goqueue.model.errors import GoQueueError, InternalError
from goqueue.model.logging import get_logger

log = get_logger(__name__)


def unexpected(error: Exception, operation: str) -> GoQueueError:
    """A failing disk is told as such; all else is a defect, whose traceback is in the log and not in the answer."""
    if (failed := disk_failure(error)) is not None:
        log.error(
            "the disk failed a request", error=getattr(error, "strerror", None) or str(error), operation=operation
        )
        return failed
    log.error("a request failed", exc_info=error, operation=operation)
    return InternalError("the broker could not answer; its log tells why")
