"""What an audit found, and how it is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from goqueue.spark.pipelines.auditing.audit_kinds import TOLD, Fate
from goqueue.spark.pipelines.running.summary import Summary, Table

_MOST_COMPARED = 100_000
"""More than so many were not just on their way."""


class Unaccounted(NamedTuple):
    """Neighbours that nothing accounts for."""

    partition: int
    first: int
    size: int
    why: str

    def offsets(self) -> range:
        return range(self.first, self.first + self.size)


@dataclass(slots=True)
class Verdict:
    counts: dict[Fate, int] = field(default_factory=dict)
    unaccounted: list[Unaccounted] = field(default_factory=list)
    lag: int | None = None
    """By the broker's count, if the group's state is not known."""
    changing: int = 0
    """What was not accounted for in one look, and was in another."""
    notes: list[str] = field(default_factory=list)
    """What could not be known."""

    @property
    def missing(self) -> int:
        return sum(each.size for each in self.unaccounted)

    def add(self, rows: Iterable[Any]) -> None:
        """Runs with a partition, a fate, a first offset and a size."""
        for row in rows:
            fate = Fate(row["fate"])
            if fate < Fate.NEVER_DELIVERED:
                self.counts[fate] = self.counts.get(fate, 0) + row["size"]
            else:
                self.unaccounted.append(Unaccounted(row["partition"], row["first"], row["size"], TOLD[fate][1]))

    def and_before(self, earlier: Verdict) -> Verdict:
        """Only what an earlier look did not account for either."""
        if max(self.missing, earlier.missing) <= _MOST_COMPARED:
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


def told(verdict: Verdict, topic: str, most: int) -> Summary:
    rows = [[*TOLD[fate][:1], count, *TOLD[fate][1:]] for fate, count in sorted(verdict.counts.items())]
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
        listed = list(islice(_listed(verdict, topic), most))
        summary.tables.append(Table("not accounted for", ["topic", "partition", "offset", "why"], listed))
    if verdict.missing > most:
        summary.notes.append(f"The first {most} are listed; show= lists more.")
    summary.notes += verdict.notes
    if verdict.lag is not None:
        summary.notes.append(
            "Without path= only committed offsets and dead letters are known: this adds up, and proves less. "
            f"By the broker's count {verdict.lag} messages are pending."
        )
    return summary


def _listed(verdict: Verdict, topic: str) -> Iterator[list[Any]]:
    for each in sorted(verdict.unaccounted):
        for offset in each.offsets():
            yield [topic, each.partition, offset, each.why]
