"""What a partition knows of its producers: where each is in its sequence, what of its transaction is open, and what
was aborted.

Pure: it follows from the records of a log in their order, live and after a start alike.
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
from goqueue.model.runs import Runs, add_run, pairs
from goqueue.model.sequences import SEQUENCES

WINDOW = 5
"""How many of its last batches a producer may send again and be told where they are."""


class SentBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A batch that was stored."""

    first_sequence: int
    count: int
    first_offset: int

    @property
    def next_sequence(self) -> int:
        """The sequence number of the batch that follows."""
        return (self.first_sequence + self.count) % SEQUENCES


class OpenRecords(msgspec.Struct, array_like=True):
    """What a partition holds of a transaction that has not ended."""

    first: int
    end: int
    seen: Runs
    """Records that readers see once it is committed."""
    delayed: Runs

    def add(self, first: int, end: int, delayed: Runs) -> None:
        """Records from ``first`` to before ``end``, of which some are delayed."""
        at = first
        for low, high in pairs(delayed):
            add_run(self.seen, at, low)
            add_run(self.delayed, low, high)
            at = high
        add_run(self.seen, at, end)
        self.end = max(self.end, end)


class Producer(msgspec.Struct, array_like=True):
    """One producer in one partition."""

    epoch: int
    used_ns: int
    batches: list[SentBatch] = []
    open: OpenRecords | None = None


class OpenDelays:
    """Whose open transaction delayed records belong to: looked up for many at once, of thousands of producers."""

    def __init__(self, opened: Iterable[tuple[int, OpenRecords]]) -> None:
        runs = sorted((first, end, owner) for owner, each in opened for first, end in pairs(each.delayed))
        self._runs = np.array(runs, np.int64).reshape(-1, 3)

    def owners(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """-1 for what is in none."""
        if not len(self._runs):
            return np.full(len(offsets), -1, np.int64)
        at = np.searchsorted(self._runs[:, 0], offsets, side="right") - 1
        inside = (at >= 0) & (offsets < self._runs[at, 1])
        return np.where(inside, self._runs[at, 2], -1)


@dataclass(slots=True)
class Producers:
    """Of one partition, the one that was silent longest first."""

    known: dict[int, Producer] = field(default_factory=dict)
    aborted: OffsetRuns = field(default_factory=OffsetRuns)
    """Records that nobody ever sees."""
    aborted_delayed: OffsetRuns = field(default_factory=OffsetRuns)
    """The same of those that nobody sees anyway, and that are never due."""
    first_open: int | None = None
    """The first record of any transaction that has not ended."""
    _open: OrderedDict[int, OpenRecords] = field(default_factory=OrderedDict, compare=False, repr=False)
    """By producer, in the order of their first records."""

    # Deciding

    def find(self, producer_id: int, epoch: int, first_sequence: int, count: int) -> int | None:
        """Where a batch is, if it was stored before; ``None`` if it comes next. Raises if it can be neither."""
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
                f"producer {producer_id} sent sequence {first_sequence} before, and the next is {expected}; only its "
                f"last {WINDOW} batches can be told the offsets of"
            )
        raise OutOfOrderSequence(
            f"producer {producer_id} sends sequence {first_sequence}, and the next is {expected}: "
            f"{(first_sequence - expected) % SEQUENCES} messages are missing"
        )

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        """What a producer that does not count itself comes to next."""
        producer = self.known.get(producer_id)
        if producer is None or producer.epoch != epoch or not producer.batches:
            return 0
        return producer.batches[-1].next_sequence

    # Following the log

    def stored(self, producer_id: int, epoch: int, batch: SentBatch, now_ns: int) -> Producer:
        """A batch of a producer lies in the log."""
        producer = self.known.pop(producer_id, None)
        if producer is None:
            producer = Producer(epoch, now_ns)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches = []
        # At the end: those that were silent longest stand first.
        self.known[producer_id] = producer
        producer.used_ns = now_ns
        producer.batches.append(batch)
        if len(producer.batches) > WINDOW:
            del producer.batches[0]
        return producer

    def opened(self, producer_id: int, first: int, end: int, delayed: Runs) -> None:
        """Records of a transaction lie in the log, of a batch that was ``stored``."""
        producer = self.known[producer_id]
        if producer.open is None:
            producer.open = self._open[producer_id] = OpenRecords(first, end, [], [])
            if self.first_open is None:
                self.first_open = first
        producer.open.add(first, end, delayed)

    def ended(self, producer_id: int, epoch: int, *, is_commit: bool) -> OpenRecords | None:
        """A marker lies in the log; return what it was about."""
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

    def look_for_open(self) -> None:
        """After a start: what is known came from elsewhere."""
        found = [(each.open.first, each_id, each.open) for each_id, each in self.known.items() if each.open is not None]
        found.sort(key=lambda each: each[0])
        self._open = OrderedDict((each_id, records) for _, each_id, records in found)
        self.first_open = found[0][0] if found else None

    def close_below(self, offset: int) -> int:
        """What lies wholly below this has ended: the marker that told so may be gone. Returns how many seemed open.

        Of one that reaches beyond, the marker lies beyond as well, and is there.
        """
        gone = [each for each, records in self._open.items() if records.end <= offset]
        for producer_id in gone:
            self.ended(producer_id, self.known[producer_id].epoch, is_commit=True)
        return len(gone)

    def keep_aborted(self, is_there: Callable[[int], bool]) -> None:
        """Forget what was aborted and is not there any more. Of a run all or nothing is."""
        self.aborted = OffsetRuns(each for each in self.aborted.runs() if is_there(each[0]))
        self.aborted_delayed = OffsetRuns(each for each in self.aborted_delayed.runs() if is_there(each[0]))

    def open_of(self, producer_id: int) -> OpenRecords | None:
        producer = self.known.get(producer_id)
        return None if producer is None else producer.open

    def open_delays(self) -> OpenDelays:
        """As of now."""
        return OpenDelays(self._open.items())

    def is_aborted(self, offset: int) -> bool:
        return offset in self.aborted or offset in self.aborted_delayed

    # Forgetting

    def forget(self, silent_since_ns: int, most: int) -> int:
        """Forget producers that were silent for too long, and those beyond ``most``; return how many."""
        too_many = len(self.known) - most
        gone: list[int] = []
        if len(self.known) == len(self._open):
            # A new producer's batch must not look at thousands for nothing.
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
        """The log has nothing below ``offset`` any more that was aborted."""
        self.drop_between(0, offset)

    def drop_between(self, low: int, high: int) -> None:
        """The same of a part of the log."""
        self.aborted = self.aborted.without(low, high)
        self.aborted_delayed = self.aborted_delayed.without(low, high)
