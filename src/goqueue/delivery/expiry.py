"""Time to live: which messages have expired before they were delivered."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from goqueue.model.clock import NANOS_PER_MS


def expired_indexes(
    timestamps: NDArray[np.int64], own_ttls: Iterable[tuple[int, int]], topic_ttl_ms: int | None, now_ns: int
) -> set[int]:
    """Indexes of the messages whose time to live is over.

    ``own_ttls`` pairs the index of a message with its own time to live in milliseconds, which stands above the topic's.
    """
    expired: set[int] = set()
    if topic_ttl_ms is not None:
        expired.update(np.flatnonzero(timestamps <= now_ns - topic_ttl_ms * NANOS_PER_MS).tolist())
    for index, ttl_ms in own_ttls:
        if int(timestamps[index]) + ttl_ms * NANOS_PER_MS <= now_ns:
            expired.add(index)
        elif topic_ttl_ms is not None:
            expired.discard(index)
    return expired
