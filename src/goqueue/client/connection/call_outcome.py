"""What is known of something that the broker was asked to do."""

from __future__ import annotations

from goqueue.client.connection.connection import NotConnected
from goqueue.model.errors import ClientError, GoQueueError, InternalError, RequestTimeout, StorageFailed

_LEAVE_IT_OPEN = (ClientError, InternalError, RequestTimeout, StorageFailed)
"""After these, but for ``NotConnected``, it is not known whether the broker has done it."""


class Asked:
    """All the times that one thing was asked for."""

    def __init__(self) -> None:
        self.maybe_done = False
        """Whether one of them ended without an answer, so that the broker may have done it."""

    def ended(self, error: BaseException) -> None:
        is_open = not isinstance(error, GoQueueError) or isinstance(error, _LEAVE_IT_OPEN)
        self.maybe_done |= is_open and not isinstance(error, NotConnected)
