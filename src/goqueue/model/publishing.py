"""One message to publish."""

from __future__ import annotations

import msgspec

from goqueue.model.errors import GoQueueError
from goqueue.model.message import NO_HEADERS, Headers
from goqueue.model.publish_result import Published


class NewMessage(msgspec.Struct, frozen=True, gc=False):
    """A message to be stored. ``value=None`` is a tombstone; ``timestamp_ns=None`` is now.

    Groups get it for ``ttl_ms`` after its timestamp. At most one of ``delay_ms`` and ``deliver_at_ns`` is set; until
    then no reader sees the message.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Headers = NO_HEADERS
    partition: int | None = None
    priority: int = 2
    timestamp_ns: int | None = None
    ttl_ms: int | None = None
    delay_ms: int | None = None
    deliver_at_ns: int | None = None
    dedup_id: str | None = None
    """A message is not stored if the topic got one with the same id within its ``dedup_window_ms``."""


Outcome = Published | GoQueueError
"""The result for one message of a request."""
