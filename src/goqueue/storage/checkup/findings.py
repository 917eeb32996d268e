"""What a check-up finds, and how bad it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path


class Severity(StrEnum):
    NOTE = "note"
    """Harmless: the next start deals with it, or it only lies there."""
    REPAIRABLE = "repairable"
    """What follows from the log is wrong. No message is lost, and it can be made anew."""
    DAMAGE = "damage"
    """Messages or facts are lost."""


class Repair(StrEnum):
    """What can be done about a finding."""

    NOTHING = "nothing"
    RECOVER = "recover"
    """Open the log as a start does, after making its index files anew where they are wrong."""
    SET_ASIDE = "set_aside"
    """Rename the file: it will be made anew."""
    FORGET_POINT = "forget_point"
    """The same, and drop the recovery point of the log, so that it is read from its beginning."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be. ``path`` is where, ``what`` is wrong, ``meaning`` is what follows."""

    severity: Severity
    path: Path
    what: str
    meaning: str
    advice: str
    repair: Repair = Repair.NOTHING
    first_offset: int | None = None
    """Of what is lost, if that is known."""
    last_offset: int | None = None
    lost_bytes: int = 0


@dataclass(slots=True)
class PartitionReport:
    """One log: what it holds, and what was found."""

    topic: str
    partition: int
    folder: Path
    segments: int = 0
    messages: int = 0
    size_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """A whole data folder. ``findings`` are those that belong to no log."""

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
        """Whether nothing is wrong but what is harmless."""
        return all(each.severity is Severity.NOTE for each in self.every_finding())


NEXT_START = "Nothing needs to be done: the next start does it."
REBUILT = "goqueue doctor --repair makes it anew from the log; so does a broker when it first needs it."
BACKUP = "Restore it from a backup if the messages matter. What is undamaged is served."


def note(path: Path, what: str, meaning: str, advice: str = NEXT_START) -> Finding:
    return Finding(Severity.NOTE, path, what, meaning, advice)


def as_note(finding: Finding, meaning: str) -> Finding:
    """The same thing where it does no harm."""
    return replace(
        finding, severity=Severity.NOTE, meaning=meaning, advice="Nothing needs to be done.", repair=Repair.NOTHING
    )
