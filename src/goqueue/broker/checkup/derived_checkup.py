"""The files that tell what follows from a partition's log, against the log: who waits, and what producers have done."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from goqueue.broker.partitions.partition_delays import PartitionDelays
from goqueue.broker.partitions.partition_producers import PartitionProducers
from goqueue.model.errors import CorruptData
from goqueue.model.producer_sequences import Producers
from goqueue.storage.checkup.findings import BACKUP, Finding, PartitionReport, Repair, Severity
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.log.log import Log
from goqueue.storage.reader.reader_files import DISK, read_whole
from goqueue.storage.reader.scratch import ScratchFiles

_READ_AGAIN = "goqueue doctor --repair sets it aside; the next start reads the log in its place."
_RESTORE_FILE = (
    "If there is a backup of just this moment, restore the folder from it. A broker starts without the file, and "
    "writes another of what it knows."
)


def check_derived(
    report: PartitionReport, files: ScratchFiles, log: Log, point: RecoveryPoint | None, now_ns: int
) -> None:
    """Learn everything as a start does, with the files and without them. ``files`` lose them on the way.

    A log that has lost something is no measure for what the files tell: then only they themselves are looked at.
    """
    is_measure = not any(each.severity is Severity.DAMAGE for each in report.findings)
    producers = PartitionProducers(log)
    had_producers = files.exists(producers.path)
    producers.recover(files, point, now_ns)
    _check_delays(report, files, log, point, producers, is_measure=is_measure)
    if not files.exists(producers.path):
        what = f"the file of producers {_useless(producers.path, log) if had_producers else 'is missing'}"
        if is_measure and not _tells_producers(log, point):
            meaning = (
                f"what producers did cannot be found again in the log, which {_reach(log)}: a retry of what they sent "
                "may be stored twice"
            )
            report.findings.append(_lost(producers.path, what, meaning))
        elif had_producers:
            report.findings.append(_wrong(producers.path, what, "who published what is found in the log again"))
        return
    if not is_measure or log.options.compacted or log.cleaned_to:
        # Compaction takes away what the file was made from.
        return
    files.remove(producers.path)
    again = PartitionProducers(log)
    again.recover(files, point, now_ns)
    if _aborted(producers.state, log.start_offset) != _aborted(again.state, log.start_offset):
        report.findings.append(
            _wrong(producers.path, "does not tell of the same aborted messages as the log", "readers may see them")
        )


def _check_delays(
    report: PartitionReport,
    files: ScratchFiles,
    log: Log,
    point: RecoveryPoint | None,
    producers: PartitionProducers,
    *,
    is_measure: bool,
) -> None:
    delays = PartitionDelays(log, producers, lambda: log.durable_offset)
    had_delays = files.exists(delays.path)
    if had_delays:
        delays.recover(files, point)
    if not files.exists(delays.path):
        what = f"the file of delayed messages {_useless(delays.path, log) if had_delays else 'is missing'}"
        if is_measure and not _tells_delays(log, point):
            meaning = (
                f"which of the messages below offset {log.start_offset} still wait cannot be found in the log again: "
                "one that was delivered may come once more"
            )
            report.findings.append(_lost(delays.path, what, meaning))
        elif had_delays:
            report.findings.append(_wrong(delays.path, what, "which messages wait is found in the log again"))
        return
    if not is_measure:
        return
    pending = delays.pending.entries()[0]
    gone = [offset for offset in pending[pending < log.start_offset].tolist() if not log.has(offset)]
    if gone:
        report.findings.append(
            Finding(
                Severity.DAMAGE,
                delays.path,
                f"{len(gone)} messages wait for their time, the first of them at offset {gone[0]}, and are not in the "
                "log any more",
                "these delayed messages are lost",
                BACKUP,
                first_offset=gone[0],
                last_offset=gone[-1],
            )
        )
    files.remove(delays.path)
    again = PartitionDelays(log, producers, lambda: log.durable_offset)
    again.recover(files, point)
    # Of what retention has removed only the file may know the end.
    if not np.array_equal(_waiting(delays, log.start_offset), _waiting(again, log.start_offset)):
        report.findings.append(
            _wrong(
                delays.path,
                "does not name the messages that wait by the log",
                "a delayed message may come too late, twice or never",
            )
        )


def _tells_producers(log: Log, point: RecoveryPoint | None) -> bool:
    """Whether a log tells all about producers that a file of them told. If there was no file, it does: a broker writes
    one before it takes anything away that tells of a producer whom it knows."""
    if point is None or point.producers_from < 0:
        # Nobody noted who was known.
        return True
    first = point.producers_from
    return log.segments[0].base <= first and log.cleaned_to <= first and not _has_holes(log, first)


def _tells_delays(log: Log, point: RecoveryPoint | None) -> bool:
    """The same for what waits. What is left below the start was kept for this; what told of the end of some of it may
    be gone once a file knows that end. Compaction keeps it as long as it is needed, and leaves holes by itself."""
    if point is None or log.options.compacted or log.cleaned_to:
        return True
    return not _has_holes(log, point.delays_from)


def _has_holes(log: Log, first: int) -> bool:
    """Whether segments are gone between what is kept from ``first`` on and the start of the log."""
    for segment, following in pairwise(log.segments):
        if first < following.base <= log.start_offset:
            last = segment.last_offset()
            if last is not None and last + 1 < following.base:
                return True
    return False


def _reach(log: Log) -> str:
    if log.cleaned_to:
        return f"is compacted up to offset {log.cleaned_to}"
    return f"begins at offset {log.start_offset}"


def _waiting(delays: PartitionDelays, start: int) -> NDArray[np.int64]:
    offsets, dues = delays.pending.entries()
    order = np.argsort(offsets, kind="stable")
    chosen = order[offsets[order] >= start]
    return np.stack([offsets[chosen], dues[chosen]])


def _aborted(state: Producers, start: int) -> list[tuple[int, int]]:
    return [(max(first, start), end) for first, end in state.aborted.runs() if end > start]


def _useless(path: Path, log: Log) -> str:
    """What is wrong with a file that a start throws away."""
    try:
        read_whole(path)
    except CorruptData:
        return "is damaged: its checksum does not match its content"
    return f"cannot be read, or tells of more than the log, which ends at offset {log.end_offset}"


def _lost(path: Path, what: str, meaning: str) -> Finding:
    repair = Repair.SET_ASIDE if DISK.exists(path) else Repair.NOTHING
    return Finding(Severity.DAMAGE, path, what, meaning, _RESTORE_FILE, repair)


def _wrong(path: Path, what: str, meaning: str) -> Finding:
    return Finding(Severity.REPAIRABLE, path, what, meaning, _READ_AGAIN, Repair.SET_ASIDE)
