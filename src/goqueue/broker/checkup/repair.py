"""Making a data folder as whole as it can be made, by the steps that a start takes. Bytes are never thrown away.

A process that is killed in the middle leaves a folder on which a broker starts, or which can be repaired again: logs
are recovered by the code of a start, and files that are made anew elsewhere are renamed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from goqueue.storage.checkup.findings import Finding, PartitionReport, Repair, Report, Severity
from goqueue.storage.files.checkpoint import CheckpointFile, RecoveryPoint
from goqueue.storage.files.files import Files, OsFiles
from goqueue.storage.log import lanes
from goqueue.storage.log.log import LogOptions
from goqueue.storage.log.open_files import SUFFIXES, OpenFiles
from goqueue.storage.log.recovery import open_log

_MOST_OPEN_FILES = 200
_JOURNALS = "__"


@dataclass(frozen=True, slots=True)
class Repaired:
    """One thing that was done."""

    path: Path
    what: str


def can_repair(report: Report) -> list[Finding]:
    """What would be done something about. A journal that has lost facts is left as it is."""
    logs = [each for partition in _repairable(report) for each in partition.findings]
    return [each for each in (*report.findings, *logs) if each.repair is not Repair.NOTHING]


def repair(
    report: Report, on_done: Callable[[Repaired], None] = lambda done: None, files: Files | None = None
) -> list[Repaired]:
    """Do what ``can_repair`` tells of, and return what was done.

    The caller holds the folder's lock since before the report was made: it must tell of the folder as it is.
    """
    files = files or OsFiles(report.root)
    done: list[Repaired] = []

    def note_done(path: Path, what: str) -> None:
        done.append(Repaired(path, what))
        on_done(done[-1])

    checkpoint = CheckpointFile(files, report.root / "checkpoint")
    points = checkpoint.load()
    for finding in can_repair(report):
        if finding.repair in {Repair.SET_ASIDE, Repair.FORGET_POINT} and files.exists(finding.path):
            note_done(finding.path, f"set aside as {_set_aside(files, finding.path)}")
    for partition in _repairable(report):
        name = str(partition.folder.relative_to(report.root))
        if name in points and any(each.repair is Repair.FORGET_POINT for each in partition.findings):
            del points[name]
            checkpoint.save(points)
            note_done(partition.folder, "its recovery point was dropped")
        if any(each.repair is Repair.RECOVER for each in partition.findings):
            recovered = _recover(files, partition, points.get(name))
            if recovered is not None:
                points[name] = recovered
                checkpoint.save(points)
            note_done(partition.folder, "the log was recovered, and its index files made anew where they were wrong")
    return done


def _repairable(report: Report) -> list[PartitionReport]:
    return [
        each
        for each in report.partitions
        if not (each.topic.startswith(_JOURNALS) and any(found.severity is Severity.DAMAGE for found in each.findings))
    ]


def _set_aside(files: Files, path: Path) -> str:
    """Rename a file so that nobody reads it any more; return its new name."""
    number = 1
    aside = path.with_name(f"{path.name}.damaged")
    while files.exists(aside):
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{number}")
    files.rename(path, aside)
    files.sync_dir(path.parent)
    return aside.name


def _recover(files: Files, partition: PartitionReport, point: RecoveryPoint | None) -> RecoveryPoint | None:
    """Returns the point at which the log is now, with what only the one before can tell."""
    wrong = {_base(each.path) for each in partition.findings if each.repair is Repair.RECOVER}
    for each in partition.findings:
        if each.repair is Repair.RECOVER and each.severity is not Severity.NOTE:
            # Without its index nothing of a segment is believed, be it below a recovery point.
            suffixes = SUFFIXES[1:] if each.path.suffix == SUFFIXES[0] else (each.path.suffix,)
            for suffix in suffixes:
                files.remove(each.path.with_suffix(suffix))
    files.sync_dir(partition.folder)
    opened = open_log(OpenFiles(files, _MOST_OPEN_FILES), partition.folder, LogOptions(), time.time_ns, point)
    for segment in opened.segments:
        if segment.base in wrong and segment.sealed:
            segment.summary()
            lanes.totals_in(segment)
        if segment.base in wrong or point is None or segment.base >= point.base:
            for file in segment.files():
                file.sync()
    files.sync_dir(partition.folder)
    made = None
    if point is not None:
        kept = {"delays_from": point.delays_from, "producers_from": point.producers_from}
        made = msgspec.structs.replace(opened.recovery_point(), **kept)
    opened.close()
    return made


def _base(path: Path) -> int:
    return int(path.stem) if path.stem.isdigit() else -1
