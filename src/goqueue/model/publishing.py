"""What a caller who publishes hands in, and what comes back."""

from __future__ import annotations

import msgspec

from goqueue.model.errors import GoQueueError
from goqueue.model.message import NO_HEADERS, Headers
from goqueue.model.publish_result import Published


class NewMessage(msgspec.Struct, frozen=True, gc=False):
    """A message to be stored. ``value=None`` is a tombstone; ``timestamp_ns=None`` is now.

    ``ttl_ms``: how long after its timestamp groups may still get it. ``delay_ms`` or ``deliver_at_ns``: not to be seen
    before; at most one of the two.
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
    """Sent to the topic again within its ``dedup_window_ms``, a message with the same id is not stored again."""


Outcome = Published | GoQueueError
"""What became of one message of a request."""
