"""The producers of a partition: the sequence of each, the open part of its transaction, and the aborted records.

Pure: the state follows from the records of the log in their order, in operation and in recovery.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from goqueue.model.errors import DuplicateSequence, OutOfOrderSequence, ProducerFenced
from goqueue.model.offset_runs import OffsetRuns
from goqueue.model.runs import Runs, add_run, below, pairs

SEQUENCES = 1 << 31
"""Sequence numbers start again at 0 after the largest one that a batch can state."""
MAX_EPOCH = (1 << 15) - 1
WINDOW = 5
"""How many of its latest batches a producer may retry and get their offsets."""
_NO_END = 1 << 62


def next_sequence(first: int, count: int) -> int:
    """The sequence number after ``count`` messages."""
    return (first + count) % SEQUENCES


class SentBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A stored batch."""

    first_sequence: int
    count: int
    first_offset: int

    @property
    def next_sequence(self) -> int:
        """The sequence number of the batch that follows."""
        return next_sequence(self.first_sequence, self.count)


ProducerThen = tuple[int, int, tuple[SentBatch, ...]]
"""What a producer was, but for its open transaction: its epoch, when it was used last, its latest batches."""


class OpenRecords(msgspec.Struct, array_like=True):
    """The records of an open transaction in a partition."""

    first: int
    end: int
    seen: Runs
    """Records that readers see after the commit."""
    delayed: Runs

    def add(self, first: int, end: int, delayed: Runs) -> None:
        """Add records from ``first`` to before ``end``, some of which are delayed."""
        at = first
        for low, high in pairs(delayed):
            add_run(self.seen, at, low)
            add_run(self.delayed, low, high)
            at = high
        add_run(self.seen, at, end)
        self.end = max(self.end, end)

    def cut(self, end: int) -> None:
        """Forget the records from ``end`` on; some lie before."""
        self.seen, self.delayed = below(self.seen, end), below(self.delayed, end)
        self.end = max([*self.seen[-1:], *self.delayed[-1:]])


class Producer(msgspec.Struct, array_like=True):
    """One producer in one partition."""

    epoch: int
    used_ns: int
    batches: list[SentBatch] = []
    open: OpenRecords | None = None


class OpenDelays:
    """The producers of delayed records in open transactions, looked up for many records at once."""

    def __init__(self, opened: Iterable[tuple[int, OpenRecords]]) -> None:
        runs = sorted((first, end, owner) for owner, each in opened for first, end in pairs(each.delayed))
        self._runs = np.array(runs, np.int64).reshape(-1, 3)

    def owners(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """The producer id of each offset; -1 for an offset that is in no open transaction."""
        if not len(self._runs):
            return np.full(len(offsets), -1, np.int64)
        at = np.searchsorted(self._runs[:, 0], offsets, side="right") - 1
        inside = (at >= 0) & (offsets < self._runs[at, 1])
        return np.where(inside, self._runs[at, 2], -1)


@dataclass(slots=True)
class Producers:
    """The producers of one partition, ordered by their last use, the oldest first."""

    known: dict[int, Producer] = field(default_factory=dict)
    aborted: OffsetRuns = field(default_factory=OffsetRuns)
    """Aborted records, which no reader sees."""
    aborted_delayed: OffsetRuns = field(default_factory=OffsetRuns)
    """Aborted delayed records, which never fire."""
    first_open: int | None = None
    """The offset of the first record of any open transaction."""
    _open: OrderedDict[int, OpenRecords] = field(default_factory=OrderedDict, compare=False, repr=False)
    """Open transactions by producer id, in the order of their first records."""

    # Decisions

    def find(self, producer_id: int, epoch: int, first_sequence: int, count: int) -> int | None:
        """The offset of a batch that was stored before; ``None`` if it is the next one. Raises in all other cases."""
        producer = self.known.get(producer_id)
        if producer is None:
            return None
        if epoch < producer.epoch:
            raise ProducerFenced(f"producer {producer_id} has epoch {producer.epoch} by now; this is epoch {epoch}")
        if epoch > producer.epoch or not producer.batches:
            if first_sequence:
                raise OutOfOrderSequence(
                    f"producer {producer_id} begins epoch {epoch} with sequence {first_sequence}; 0 is the first"
                )
            return None
        for batch in producer.batches:
            if batch.first_sequence == first_sequence and batch.count == count:
                return batch.first_offset
        expected = producer.batches[-1].next_sequence
        if first_sequence == expected:
            return None
        if (expected - first_sequence) % SEQUENCES <= SEQUENCES // 2:
            raise DuplicateSequence(
                f"producer {producer_id} sent sequence {first_sequence} before, and the next is {expected}; only the "
                f"offsets of its last {WINDOW} batches are known"
            )
        raise OutOfOrderSequence(
            f"producer {producer_id} sends sequence {first_sequence}, and the next is {expected}: "
            f"{(first_sequence - expected) % SEQUENCES} messages are missing"
        )

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        """The next sequence number of a producer that does not number its messages itself."""
        producer = self.known.get(producer_id)
        if producer is None or producer.epoch != epoch or not producer.batches:
            return 0
        return producer.batches[-1].next_sequence

    # Records of the log

    def stored(self, producer_id: int, epoch: int, batch: SentBatch, now_ns: int) -> ProducerThen | None:
        """Apply: a batch of a producer was appended. Returns what it was before, if it was known."""
        producer = self.known.pop(producer_id, None)
        before: ProducerThen | None = None
        if producer is None:
            producer = Producer(epoch, now_ns)
        else:
            before = (producer.epoch, producer.used_ns, tuple(producer.batches))
            if producer.epoch != epoch:
                producer.epoch = epoch
                producer.batches = []
        # At the end, since the order is that of the last use.
        self.known[producer_id] = producer
        producer.used_ns = now_ns
        producer.batches.append(batch)
        if len(producer.batches) > WINDOW:
            del producer.batches[0]
        return before

    def opened(self, producer_id: int, first: int, end: int, delayed: Runs) -> None:
        """Apply: records of a transaction were appended, in a batch that was passed to ``stored``."""
        producer = self.known[producer_id]
        if producer.open is None:
            producer.open = self._open[producer_id] = OpenRecords(first, end, [], [])
            if self.first_open is None:
                self.first_open = first
        producer.open.add(first, end, delayed)

    def ended(self, producer_id: int, epoch: int, *, is_commit: bool) -> OpenRecords | None:
        """Apply: a transaction marker was appended. Returns the records of the transaction."""
        producer = self.known.get(producer_id)
        if producer is None:
            return None
        records, producer.open = producer.open, None
        if epoch > producer.epoch:
            producer.epoch = epoch
            producer.batches = []
        if records is None:
            return None
        if not is_commit:
            for first, end in pairs(records.seen):
                self.aborted.add(first, end)
            for first, end in pairs(records.delayed):
                self.aborted_delayed.add(first, end)
        del self._open[producer_id]
        self.first_open = next(iter(self._open.values())).first if self._open else None
        return records

    # Taking records back

    def then(self, producer_id: int) -> ProducerThen | None:
        """What a producer is now, for ``restore``."""
        producer = self.known.get(producer_id)
        return None if producer is None else (producer.epoch, producer.used_ns, tuple(producer.batches))

    def restore(
        self, producer_id: int, before: ProducerThen | None, ended: OpenRecords | None, *, is_commit: bool
    ) -> None:
        """Take back what a producer's last record has changed: a batch, or a marker, which has ``ended`` this. The
        records of a transaction are left to ``cut``, and the order of last use is as it is."""
        if before is None:
            self.known.pop(producer_id, None)
            self._open.pop(producer_id, None)
            return
        producer = self.known.get(producer_id)
        if producer is None:
            # It was forgotten since.
            producer = self.known[producer_id] = Producer(*before[:2])
        producer.epoch, producer.used_ns, batches = before
        producer.batches = list(batches)
        if ended is not None:
            producer.open = self._open[producer_id] = ended
            if not is_commit:
                for first, end in pairs(ended.seen):
                    self.aborted = self.aborted.without(first, end)
                for first, end in pairs(ended.delayed):
                    self.aborted_delayed = self.aborted_delayed.without(first, end)

    def cut(self, end: int) -> None:
        """Forget the records from ``end`` on; what producers were before them was restored."""
        self.aborted = self.aborted.without(end, _NO_END)
        self.aborted_delayed = self.aborted_delayed.without(end, _NO_END)
        for producer_id, records in list(self._open.items()):
            if records.first >= end:
                self.known[producer_id].open = None
                del self._open[producer_id]
            elif records.end > end:
                records.cut(end)
        self._open = OrderedDict(sorted(self._open.items(), key=lambda each: each[1].first))
        self.first_open = next(iter(self._open.values())).first if self._open else None

    def look_for_open(self) -> None:
        """Find the open transactions in ``known``, after it was loaded."""
        found = [(each.open.first, each_id, each.open) for each_id, each in self.known.items() if each.open is not None]
        found.sort(key=lambda each: each[0])
        self._open = OrderedDict((each_id, records) for _, each_id, records in found)
        self.first_open = found[0][0] if found else None

    def close_below(self, offset: int) -> int:
        """End transactions that are completely below an offset, since retention may have removed their markers.
        Returns their number.

        The marker of a transaction that extends beyond the offset is beyond it as well, so it was not removed.
        """
        gone = [each for each, records in self._open.items() if records.end <= offset]
        for producer_id in gone:
            self.ended(producer_id, self.known[producer_id].epoch, is_commit=True)
        return len(gone)

    def keep_aborted(self, is_there: Callable[[int], bool]) -> None:
        """Forget aborted runs that were removed from the log. A run is removed as a whole."""
        self.aborted = OffsetRuns(each for each in self.aborted.runs() if is_there(each[0]))
        self.aborted_delayed = OffsetRuns(each for each in self.aborted_delayed.runs() if is_there(each[0]))

    def open_of(self, producer_id: int) -> OpenRecords | None:
        producer = self.known.get(producer_id)
        return None if producer is None else producer.open

    def open_delays(self) -> OpenDelays:
        """The delayed records of open transactions at this moment."""
        return OpenDelays(self._open.items())

    def is_aborted(self, offset: int) -> bool:
        return offset in self.aborted or offset in self.aborted_delayed

    # Forgetting

    def forget(self, silent_since_ns: int, most: int) -> int:
        """Forget producers last used before ``silent_since_ns``, and those beyond ``most``; return their number."""
        too_many = len(self.known) - most
        gone: list[int] = []
        if len(self.known) == len(self._open):
            # Avoid a useless search through thousands of producers for each new one.
            return 0
        for producer_id, producer in self.known.items():
            if producer.used_ns >= silent_since_ns and len(gone) >= too_many:
                break
            if producer.open is None:
                gone.append(producer_id)
        for producer_id in gone:
            del self.known[producer_id]
        return len(gone)

    def drop_below(self, offset: int) -> None:
        """Forget aborted records below ``offset``, which were removed from the log."""
        self.drop_between(0, offset)

    def drop_between(self, low: int, high: int) -> None:
        """Forget aborted records from ``low`` to before ``high``, which were removed from the log."""
        self.aborted = self.aborted.without(low, high)
        self.aborted_delayed = self.aborted_delayed.without(low, high)
