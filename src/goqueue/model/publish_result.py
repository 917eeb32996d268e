"""The result of publishing one message, apart from ``publishing``: errors name it too."""

from __future__ import annotations

import msgspec


class Published(msgspec.Struct, frozen=True, gc=False):
    """Where a message was stored: its partition, offset and lane."""

    partition: int
    offset: int
    priority: int
    deliver_at_ns: int | None = None
    """When readers will see it, if it is delayed."""
    is_duplicate: bool = False
    """Whether a message with the same ``dedup_id`` was stored before; then this is where that one is."""
