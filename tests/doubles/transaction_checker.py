"""Holds a history of transactions against what was promised; finds what no correct broker could have done.

Every value is written once, so that the final log says which transactions were committed, in which order each key got
its values, and what every read must have been a stretch of. That is the manner of Jepsen's Elle for lists that are
appended to; there is no snapshot over several keys, and none is looked for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from doubles.transaction_history import History, Outcome, Place, Read, Takeover, Transaction
from doubles.transaction_order import find_circles


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: str
    """``made up``, ``dirty write``, ``dirty read``, ``lost write``, ``torn``, ``duplicate``, ``order``, ``not a
    prefix``, ``went back``, ``fenced``, ``processed twice``, ``lost input``, ``came again``, ``circle``."""
    what: str


def check(history: History) -> list[Anomaly]:
    """Everything that is wrong with it; nothing, if it can be explained."""
    return list(_Checker(history).run())


class _Checker:
    def __init__(self, history: History) -> None:
        self._history = history
        self._writers = {value: each for each in history.transactions for value in each.values}
        self._places = {append.value: append.place for each in history.transactions for append in each.appends}
        self._counts: Counter[str] = Counter(value for values in history.log.values() for value in values)
        self._orders = {value: at for values in history.log.values() for at, value in enumerate(values)}

    def run(self) -> Iterator[Anomaly]:
        yield from self._check_log()
        for transaction in self._history.transactions:
            yield from self._check_whole(transaction)
            yield from self._check_own_order(transaction)
        for read in self._history.all_reads():
            yield from self._check_clean(read)
            yield from self._check_prefix(read)
        yield from self._check_never_back()
        yield from self._check_fences()
        yield from self._check_epochs()
        yield from self._check_inputs()
        committed = {value: self._writers[value] for value in self._counts if value in self._writers}
        for circle in find_circles(self._history, committed):
            yield Anomaly("circle", circle)

    def _is_there(self, transaction: Transaction) -> bool:
        return any(value in self._counts for value in transaction.values)

    # What is stored

    def _check_log(self) -> Iterator[Anomaly]:
        for place, values in self._history.log.items():
            for value in values:
                if self._places.get(value) != place:
                    yield Anomaly("made up", f"{value} is in {place}, where nobody wrote it")
        for value, times in self._counts.items():
            if times > 1:
                yield Anomaly("duplicate", f"{value} is there {times} times")

    def _check_whole(self, transaction: Transaction) -> Iterator[Anomaly]:
        missing = [value for value in transaction.values if value not in self._counts]
        there = [value for value in transaction.values if value in self._counts]
        if transaction.outcome is Outcome.ABORTED and there:
            yield Anomaly("dirty write", f"{transaction.name} was aborted, and {there} are there")
        elif there and missing:
            yield Anomaly("torn", f"of {transaction.name} {there} are there, and {missing} are not")
        if transaction.outcome is Outcome.COMMITTED and missing:
            yield Anomaly("lost write", f"{transaction.name} was committed, and {missing} are gone")

    def _check_own_order(self, transaction: Transaction) -> Iterator[Anomaly]:
        sent: dict[Place, list[str]] = defaultdict(list)
        for append in transaction.appends:
            if append.value in self._counts:
                sent[append.place].append(append.value)
        for place, values in sent.items():
            stored = sorted(values, key=self._orders.__getitem__)
            if stored != values:
                yield Anomaly("order", f"{transaction.name} wrote {values} to {place}, and there is {stored}")

    # What was read

    def _check_clean(self, read: Read) -> Iterator[Anomaly]:
        if twice := [value for value, times in Counter(read.values).items() if times > 1]:
            yield Anomaly("duplicate", f"{read.reader} read {twice} more than once in {read.place}")
        for value in read.values:
            writer = self._writers.get(value)
            if writer is None:
                yield Anomaly("made up", f"{read.reader} read {value}, which nobody wrote")
            elif writer.outcome is Outcome.ABORTED:
                yield Anomaly("dirty read", f"{read.reader} read {value} of {writer.name}, which was aborted")
            elif writer.commit_began is None or read.ended < writer.commit_began:
                yield Anomaly("dirty read", f"{read.reader} read {value} of {writer.name}, which was still open")
            elif value not in self._counts:
                yield Anomaly("dirty read", f"{read.reader} read {value} of {writer.name}, which is not there now")

    def _check_prefix(self, read: Read) -> Iterator[Anomaly]:
        final = self._history.log.get(read.place, [])
        expected = final[read.position : read.position + len(read.values)]
        if list(read.values) != expected:
            yield Anomaly(
                "not a prefix",
                f"{read.reader} read {list(read.values)} in {read.place} from its value {read.position} on, "
                f"and there is {expected}",
            )

    def _check_never_back(self) -> Iterator[Anomaly]:
        """A read to the end sees no less than any read that was over before it began."""
        by_place: dict[Place, list[Read]] = defaultdict(list)
        for read in self._history.all_reads():
            by_place[read.place].append(read)
        for place, reads in by_place.items():
            over = sorted(reads, key=lambda read: read.ended)
            most, at = 0, 0
            for read in sorted(reads, key=lambda read: read.began):
                while over[at].ended < read.began:
                    most = max(most, over[at].position + len(over[at].values))
                    at += 1
                seen = read.position + len(read.values)
                if read.to_end and seen < most:
                    yield Anomaly("went back", f"{read.reader} saw {seen} values in {place} after others saw {most}")

    # Who wrote it

    def _check_fences(self) -> Iterator[Anomaly]:
        """Whoever asks after an id was taken over is too late, whatever the answer was."""
        takeovers: dict[str, list[Takeover]] = defaultdict(list)
        for takeover in self._history.takeovers:
            takeovers[takeover.producer].append(takeover)
        for transaction in self._history.transactions:
            asked = transaction.commit_began
            is_committed = transaction.outcome is Outcome.COMMITTED or self._is_there(transaction)
            if asked is None or not is_committed:
                continue
            for takeover in takeovers[transaction.producer]:
                if takeover.epoch > transaction.epoch and takeover.at < asked:
                    yield Anomaly("fenced", f"{transaction.name} was committed after epoch {takeover.epoch} took over")
                    break

    def _check_epochs(self) -> Iterator[Anomaly]:
        """Nothing of an older epoch lies behind something of a newer one."""
        for place, values in self._history.log.items():
            newest: dict[str, int] = {}
            for value in values:
                if (writer := self._writers.get(value)) is None:
                    continue
                if writer.epoch < newest.get(writer.producer, 0):
                    yield Anomaly("fenced", f"{value} of {writer.name} lies behind a newer epoch in {place}")
                newest[writer.producer] = max(writer.epoch, newest.get(writer.producer, 0))

    # What was consumed

    def _check_inputs(self) -> Iterator[Anomaly]:
        processed: dict[str, list[Transaction]] = defaultdict(list)
        for transaction in self._history.transactions:
            if transaction.inputs and self._is_there(transaction):
                for value in transaction.inputs:
                    processed[value].append(transaction)
        for value, by in processed.items():
            if value not in self._history.inputs:
                yield Anomaly("made up", f"{by[0].name} consumed {value}, which nobody sent")
            if len(by) > 1:
                yield Anomaly("processed twice", f"{value} was processed by {[each.name for each in by]}")
            if value in self._history.left:
                yield Anomaly("came again", f"{value} is given out again, and {by[0].name} has processed it")
        for value in self._history.inputs - processed.keys() - self._history.left:
            yield Anomaly("lost input", f"{value} is acked, and nothing that came of it is there")
