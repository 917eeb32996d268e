"""Opening a log: what is behind its recovery point is scanned, what is torn is cut, what is damaged is set aside."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from goqueue.model.logging import get_logger
from goqueue.storage.files.atomic import TEMPORARY, make_folder
from goqueue.storage.files.checkpoint import RecoveryPoint, durable_bytes
from goqueue.storage.files.files import Files
from goqueue.storage.log.index_file import LANE_ENTRY, POSITION, TIME_ENTRY, begins_with
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.lost import Lost, record_lost
from goqueue.storage.log.open_files import SUFFIXES, OpenFiles, bases_in
from goqueue.storage.log.repair import cut_tail, make_whole
from goqueue.storage.log.scan import MOST_OFFSETS, FrameScanner
from goqueue.storage.log.segment import Segment
from goqueue.storage.log.swap import COMPACTED, MANIFEST, finish_swaps
from goqueue.storage.log.truncation import CUT, finish_cuts

log = get_logger(__name__)


def open_log(
    open_files: OpenFiles,
    folder: Path,
    options: LogOptions,
    now_ns: Callable[[], int],
    point: RecoveryPoint | None = None,
) -> Log:
    """Open the log in ``folder``, which may be empty or not exist yet."""
    files = open_files.disk
    make_folder(files, folder)
    bases = bases_in(_settled_names(files, folder))
    start = point.start_offset if point else None
    while point is not None and len(bases) > 1 and bases[1] <= min(point.start_offset, point.delays_from):
        # Retention had moved the start past this segment and was stopped before it removed the files.
        _remove_segment(files, folder, bases.pop(0))
    given_out = point.base + point.count if point else 0
    if point is not None and point.base not in bases and (bases or given_out != start):
        # Not an error in itself: files are made by the first append, and compaction joins segments.
        log.warning("recovery point names a segment that is not there; scanning everything", folder=str(folder))
    lost = Lost(files, folder)
    missing = _missing_segments(bases, point, options)
    if missing is not None and point is not None:
        sealed = [Segment(open_files, folder, base, now_ns, sealed=True, lost=lost) for base in bases]
        _record_gaps(lost, sealed, point, now_ns)
    segments: list[Segment] = []
    scanned = False
    trusted_below = point.base if point is not None and point.base in bases else 0
    for base, below in zip(bases, _limits(files, folder, bases), strict=True):
        if base < trusted_below:
            segments.append(Segment(open_files, folder, base, now_ns, sealed=True, below=below, lost=lost))
            continue
        segment = Segment(open_files, folder, base, now_ns, below=below)
        last = base == bases[-1]
        if last and segments and _is_stray(files, segment, segments[-1]):
            _remove_segment(files, folder, base)
            continue
        scanned |= _recover(segment, files, point if point and base == point.base else None, lost, now_ns, last=last)
        segments.append(segment)
    if scanned:
        # A process that was killed may have left names in memory only; from here on the segments count as durable.
        files.sync_dir(folder)
    needed_from = min(point.start_offset, point.delays_from) if point else 0
    missing = _end_with_active(segments, open_files, folder, now_ns, given_out, needed_from, lost) or missing
    for segment, following in pairwise(segments):
        segment.below = following.base
    opened = Log(
        open_files,
        folder,
        options,
        now_ns,
        segments,
        start_offset=segments[0].base if start is None else start,
        cleaned_to=point.cleaned_to if point else 0,
        lost=lost,
    )
    if missing is not None:
        opened.missing = missing
        log.error("messages are missing", folder=str(folder), what=missing)
    return opened


def _missing_segments(bases: list[int], point: RecoveryPoint | None, options: LogOptions) -> str | None:
    """What can be told without opening any file. Compaction may join segments, so its logs are not judged."""
    if point is None or options.compacted or point.cleaned_to or not point.segments:
        return None
    found = sum(point.start_base <= base <= point.base for base in bases)
    if found >= point.segments:
        return None
    return f"{point.segments - found} of {point.segments} segments below offset {point.base + point.count} are gone"


def _record_gaps(lost: Lost, segments: list[Segment], point: RecoveryPoint, now_ns: Callable[[], int]) -> None:
    """The offsets of segments that are gone: those that none of the others has."""
    at = point.start_offset
    for segment in segments:
        if at < segment.base <= point.base:
            lost.record(at, segment.base, now_ns())
        if segment.base < point.base and (last := segment.last_offset()) is not None:
            at = max(at, last + 1)


def _end_with_active(
    segments: list[Segment],
    open_files: OpenFiles,
    folder: Path,
    now_ns: Callable[[], int],
    given_out: int,
    needed_from: int,
    lost: Lost,
) -> str | None:
    """Make sure that the last segment takes appends, and gives out no offset that a recovery point has seen used."""
    if not segments:
        segments.append(Segment(open_files, folder, max(given_out, lost.end), now_ns))
        if given_out <= needed_from:
            # Nothing was needed any more: retention has removed it, and an empty segment's name was not on the disk.
            return None
        lost.record(needed_from, given_out, now_ns())
        return f"everything below offset {given_out} is gone"
    last = segments[-1]
    last_offset = last.last_offset() if last.sealed else last.base + last.count - 1
    end = last.base if last_offset is None else last_offset + 1
    if not last.sealed and end >= max(given_out, lost.end):
        return None
    missing = None
    # What was lost at the end is not given out again either.
    end = max(end, lost.end)
    if end < given_out:
        lost.record(end, given_out, now_ns())
        missing = f"offsets {end} to {given_out - 1}, at the end, are gone"
        end = given_out
    if not last.sealed:
        last.seal()
    if end == last.base:
        # Nothing of it was valid, and the new segment takes its name.
        segments.pop().close()
    segments.append(Segment(open_files, folder, end, now_ns))
    # Recovery takes the last segment for one without gaps: from now on that must not be the one before.
    segments[-1].files()
    return missing


def _limits(files: Files, folder: Path, bases: list[int]) -> list[int]:
    """For each segment the offset under which all of its own lie."""
    limits = [*bases[1:], MOST_OFFSETS]
    if len(bases) > 1 and files.size(folder / f"{bases[-1]:020d}.log") == 0:
        # It may be a stray; then the one before goes on beyond it.
        limits[-2] = MOST_OFFSETS
    return limits[: len(bases)]


def _is_stray(files: Files, segment: Segment, before: Segment) -> bool:
    """Whether this is the empty file of a segment that could not be begun, after which the one before went on."""
    if before.sealed and files.size(segment.log_path) == 0 and before.count:
        end = before.last_offset()
        return end is not None and end >= segment.base
    return False


def _recover(
    segment: Segment, files: Files, point: RecoveryPoint | None, lost: Lost, now_ns: Callable[[], int], *, last: bool
) -> bool:
    """Make a segment whole and its content durable. Returns whether it had to be looked at."""
    size = files.size(segment.log_path)
    # One that was closed may have gaps, and is the last only because the file of the next one is gone.
    last = last and not segment.has_footer(size)
    if point is not None and _resume(segment, files, point, last=last) and size == point.size and last:
        return False
    file = files.open(segment.log_path)
    durable_to = durable_bytes(segment.base, point)
    found = FrameScanner(file, dense=last, below=segment.below).scan(
        segment.size, segment.base + segment.count, segment.files().positions, segment.count, durable_to=durable_to
    )
    if segment.count and (found.damage or (found.end != size and not last)):
        # What the point vouches for is rewritten with the rest, so it must be looked at too.
        segment.size = segment.count = 0
        found = FrameScanner(file, dense=last, below=segment.below).scan(0, segment.base, durable_to=durable_to)
    if last or found.end != size or not segment.has_footer(size):
        # Behind a footer a batch may be incomplete because compaction took its other messages.
        found.drop_open_batch()
    # Before anything is taken out: from then on only this tells of it.
    record_lost(lost, found, size, segment.below, durable_to, now_ns())
    if last and not found.damage:
        cut_tail(files, segment.log_path, found.end)
    elif found.damage or found.end != size:
        # Frames that are valid follow the damage, here or in the next segment: this was no torn write.
        if last:
            # There will be a gap, so another segment must be the last one before that is so.
            files.open(segment.log_path.with_name(f"{found.next_offset:020d}.log"), create=True)
        found = make_whole(files, segment.log_path, found, segment.base, segment.below)
        segment.close()
        segment.size = segment.count = 0
        last = False
    segment.install(found, after=segment.count)
    if not last:
        segment.seal()
    # A process that was killed may have left this in the page cache only.
    segment.files().log.sync()
    return True


def _resume(segment: Segment, files: Files, point: RecoveryPoint, *, last: bool) -> bool:
    """Take the point's word for the first part of a segment, if the files agree with it."""
    handles = segment.files()
    if (
        files.size(segment.log_path) < point.size
        # There was no index of lanes yet when this was written.
        or (point.count and not point.lane_entries)
        or not begins_with(handles.positions, POSITION, point.count, point.index_checksum)
        or not begins_with(handles.times, TIME_ENTRY, point.time_entries, point.time_checksum)
        or not begins_with(handles.lanes, LANE_ENTRY, point.lane_entries, point.lane_checksum)
        # Frames of equal size look alike to the index after compaction has dropped some of them.
        or (not last and point.count and segment.said_offset(point.count - 1) != point.base + point.count - 1)
    ):
        log.warning("files do not agree with their recovery point, scanning them", segment=str(segment.log_path))
        return False
    segment.restore(point)
    return True


def _settled_names(files: Files, folder: Path) -> list[str]:
    """What is in the folder once everything is finished that was decided and interrupted."""
    names = files.list_dir(folder)
    if any(name.endswith((MANIFEST, CUT)) for name in names):
        # A process that was killed may have left it in memory only: what is done must not outlast it.
        files.sync_dir(folder)
        finish_swaps(files, folder, names)
        finish_cuts(files, folder, names)
        names = files.list_dir(folder)
    for name in names:
        if name.endswith((TEMPORARY, COMPACTED)):
            files.remove(folder / name)
    return names


def _remove_segment(files: Files, folder: Path, base: int) -> None:
    for suffix in SUFFIXES:
        files.remove(folder / f"{base:020d}{suffix}")
