"""Reads the frames of one partition from its files."""

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
"""Limit on listing a folder again after files vanished; beyond it, the read fails."""
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
    """Visible messages of the partition in ``folder`` from ``low`` up to, but not including, ``high``, in order.

    Yields runs of about ``max_bytes``, each from one segment. Checksums are not verified; a frame whose checksum fails
    stands for a message that was lost and not acknowledged. Control and delayed records are omitted, and so are the
    offsets in ``aborted``, unless ``uncommitted`` is set. The caller takes ``high`` and ``aborted`` from a
    ``LogReader``, or from a broker. Raises ``OffsetOutOfRange`` if retention has removed part of the range.
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
    """Offset of the earliest message that belongs to the log."""
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
    """All frames between two offsets, visible or not. ``check`` is called after every listing with the next offset;
    it returns the log's recovery point, or raises. With ``with_lost``, lost messages that were not acknowledged are
    included as frames that fail their checksums."""
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
            # All of a segment is below the base of the next one, whatever offsets its last frames state.
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
