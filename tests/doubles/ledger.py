"""What a log promised, kept beside it, to hold against what it serves after a crash."""

from __future__ import annotations

from dataclasses import dataclass, field

from doubles.messages import read_all
from goqueue.storage.log.log import Log


class Broken(AssertionError):
    """A promise of the log was not kept."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A message as it was given to the log. ``batch`` is the first offset of the batch that it belongs to."""

    key: bytes
    value: bytes
    batch: int | None = None
    batch_size: int = 1


@dataclass(slots=True)
class Ledger:
    """``must`` be there; ``may`` be there, of which ``must`` is a part. What is not in ``may`` must not be served."""

    must: dict[int, Entry] = field(default_factory=dict)
    may: dict[int, Entry] = field(default_factory=dict)
    free: set[int] = field(default_factory=set)
    """Offsets in ``may`` that were promised once and may go."""
    acked_end: int = 0

    def appended(self, first: int, entries: list[Entry]) -> None:
        for place, entry in enumerate(entries):
            self.may[first + place] = entry
            self.free.discard(first + place)

    def acked(self, until: int) -> None:
        for offset in [offset for offset in self.may if offset < until and offset not in self.free]:
            self.must[offset] = self.may[offset]
        self.acked_end = max(self.acked_end, until)

    def released(self, offsets: list[int]) -> None:
        """These may go, by retention or compaction."""
        for offset in offsets:
            self.free.add(offset)
            self.must.pop(offset, None)

    def forgotten_below(self, start: int) -> None:
        self.released([offset for offset in self.may if offset < start])

    def superseded(self, below: int) -> None:
        """Compaction may take what a later message of the same key replaces, and tombstones."""
        latest = {entry.key: offset for offset, entry in sorted(self.must.items()) if offset < below}
        self.released(
            [offset for offset, entry in self.must.items() if offset < latest.get(entry.key, 0) or not entry.value]
        )

    def truncating(self, offset: int) -> None:
        self.released([each for each in self.must if each >= offset])
        self.acked_end = min(self.acked_end, offset)

    def truncated(self, offset: int) -> None:
        for each in [each for each in self.may if each >= offset]:
            del self.may[each]

    def damaged(self, offsets: list[int]) -> None:
        self.released(offsets)

    def check(self, log: Log) -> None:
        """Hold the ledger against the log just opened; from here on what is served is promised to stay."""
        served = {message.offset: message for message in read_all(log)}
        offsets = list(served)
        if offsets != sorted(set(offsets)):
            raise Broken(f"offsets do not rise: {offsets}")
        for offset, message in served.items():
            expected = self.may.get(offset)
            if expected is None or (message.value, message.key or b"") != (expected.value, expected.key):
                raise Broken(f"offset {offset} serves what was never there: {message.value[:40]!r}")
        lost = sorted(set(self.must) - set(served))
        if lost:
            raise Broken(f"promised messages are lost: {lost}; served {offsets}")
        if log.end_offset < self.acked_end:
            raise Broken(f"the log ends at {log.end_offset}; {self.acked_end} was promised, offsets would come twice")
        self._check_batches(served.keys() | set(range(log.start_offset)))
        hidden = {offset: entry for offset, entry in self.may.items() if offset < log.start_offset}
        self.must = {offset: self.may[offset] for offset in served}
        self.may = {**hidden, **self.must}
        self.free = set(hidden) - set(self.must)
        self.acked_end = max(self.acked_end, log.end_offset)

    def _check_batches(self, there: set[int]) -> None:
        """A producer's batch is there as a whole or not at all.

        Not if its first message is gone: without the stamp nobody can tell that the others belonged together.
        """
        for offset, entry in self.may.items():
            if entry.batch == offset and offset in there:
                rest = range(offset, offset + entry.batch_size)
                known = [each for each in rest if self.may.get(each, entry).batch == offset]
                if any(each not in there for each in known):
                    raise Broken(f"half a batch is served: {known} of which {[e for e in known if e in there]}")
