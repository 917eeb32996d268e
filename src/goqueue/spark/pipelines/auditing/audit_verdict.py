"""The verdict of an audit, and its summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from goqueue.spark.pipelines.auditing.audit_kinds import FATE_TEXTS, Fate
from goqueue.spark.pipelines.running.summary import Summary, Table

_MAX_COMPARED = 100_000
"""With more unaccounted messages than this, verdicts are not compared: they were not all just in transition."""


class Unaccounted(NamedTuple):
    """A run of consecutive offsets that no evidence accounts for."""

    partition: int
    first: int
    size: int
    why: str

    def offsets(self) -> range:
        return range(self.first, self.first + self.size)


@dataclass(slots=True)
class Verdict:
    """The messages by fate, and the unaccounted ones."""

    counts: dict[Fate, int] = field(default_factory=dict)
    unaccounted: list[Unaccounted] = field(default_factory=list)
    lag: int | None = None
    """Pending messages by the broker's count, if the group's state is not known."""
    changing: int = 0
    """Messages that were unaccounted for in one pass but not in the other."""
    notes: list[str] = field(default_factory=list)
    """Limits of the evidence."""

    @property
    def missing(self) -> int:
        return sum(each.size for each in self.unaccounted)

    def add(self, rows: Iterable[Any]) -> None:
        """Add runs, each with a partition, a fate, a first offset and a size."""
        for row in rows:
            fate = Fate(row["fate"])
            if fate < Fate.NEVER_DELIVERED:
                self.counts[fate] = self.counts.get(fate, 0) + row["size"]
            else:
                self.unaccounted.append(Unaccounted(row["partition"], row["first"], row["size"], FATE_TEXTS[fate][1]))

    def keep_confirmed(self, earlier: Verdict) -> Verdict:
        """Keep only the messages as unaccounted that an earlier pass did not account for either."""
        if max(self.missing, earlier.missing) <= _MAX_COMPARED:
            known = {(each.partition, offset) for each in earlier.unaccounted for offset in each.offsets()}
            found = self.missing
            self.unaccounted = [
                Unaccounted(each.partition, offset, 1, each.why)
                for each in self.unaccounted
                for offset in each.offsets()
                if (each.partition, offset) in known
            ]
            self.changing = found - self.missing
        return self


def to_summary(verdict: Verdict, topic: str, limit: int) -> Summary:
    rows = [[*FATE_TEXTS[fate][:1], count, *FATE_TEXTS[fate][1:]] for fate, count in sorted(verdict.counts.items())]
    if verdict.changing:
        rows.append(["changing", verdict.changing, "it went from one state to the next while the audit looked"])
    if verdict.missing:
        rows.append(["unaccounted", verdict.missing, "see below"])
    summary = Summary(
        numbers={"messages": sum(row[1] for row in rows), "unaccounted": verdict.missing},
        tables=[Table("what became of them", ["fate", "messages", "meaning"], rows)],
        failed=verdict.missing > 0,
    )
    if verdict.missing:
        listed = list(islice(_unaccounted_rows(verdict, topic), limit))
        summary.tables.append(Table("not accounted for", ["topic", "partition", "offset", "why"], listed))
    if verdict.missing > limit:
        summary.notes.append(f"The first {limit} are listed; show= lists more.")
    summary.notes += verdict.notes
    if verdict.lag is not None:
        summary.notes.append(
            "Without path= only committed offsets and dead letters are known: this adds up, and proves less. "
            f"By the broker's count {verdict.lag} messages are pending."
        )
    return summary


def _unaccounted_rows(verdict: Verdict, topic: str) -> Iterator[list[Any]]:
    for each in sorted(verdict.unaccounted):
        for offset in each.offsets():
            yield [topic, each.partition, offset, each.why]
