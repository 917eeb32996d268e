"""The result of publishing one message: its partition, offset and lane."""

from __future__ import annotations

import msgspec


class Published(msgspec.Struct, frozen=True, gc=False):
    """Where a message is."""

    partition: int
    offset: int
    priority: int
    deliver_at_ns: int | None = None
    """Of a delayed message: when readers will see it."""
    is_duplicate: bool = False
    """Whether it was stored before, under the same ``dedup_id``."""
