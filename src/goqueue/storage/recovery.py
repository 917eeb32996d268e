"""Opening a log: what is behind its recovery point is scanned, what is torn is cut, what is damaged is set aside."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from goqueue.model.logging import get_logger
from goqueue.storage.atomic import TEMPORARY
from goqueue.storage.checkpoint import RecoveryPoint
from goqueue.storage.files import Files
from goqueue.storage.index_file import POSITION, TIME_ENTRY, checksum_of
from goqueue.storage.log import Log, LogOptions
from goqueue.storage.open_files import OpenFiles
from goqueue.storage.repair import cut_tail, set_damage_aside
from goqueue.storage.scan import FrameScanner
from goqueue.storage.segment import Segment
from goqueue.storage.swap import COMPACTED, finish_swaps

log = get_logger(__name__)

_SEGMENT_NAME = re.compile(r"(\d{20})\.log")


def open_log(
    open_files: OpenFiles,
    folder: Path,
    options: LogOptions,
    now_ns: Callable[[], int],
    point: RecoveryPoint | None = None,
) -> Log:
    """Open the log in ``folder``, which may be empty or not exist yet."""
    files = open_files.disk
    files.make_dirs(folder)
    finish_swaps(files, folder)
    bases = _segment_bases(files, folder)
    start = point.start_offset if point else 0
    while len(bases) > 1 and bases[1] <= start:
        # Retention had moved the start past this segment and was stopped before it removed the files.
        _remove_segment(files, folder, bases.pop(0))
    if point is not None and not bases:
        # Files are made by the first append. If there was one, they are gone; their offsets are not given out again.
        bases = [point.base + point.count]
        if bases != [start]:
            log.error("segments are missing", folder=str(folder), offsets_lost_below=bases[0])
    elif point is not None and point.base not in bases:
        log.warning("recovery point names a segment that is not there; scanning everything", folder=str(folder))
        point = None
    segments: list[Segment] = []
    for base in bases or [0]:
        last = base == (bases or [0])[-1]
        if point is not None and base < point.base:
            segments.append(Segment(open_files, folder, base, now_ns, sealed=True))
            continue
        segment = Segment(open_files, folder, base, now_ns)
        _recover(segment, files, point if point and base == point.base else None, last=last)
        segments.append(segment)
        if last and segment.sealed:
            last_offset = segment.last_offset()
            end = base if last_offset is None else last_offset + 1
            if end == base:
                # Nothing of it was valid, and the new segment takes its name.
                segments.pop().close()
            segments.append(Segment(open_files, folder, end, now_ns))
    return Log(
        open_files,
        folder,
        options,
        now_ns,
        segments,
        start_offset=start if point else segments[0].base,
        cleaned_to=point.cleaned_to if point else 0,
    )


def _recover(segment: Segment, files: Files, point: RecoveryPoint | None, *, last: bool) -> None:
    if not files.exists(segment.log_path):
        return
    if point is not None and not _resume(segment, files, point):
        point = None
    size = files.size(segment.log_path)
    if point is not None and size == point.size and last:
        return
    scanner = FrameScanner(files.open(segment.log_path), dense=last)
    found = scanner.scan(segment.size, segment.base + segment.count)
    if not found.damage and last:
        found.drop_open_batch()
        cut_tail(files, segment.log_path, found.end)
    elif found.damage or found.end != size:
        # Frames that are valid follow the damage, here or in the next segment: this was no torn write.
        set_damage_aside(files, segment.log_path, found)
        segment.size = segment.count = 0
        found = FrameScanner(files.open(segment.log_path), dense=False).scan(0, segment.base)
        last = False
    segment.install(found, after=segment.count)
    if not last:
        segment.seal()


def _resume(segment: Segment, files: Files, point: RecoveryPoint) -> bool:
    """Take the point's word for the first part of a segment, if the files agree with it."""
    handles = segment.files()
    index_bytes, time_bytes = point.count * POSITION.itemsize, point.time_entries * TIME_ENTRY.itemsize
    if (
        files.size(segment.log_path) < point.size
        or handles.positions.size() < index_bytes
        or handles.times.size() < time_bytes
        or checksum_of(handles.positions, index_bytes) != point.index_checksum
        or checksum_of(handles.times, time_bytes) != point.time_checksum
    ):
        log.warning("files do not agree with their recovery point, scanning them", segment=str(segment.log_path))
        return False
    segment.restore(point)
    return True


def _segment_bases(files: Files, folder: Path) -> list[int]:
    bases = []
    for name in files.list_dir(folder):
        if match := _SEGMENT_NAME.fullmatch(name):
            bases.append(int(match[1]))
        elif name.endswith((TEMPORARY, COMPACTED)):
            files.remove(folder / name)
    return sorted(bases)


def _remove_segment(files: Files, folder: Path, base: int) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        files.remove(folder / f"{base:020d}{suffix}")
