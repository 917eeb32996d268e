"""Findings of a check-up, and their severity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path


class Severity(StrEnum):
    NOTE = "note"
    """Harmless: the next start deals with it, or it has no effect."""
    REPAIRABLE = "repairable"
    """Derived data is wrong. No message is lost, and it can be rebuilt from the log."""
    DAMAGE = "damage"
    """Messages or facts are lost."""


class Repair(StrEnum):
    """Possible repairs of a finding."""

    NOTHING = "nothing"
    RECOVER = "recover"
    """Open the log as a start does, after rebuilding wrong index files."""
    SET_ASIDE = "set_aside"
    """Rename the file: it will be rebuilt."""
    FORGET_POINT = "forget_point"
    """Rename the file, and drop the log's recovery point, so that the log is read from its beginning."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem. ``path`` is its location, ``what`` the fault, ``meaning`` the consequence."""

    severity: Severity
    path: Path
    what: str
    meaning: str
    advice: str
    repair: Repair = Repair.NOTHING
    first_offset: int | None = None
    """First lost offset, if known."""
    last_offset: int | None = None
    lost_bytes: int = 0


@dataclass(slots=True)
class PartitionReport:
    """Contents of one log, and the findings on it."""

    topic: str
    partition: int
    folder: Path
    segments: int = 0
    messages: int = 0
    size_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """Result for a whole data folder. ``findings`` are those that belong to no log."""

    root: Path
    partitions: list[PartitionReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    checked_bytes: int = 0
    is_complete: bool = True

    def every_finding(self) -> list[Finding]:
        return [*self.findings, *(each for partition in self.partitions for each in partition.findings)]

    def leave_out(self, is_expected: Callable[[Finding], bool]) -> None:
        self.findings = [each for each in self.findings if not is_expected(each)]
        for partition in self.partitions:
            partition.findings = [each for each in partition.findings if not is_expected(each)]

    def is_healthy(self) -> bool:
        """Whether all findings are harmless."""
        return all(each.severity is Severity.NOTE for each in self.every_finding())


NEXT_START = "Nothing needs to be done: the next start does it."
REBUILT = "goqueue doctor --repair makes it anew from the log; so does a broker when it first needs it."
BACKUP = "Restore it from a backup if the messages matter. What is undamaged is served."


def note(path: Path, what: str, meaning: str, advice: str = NEXT_START) -> Finding:
    return Finding(Severity.NOTE, path, what, meaning, advice)


def damage(
    path: Path, what: str, meaning: str, advice: str = BACKUP, *, first: int | None = None, last: int | None = None
) -> Finding:
    """Messages or facts that are lost: those of the offsets from ``first`` to ``last``, if these are known."""
    return Finding(Severity.DAMAGE, path, what, meaning, advice, first_offset=first, last_offset=last)


def as_note(finding: Finding, meaning: str) -> Finding:
    """The finding as a note, for cases in which it does no harm."""
    return replace(
        finding, severity=Severity.NOTE, meaning=meaning, advice="Nothing needs to be done.", repair=Repair.NOTHING
    )
