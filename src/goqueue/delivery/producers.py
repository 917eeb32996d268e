"""What a partition knows of its producers: where each is in its sequence, what of its transaction is open, and what
was aborted.

Pure: it follows from the records of a log in their order, live and after a start alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from goqueue.model.errors import DuplicateSequence, OutOfOrderSequence, ProducerFenced
from goqueue.model.offset_runs import OffsetRuns
from goqueue.model.runs import Runs, add_run, pairs

WINDOW = 5
"""How many of its last batches a producer may send again and be told where they are."""
_SEQUENCES = 1 << 31


class SentBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A batch that was stored."""

    first_sequence: int
    count: int
    first_offset: int


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

    def has(self, offset: int) -> bool:
        return any(first <= offset < end for first, end in (*pairs(self.seen), *pairs(self.delayed)))


class Producer(msgspec.Struct, array_like=True):
    """One producer in one partition."""

    epoch: int
    used_ns: int
    batches: list[SentBatch] = []
    open: OpenRecords | None = None


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

    # Deciding

    def find(self, producer_id: int, epoch: int, first_sequence: int, count: int) -> int | None:
        """Where a batch is, if it was stored before; ``None`` if it comes next. Raises if it can be neither."""
        producer = self.known.get(producer_id)
        if producer is None:
            return None
        if epoch < producer.epoch:
            raise ProducerFenced(f"producer {producer_id} has epoch {producer.epoch} by now; this is epoch {epoch}")
        if epoch > producer.epoch:
            if first_sequence:
                raise OutOfOrderSequence(
                    f"producer {producer_id} begins epoch {epoch} with sequence {first_sequence}; 0 is the first"
                )
            return None
        if not producer.batches:
            return None
        for batch in producer.batches:
            if batch.first_sequence == first_sequence and batch.count == count:
                return batch.first_offset
        last = producer.batches[-1]
        expected = (last.first_sequence + last.count) % _SEQUENCES
        if first_sequence == expected:
            return None
        if (expected - first_sequence) % _SEQUENCES <= _SEQUENCES // 2:
            raise DuplicateSequence(
                f"producer {producer_id} sent sequence {first_sequence} before, and the next is {expected}; only its "
                f"last {WINDOW} batches can be told the offsets of"
            )
        raise OutOfOrderSequence(
            f"producer {producer_id} sends sequence {first_sequence}, and the next is {expected}: "
            f"{(first_sequence - expected) % _SEQUENCES} messages are missing"
        )

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        """What a producer that does not count itself comes to next."""
        producer = self.known.get(producer_id)
        if producer is None or producer.epoch != epoch or not producer.batches:
            return 0
        last = producer.batches[-1]
        return (last.first_sequence + last.count) % _SEQUENCES

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

    def opened(self, producer: Producer, first: int, end: int, delayed: Runs) -> None:
        """Records of a transaction lie in the log."""
        if producer.open is None:
            producer.open = OpenRecords(first, end, [], [])
            if self.first_open is None or first < self.first_open:
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
        if records.first == self.first_open:
            self.look_for_open()
        return records

    def look_for_open(self) -> None:
        self.first_open = min((each.open.first for each in self.known.values() if each.open is not None), default=None)

    def open_of(self, producer_id: int) -> OpenRecords | None:
        producer = self.known.get(producer_id)
        return None if producer is None else producer.open

    def owner_of(self, offset: int) -> int | None:
        """Whose open transaction a record belongs to."""
        if self.first_open is None or offset < self.first_open:
            return None
        for producer_id, producer in self.known.items():
            if producer.open is not None and producer.open.has(offset):
                return producer_id
        return None

    def is_aborted(self, offset: int) -> bool:
        return offset in self.aborted or offset in self.aborted_delayed

    # Forgetting

    def forget(self, silent_since_ns: int, most: int) -> int:
        """Forget producers that were silent for too long, and those beyond ``most``; return how many."""
        too_many = len(self.known) - most
        gone: list[int] = []
        for producer_id, producer in self.known.items():
            if producer.used_ns >= silent_since_ns and len(gone) >= too_many:
                break
            if producer.open is None:
                gone.append(producer_id)
        for producer_id in gone:
            del self.known[producer_id]
        return len(gone)

    def drop_below(self, offset: int) -> None:
        """The log has nothing below ``offset`` any more."""
        self.aborted.drop_below(offset)
        self.aborted_delayed.drop_below(offset)
