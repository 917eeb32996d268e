"""What the producers of a partition were before records that may still be cut off its log.

The state of producers follows from the records in their order; the other way is open only for what was noted here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from goqueue.model.producer_sequences import OpenRecords, Producers, ProducerThen

_AT_A_STRETCH = 256


class _Change(NamedTuple):
    offset: int
    """Of the record by which a producer changed."""
    producer_id: int
    before: ProducerThen | None
    """``None``: it was not known."""
    ended: OpenRecords | None
    """The transaction that the record ended."""
    is_commit: bool


class ProducerUndo:
    def __init__(self) -> None:
        self._changes: deque[_Change] = deque()

    def __len__(self) -> int:
        return len(self._changes)

    def note(
        self,
        state: Producers,
        producer_id: int,
        offset: int,
        *,
        ended: OpenRecords | None = None,
        is_commit: bool = False,
    ) -> None:
        """The state is about to follow a record at ``offset``, which is behind all others."""
        self._changes.append(_Change(offset, producer_id, state.then(producer_id), ended, is_commit))

    def settle(self, below: int) -> None:
        """What lies below this offset will not be cut off any more."""
        changes = self._changes
        while changes and changes[0].offset < below:
            changes.popleft()

    def take_back(self, state: Producers, end: int) -> Iterator[None]:
        """Make the state what follows from the records below ``end``. It may be paused whenever this yields."""
        changes, left = self._changes, _AT_A_STRETCH
        while changes and changes[-1].offset >= end:
            change = changes.pop()
            # Of a transaction that lies behind the cut as a whole nothing is open again.
            ended = change.ended if change.ended is not None and change.ended.first < end else None
            state.restore(change.producer_id, change.before, ended, is_commit=change.is_commit)
            left -= 1
            if not left:
                left = _AT_A_STRETCH
                yield
        state.cut(end)
