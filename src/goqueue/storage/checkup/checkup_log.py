"""Check of one partition's log: its segments, the gaps between them, and what a start would miss."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from goqueue.storage.checkup.checkup_segment import SegmentCheck, check_segment
from goqueue.storage.checkup.findings import PartitionReport, Severity, damage, note
from goqueue.storage.files.atomic import TEMPORARY
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.lost import FILE_NAME as LOST
from goqueue.storage.log.lost import Lost
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log
from goqueue.storage.log.scan import MOST_OFFSETS
from goqueue.storage.log.swap import COMPACTED, MANIFEST
from goqueue.storage.log.truncation import CUT
from goqueue.storage.reader.reader_files import DISK, Listing, list_segments
from goqueue.storage.reader.reader_runs import start_of
from goqueue.storage.reader.scratch import ScratchFiles

_DAMAGED = re.compile(r"(\d{20})\.damaged-\d+-\d+(-\d+)?")
_INDEX = re.compile(r"(\d{20})\.index")
_MOST_OPEN_FILES = 200
_MOST_GAPS = 20
_ACCEPT = (
    "Restore the folder from a backup if the messages matter. If they do not: goqueue damage acknowledge TOPIC, while "
    "the broker runs."
)
DELAYS = "delays"
UNLESS_COMPACTED = ", unless the topic is compacted by the broker's configuration (then give that: --config)"


class Stopped(Exception):
    """The check-up was asked to stop."""


@contextmanager
def as_started(
    folder: Path, point: RecoveryPoint | None, options: LogOptions, now_ns: Callable[[], int]
) -> Iterator[tuple[ScratchFiles, Log]]:
    """The log as a start would open it, over a file system that leaves the disk unchanged."""
    with tempfile.TemporaryDirectory(prefix="goqueue-doctor-") as scratch:
        files = ScratchFiles(Path(scratch))
        opened = open_log(OpenFiles(files, _MOST_OPEN_FILES), folder, options, now_ns, point)
        try:
            yield files, opened
        finally:
            opened.close()


def check_log(
    report: PartitionReport,
    point: RecoveryPoint | None,
    *,
    may_have_gaps: bool,
    quick: bool,
    on_segment: Callable[[int], None],
    is_guess: bool = False,
) -> bool:
    """Check every segment. ``may_have_gaps``: compaction removes messages, so missing offsets are no loss.
    ``is_guess``: whether the topic is compacted comes from a configuration that may differ from the broker's.

    ``on_segment`` is called with the size of each segment after its check, and may raise ``Stopped``. Returns whether
    the log is compacted, as far as that can be determined.
    """
    folder = report.folder
    listing = list_segments(folder)
    names = DISK.list_dir(folder)
    checks: list[SegmentCheck] = []
    for place in listing.segments:
        ends_log = place is listing.segments[-1]
        made = check_segment(place, point, ends_log=ends_log, quick=quick)
        checks.append(made)
        report.segments += 1
        report.messages += made.count
        report.size_bytes += made.size
        report.findings += made.findings
        on_segment(made.size)
    _check_leftovers(report, names)
    _check_lost(report)
    gaps = _Gaps(report, listing, names, point, may_have_gaps=may_have_gaps, is_guess=is_guess)
    is_compacted = may_have_gaps or (is_guess and gaps.look_compacted(checks))
    if not may_have_gaps:
        gaps.check(checks)
    gaps.check_indexes_without_log()
    return is_compacted


def _check_leftovers(report: PartitionReport, names: list[str]) -> None:
    for name in sorted(names):
        path = report.folder / name
        if name.endswith(MANIFEST):
            report.findings.append(
                note(path, "a compaction was decided and not finished", "the next start finishes it")
            )
        elif name.endswith(CUT):
            report.findings.append(note(path, "a cut was decided and not finished", "the next start finishes it"))
        elif name.endswith((TEMPORARY, COMPACTED)):
            report.findings.append(note(path, "is left over from work that was interrupted", "nobody reads it"))
        elif _DAMAGED.fullmatch(name) or name.endswith(".damaged"):
            what = f"{path.stat().st_size} bytes were set aside here because they were damaged or cut off"
            advice = "Look at it (goqueue dump), and delete it when you do not need it."
            report.findings.append(note(path, what, "nobody reads it", advice))


def _check_lost(report: PartitionReport) -> None:
    """Report losses recorded earlier. They stay until an operator accepts them, even if no damage is left."""
    lost = Lost(DISK, report.folder)
    path = report.folder / LOST
    if lost.is_unreadable:
        what = "the file that tells what was lost is damaged"
        report.findings.append(damage(path, what, "what nobody has acknowledged is not known any more", _ACCEPT))
    for each in lost.ranges:
        if each.acknowledged_ns:
            meaning = "its messages were damaged or gone, and somebody has acknowledged that"
            report.findings.append(note(path, f"{each.shown()} lost", meaning, "Nothing needs to be done."))
            continue
        meaning = "the messages were damaged or gone when somebody looked; a broker is degraded until it is accepted"
        lost_range = damage(path, f"{each.shown()} lost", meaning, _ACCEPT, first=each.first, last=each.end - 1)
        report.findings.append(lost_range)


class _Gaps:
    """Offsets missing from the log."""

    def __init__(
        self,
        report: PartitionReport,
        listing: Listing,
        names: list[str],
        point: RecoveryPoint | None,
        *,
        may_have_gaps: bool,
        is_guess: bool,
    ) -> None:
        self._report = report
        self._is_guess = is_guess
        self._may_have_gaps = may_have_gaps
        self._swaps = any(name.endswith((MANIFEST, CUT)) for name in names)
        self._listing = listing
        self._point = point
        self._start = start_of(listing, point)
        self._judged_from = max(self._start, 0 if point is None else point.cleaned_to)
        self._set_aside = {int(match[1]) for name in names if (match := _DAMAGED.fullmatch(name))}
        self._indexed = {int(match[1]) for name in names if (match := _INDEX.fullmatch(name))}
        # Without a recovery point, the log start is unknown: earlier files may be kept for delayed messages only.
        self._start_is_known = point is not None or DELAYS not in names
        self._found = 0

    def look_compacted(self, checks: list[SegmentCheck]) -> bool:
        """Whether segments show signs of compaction, although the settings given here do not enable it. Then gaps up
        to the last of these segments, or directly after it, are not reported."""
        at = max(
            (at for at, made in enumerate(checks) if made.base not in self._set_aside and made.lacks_offsets()),
            default=None,
        )
        if at is None:
            return False
        behind = checks[at + 1].base if at + 1 < len(checks) else self._listing.last_base or 0
        self._judged_from = max(self._judged_from, behind)
        self._may_have_gaps = True
        self._report.findings.append(
            note(
                self._report.folder,
                "the log is compacted, and the topic itself has no such setting",
                f"whether messages below offset {behind} are lost cannot be told",
                "Give the broker's configuration (--config): its defaults for topics are meant to say so.",
            )
        )
        return True

    def check(self, checks: list[SegmentCheck]) -> None:
        first = self._listing.first_base()
        if checks and self._point is not None and first is not None and first > self._start:
            self._gap(checks[0].path, self._start, first, is_explained=False)
        for made in checks:
            for low, high in made.gaps:
                self._gap(made.path, low, high, is_explained=made.base in self._set_aside)
        ends = [*(made.base for made in checks[1:]), self._listing.last_base or 0]
        for made, following in zip(checks, ends, strict=False):
            lost_already = any(each.severity is Severity.DAMAGE for each in made.findings)
            if following > made.next_offset and not lost_already:
                # Of a segment in between, only the quarantined file may be left.
                explained = any(made.base <= base < following for base in self._set_aside)
                self._gap(made.path, made.next_offset, following, is_explained=explained)
        if self._found > _MOST_GAPS:
            what = f"{self._found - _MOST_GAPS} more ranges of offsets are missing"
            self._report.findings.append(damage(self._report.folder, what, self._loss()))

    def _gap(self, path: Path, low: int, high: int, *, is_explained: bool) -> None:
        low = max(low, self._judged_from)
        if low >= high:
            return
        which = f"offset {low} is" if high == low + 1 else f"offsets {low} to {high - 1} are"
        if is_explained or not self._start_is_known:
            set_aside, removed = "its bytes were damaged, and set aside", "retention may have removed what was there"
            meaning = set_aside if is_explained else removed
            self._report.findings.append(note(path, f"{which} missing", meaning, "Nothing needs to be done."))
            return
        self._found += 1
        if self._found <= _MOST_GAPS:
            self._report.findings.append(damage(path, f"{which} missing", self._loss(), first=low, last=high - 1))

    def _loss(self) -> str:
        return f"these messages are lost{UNLESS_COMPACTED if self._is_guess else ''}"

    def check_indexes_without_log(self) -> None:
        """Report index files without a log file. That is removed first, so an interrupted removal leaves its index."""
        there = {each.base for each in self._listing.segments}
        last = max(there, default=-1)
        for base in sorted(self._indexed - there):
            path = self._report.folder / f"{base:020d}.log"
            index = path.with_suffix(".index")
            if DISK.exists(path) or not (size := index.stat().st_size):
                continue
            if base < self._start or self._swaps:
                what = "is the index of a segment that was removed"
                self._report.findings.append(note(index, what, "nobody reads it", "You may delete it."))
            elif base > last or self._may_have_gaps:
                what = f"the log file is gone, and its index (of {size} bytes) is there"
                lost = damage(path, what, f"what was stored from offset {base} on is lost", first=base)
                self._report.findings.append(lost)


def check_start(report: PartitionReport, opened: Log, point: RecoveryPoint | None, *, is_guess: bool = False) -> None:
    """Report losses that a start would find, unless they are reported already. ``is_guess``: as for ``check_log``."""
    if opened.missing is None or any(each.severity is Severity.DAMAGE for each in report.findings):
        return
    end = point.base + point.count if point is not None else MOST_OFFSETS
    meaning = f"a recovery point says that everything below offset {end} was on the disk: it is lost"
    report.findings.append(damage(report.folder, opened.missing, meaning + (UNLESS_COMPACTED if is_guess else "")))
