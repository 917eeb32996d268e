"""Formats the report of a data folder check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from goqueue.cli.terminal.figure_words import size
from goqueue.cli.terminal.output import Line
from goqueue.cli.terminal.tables import table
from goqueue.observe.logs import escape
from goqueue.storage.checkup.findings import Finding, PartitionReport, Report, Severity

if TYPE_CHECKING:
    from goqueue.broker.checkup.repair import Repaired

_TITLES = ["topic", "partitions", "segments", "records", "size", "findings"]
_STYLES = {Severity.NOTE: "dim", Severity.REPAIRABLE: "yellow", Severity.DAMAGE: "bold red"}
_WORST_FIRST = [Severity.DAMAGE, Severity.REPAIRABLE, Severity.NOTE]


def report_lines(report: Report) -> Iterator[Line]:
    """A table of topics, then every finding, the worst first."""
    rows = [
        [
            topic,
            f"{len(partitions):,}",
            f"{sum(each.segments for each in partitions):,}",
            f"{sum(each.messages for each in partitions):,}",
            size(sum(each.size_bytes for each in partitions)),
            _counted([found for each in partitions for found in each.findings]),
        ]
        for topic, partitions in _by_topic(report).items()
    ]
    yield from table(_TITLES, rows)
    yield []
    found = sorted(report.every_finding(), key=lambda each: _WORST_FIRST.index(each.severity))
    for each, others in _merge_notes(found):
        path = escape(str(each.path.relative_to(report.root))) + (f" and {others:,} more like it" if others else "")
        yield [(f"{each.severity}: ", _STYLES[each.severity]), (f"{path}: {escape(each.what)}", "")]
        yield [(f"  {_sentence(each)}", "")]
    if found:
        yield []
    yield [(_verdict(report), "bold")]


def _merge_notes(found: Sequence[Finding]) -> Iterator[tuple[Finding, int]]:
    """Merge identical notes of several files into one, with the number of the others. Anything worse is listed
    singly."""
    notes = Counter(_note_key(each) for each in found)
    for each in found:
        if each.severity is not Severity.NOTE:
            yield each, 0
        elif count := notes.pop(_note_key(each), 0):
            yield each, count - 1


def _note_key(finding: Finding) -> tuple[str, ...]:
    return finding.severity, finding.what, finding.meaning, finding.advice


def _sentence(finding: Finding) -> str:
    meaning = escape(finding.meaning)
    return f"{meaning[:1].upper()}{meaning[1:]}. {finding.advice}".rstrip()


def repaired_lines(report: Report, repaired: Sequence[Repaired]) -> Iterator[Line]:
    for each in repaired:
        yield [("repaired: ", "green"), (f"{escape(str(each.path.relative_to(report.root)))}: {each.what}", "")]
    yield []


def _by_topic(report: Report) -> dict[str, list[PartitionReport]]:
    found: dict[str, list[PartitionReport]] = {}
    for each in report.partitions:
        found.setdefault(each.topic, []).append(each)
    return found


def _counted(findings: Sequence[Finding]) -> str:
    counts = Counter(each.severity for each in findings)
    words = [f"{counts[each]:,} {_plural(each, counts[each])}" for each in _WORST_FIRST if counts[each]]
    return ", ".join(words) or "ok"


def _plural(severity: Severity, count: int) -> str:
    return "notes" if severity is Severity.NOTE and count != 1 else str(severity)


def _verdict(report: Report) -> str:
    found = report.every_finding()
    if not found:
        return "healthy"
    if report.is_healthy():
        return f"healthy ({_counted(found)})"
    return f"problems found: {_counted(found)}"


def as_json(report: Report, repaired: Sequence[Repaired] | None) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "folder": str(report.root),
        "healthy": report.is_healthy(),
        "checked_bytes": report.checked_bytes,
        "topics": [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": each.partition,
                        "segments": each.segments,
                        "messages": each.messages,
                        "bytes": each.size_bytes,
                    }
                    for each in partitions
                ],
            }
            for topic, partitions in _by_topic(report).items()
        ],
        "findings": [
            *(_finding(report, each, None) for each in report.findings),
            *(_finding(report, each, partition) for partition in report.partitions for each in partition.findings),
        ],
    }
    if repaired is not None:
        answer["repaired"] = [{"path": str(each.path.relative_to(report.root)), "what": each.what} for each in repaired]
    return answer


def _finding(report: Report, finding: Finding, partition: PartitionReport | None) -> dict[str, Any]:
    return {
        "severity": str(finding.severity),
        "path": str(finding.path.relative_to(report.root)),
        "topic": None if partition is None else partition.topic,
        "partition": None if partition is None else partition.partition,
        "what": finding.what,
        "meaning": finding.meaning,
        "advice": finding.advice,
        "repair": str(finding.repair),
        "first_offset": finding.first_offset,
        "last_offset": finding.last_offset,
        "lost_bytes": finding.lost_bytes,
    }
