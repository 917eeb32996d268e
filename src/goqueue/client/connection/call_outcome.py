"""Outcome of a request that may be sent several times: whether the broker may have carried it out."""

from __future__ import annotations

from goqueue.client.connection.connection import NotConnected
from goqueue.model.errors import ClientError, GoQueueError, InternalError, RequestTimeout, StorageFailed

_UNCERTAIN_ERRORS = (ClientError, InternalError, RequestTimeout, StorageFailed)
"""Errors after which the broker may have carried out the request; ``NotConnected`` is the exception."""


class CallOutcome:
    """All attempts at one request."""

    def __init__(self) -> None:
        self.maybe_done = False
        """Whether an attempt ended without an answer, so that the broker may have carried it out."""

    def ended(self, error: BaseException) -> None:
        is_uncertain = not isinstance(error, GoQueueError) or isinstance(error, _UNCERTAIN_ERRORS)
        self.maybe_done |= is_uncertain and not isinstance(error, NotConnected)
