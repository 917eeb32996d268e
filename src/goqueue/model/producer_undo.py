"""What the producers of a partition were before records that may still be cut off its log.

The state of producers follows from the records in their order; the other way is open only for what was noted here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from goqueue.model.producer_sequences import OpenRecords, Producers, ProducerThen

_AT_A_STRETCH = 256

Change = tuple[int, int, ProducerThen | None, OpenRecords | None, bool]
"""The offset of a record, whose it is, what that producer was before (``None``: not known), the transaction that the
record has ended, and whether it has committed it."""


class ProducerUndo:
    def __init__(self) -> None:
        self.changes: deque[Change] = deque()
        """By offset. Only ever appended to from outside."""

    def settle(self, below: int) -> None:
        """What lies below this offset will not be cut off any more."""
        changes = self.changes
        while changes and changes[0][0] < below:
            changes.popleft()

    def take_back(self, state: Producers, end: int) -> Iterator[None]:
        """Make the state what follows from the records below ``end``. It may be paused whenever this yields."""
        changes, left = self.changes, _AT_A_STRETCH
        while changes and changes[-1][0] >= end:
            _, producer_id, before, ended, is_commit = changes.pop()
            if ended is not None and ended.first >= end:
                # Of a transaction that lies behind the cut as a whole nothing is open again.
                ended = None
            state.restore(producer_id, before, ended, is_commit=is_commit)
            left -= 1
            if not left:
                left = _AT_A_STRETCH
                yield
        state.cut(end)
