"""What became of the transactions that records were published in."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain
from typing import Literal

from goqueue.broker.partitions.partition import Partition
from goqueue.model.offset_runs import OffsetRuns
from goqueue.model.runs import pairs
from goqueue.observe.trace import WaitsFor
from goqueue.storage.log import lanes

Fate = Literal["", "open", "aborted"]
"""Empty for a record that is committed, or of no transaction."""


class TransactionOutcomes:
    """Of these records of a partition, as it is right now.

    Looked up for all of them at once: thousands of producers may have a transaction open, and a search looks at
    thousands of records.
    """

    def __init__(self, partition: Partition, offsets: Collection[int]) -> None:
        self._partition = partition
        self._state = state = partition.producers.state
        self._open = OffsetRuns()
        if state.first_open is None or not offsets or max(offsets) < state.first_open:
            return
        low, high = min(offsets), max(offsets)
        records = (each.open for each in state.known.values() if each.open is not None)
        runs = chain.from_iterable((*pairs(each.seen), *pairs(each.delayed)) for each in records)
        self._open = OffsetRuns(sorted((first, end) for first, end in runs if first <= high and end > low))

    def of(self, offset: int) -> Fate:
        if offset in self._open:
            return "open"
        return "aborted" if self._state.is_aborted(offset) else ""

    def waits_for(self, offset: int) -> WaitsFor | None:
        """Whose transaction has to end before anybody sees a record that is there; ``None`` if none has to."""
        first_open = self._state.first_open
        if first_open is None or offset < first_open:
            return None
        opened = [(each_id, each.open) for each_id, each in self._state.known.items() if each.open is not None]
        if offset in self._open:
            own = (
                producer_id
                for producer_id, records in opened
                for first, end in (*pairs(records.seen), *pairs(records.delayed))
                if first <= offset < end
            )
            return WaitsFor(next(own), is_own=True)
        if not self.is_seen(offset):
            return None
        return WaitsFor(next(each_id for each_id, records in opened if records.first == first_open), is_own=False)

    def is_seen(self, offset: int) -> bool:
        """Whether a group sees the record, or will when what lies before it is committed or aborted."""
        if self.of(offset):
            return False
        log, limit = self._partition.log, self._partition.high_watermark
        # What lies outside is not there.
        return not log.start_offset <= offset < limit or lanes.next_visible(log, offset, limit) == offset
