"""Reading the frames of one partition from its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from goqueue.model.errors import OffsetOutOfRange, StorageFailed
from goqueue.model.offset_runs import OffsetRuns
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.log.lost import Lost, lost_frames
from goqueue.storage.reader.reader_files import DISK, Listing, Vanished, list_segments, points_for
from goqueue.storage.reader.reader_segment import SegmentView
from goqueue.wire.batch import FrameRun, keep_frames
from goqueue.wire.frame import HEADER_SIZE, INVISIBLE
from goqueue.wire.producer_frames import aborted_among

RUN_BYTES = 4 << 20
MOST_LOOKS = 100
"""So often the names in a folder are read again because files have vanished before this is taken for an error."""
_INVISIBLE = np.uint8(INVISIBLE)


def read_runs(
    folder: Path,
    low: int,
    high: int,
    *,
    aborted: Sequence[tuple[int, int]] = (),
    uncommitted: bool = False,
    max_bytes: int = RUN_BYTES,
) -> Iterator[FrameRun]:
    """The messages of the partition in ``folder`` from ``low`` to before ``high`` that readers see, in order.

    In runs of about ``max_bytes``, each from one segment. Checksums are not verified; frames that fail them stand for
    what is lost and not acknowledged. Control and delayed records are left out, and so are the offsets in ``aborted``,
    unless what is not committed is wanted as well. Whoever plans a read takes ``high`` and ``aborted`` from a
    ``LogReader``, or from a broker. Raises ``OffsetOutOfRange`` if retention
    has removed something of it.
    """
    points = points_for(folder)
    never_seen = OffsetRuns(() if uncommitted else aborted)

    def check(at: int, listing: Listing) -> RecoveryPoint | None:
        point = points.of(folder)
        start = start_of(listing, point)
        if at < start:
            raise OffsetOutOfRange(
                f"offset {at} of {folder.parent.name}, partition {folder.name}, is not there any more; the earliest "
                f"is {start} now"
            )
        return point

    for run in every_run(folder, low, high, check, max_bytes, with_lost=True):
        hidden = run.flags() & _INVISIBLE != 0
        if len(never_seen) and (among := aborted_among(never_seen, run)) is not None:
            hidden |= among
        if not hidden.any():
            yield run
        elif not hidden.all():
            yield keep_frames(run, ~hidden)


def start_of(listing: Listing, point: RecoveryPoint | None) -> int:
    """The offset of the earliest message that is meant to be there."""
    return point.start_offset if point is not None else listing.first_base() or 0


def every_run(
    folder: Path,
    low: int,
    high: int,
    check: Callable[[int, Listing], RecoveryPoint | None],
    max_bytes: int,
    *,
    with_lost: bool = False,
) -> Iterator[FrameRun]:
    """All frames between two offsets, seen by readers or not. ``check`` is called whenever the names were read, with
    the offset that comes next; it tells the log's recovery point, or raises. ``with_lost``: frames that fail their
    checksums stand for what is lost, unless it was acknowledged."""
    at, looks = low, 0
    listing = None
    while at < high:
        if listing is None:
            listing = list_segments(folder)
            point = check(at, listing)
            lost = Lost(DISK, folder)
        gap = lost.next_open(at) if with_lost else None
        stop = high if gap is None else min(high, max(at, gap.first))
        if gap is not None and stop == at:
            stop = min(high, gap.end, at + max(1, max_bytes // HEADER_SIZE))
            yield lost_frames(gap, at, stop)
            at = stop
            continue
        place = listing.next_from(at)
        if place is None or place.base >= stop:
            if stop == high:
                return
            at = stop
            continue
        try:
            view = SegmentView(place, point)
            if with_lost and not all(map(lost.has_all, view.lost)):
                for found in view.lost:
                    lost.note(*found)
                continue
            # All of a segment lies below the next one, whatever its last frames say.
            first, until = view.place_of(at), view.count if stop >= place.below else view.place_of(stop)
            while first < until:
                run = view.load(first, until, max_bytes)
                at, first = run.offset_at(-1) + 1, first + len(run)
                yield run
        except Vanished as error:
            looks += 1
            if looks > MOST_LOOKS:
                raise StorageFailed(f"{folder} changes faster than it can be read: {error}") from error
            listing = None
            continue
        at = max(at, min(place.below, stop))
