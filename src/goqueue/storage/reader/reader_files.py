"""Read-only access to a partition's files: lists its segments and opens them.

A broker may be running. Files may vanish between listing and opening them, or be replaced by compaction: code that
detects this (``Vanished``) lists the files again.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from goqueue.model.errors import CorruptData, TopicNotFound
from goqueue.storage.files.atomic import read_checked
from goqueue.storage.files.checkpoint import CheckpointFile, RecoveryPoint
from goqueue.storage.files.files import OsFile, OsFiles
from goqueue.storage.log.scan import MOST_OFFSETS
from goqueue.storage.log.swap import COMPACTED, MANIFEST, Swap
from goqueue.storage.log.truncation import CUT, Cut

_SEGMENT_NAME = re.compile(r"(\d{20})\.log")
_MOST_LISTINGS = 10

Decision = TypeVar("Decision", Swap, Cut)
Signature = tuple[int, int, int]
"""Identity of a file that is only ever replaced as a whole; it changes with the content."""


class Vanished(Exception):
    """A file no longer exists, or was replaced."""


def refuse(_: object, *arguments: Any, **__: Any) -> NoReturn:
    """What each method does that would change a file."""
    raise PermissionError(f"{arguments[0]} is only looked at and must not be changed")


class ReadOnlyFiles(OsFiles):
    """The real disk without any operation that changes it."""

    def open(self, path: Path, *, create: bool = False) -> OsFile:
        if create:
            refuse(self, path)
        return OsFile(self._beneath.open(path, os.O_RDONLY))

    def make_dirs(self, path: Path) -> None:
        refuse(self, path)

    rename = remove = remove_tree = close_to_others = lock = refuse


DISK = ReadOnlyFiles()


def signature(path: Path) -> Signature | None:
    """Signature of a file; ``None`` if it does not exist."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_whole(path: Path) -> bytes | None:
    """Payload of an atomically replaced file; ``None`` if it does not exist, ``CorruptData`` if it is damaged."""
    try:
        return read_checked(DISK, path)
    except FileNotFoundError:
        return None


class Points:
    """Recovery points of all logs of a data folder, read again when the file changes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = root / "checkpoint"
        self._seen: Signature | None = None
        self._points: dict[str, RecoveryPoint] = {}

    def of(self, folder: Path) -> RecoveryPoint | None:
        now = signature(self._path)
        if now != self._seen:
            self._points = CheckpointFile(DISK, self._path).load() if now else {}
            self._seen = now
        return self._points.get(str(folder.relative_to(self._root)))


def points_for(folder: Path) -> Points:
    """Recovery points for a partition's folder: ``{root}/logs/{topic}/{partition}``."""
    return Points(folder.parents[2])


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """A segment as listed by the file names in the folder."""

    folder: Path
    base: int
    below: int
    """Base offset of the next segment."""
    is_last: bool
    is_swapped: bool
    """Whether a committed compaction replaces this segment, and may not have renamed the files yet."""
    size: int = 0
    """Size of the log file at the time of listing."""

    def open(self, suffix: str) -> OsFile:
        """Open a file of the segment; raises ``Vanished`` if it does not exist."""
        for path in self._paths(suffix):
            try:
                return DISK.open(path)
            except FileNotFoundError:
                continue
        raise Vanished(f"{self.folder}/{self.base:020d}{suffix}")

    def find(self, suffix: str) -> OsFile | None:
        """The same; ``None`` if the file does not exist."""
        try:
            return self.open(suffix)
        except Vanished:
            return None

    def stat(self, suffix: str) -> os.stat_result | None:
        """Present status of a file of the segment."""
        for path in self._paths(suffix):
            try:
                return path.stat()
            except FileNotFoundError:
                continue
        return None

    def _paths(self, suffix: str) -> list[Path]:
        name = self.folder / f"{self.base:020d}{suffix}"
        return [name.with_name(name.name + COMPACTED), name] if self.is_swapped else [name]

    def still_is(self, suffix: str, file: OsFile) -> bool:
        """Whether an opened file still is the segment's current file."""
        now = self.stat(suffix)
        return now is not None and os.path.samestat(now, os.fstat(file.fd))

    def is_still_swapped(self) -> bool:
        return not self.is_swapped or (self.folder / f"{self.base:020d}{MANIFEST}").exists()


@dataclass(frozen=True, slots=True)
class Listing:
    """Segments of a partition that are not empty, and the base of the last segment, which may be empty."""

    segments: list[SegmentPlace]
    last_base: int | None

    def first_base(self) -> int | None:
        return self.segments[0].base if self.segments else self.last_base

    def next_from(self, offset: int) -> SegmentPlace | None:
        """The segment that contains an offset, or the next one after it."""
        return next(iter(self.between(offset, MOST_OFFSETS)), None)

    def between(self, low: int, high: int) -> list[SegmentPlace]:
        """Segments that may contain offsets from ``low`` up to, but not including, ``high``."""
        first = bisect_right(self.segments, low, key=lambda each: each.below)
        return self.segments[first : bisect_left(self.segments, high, key=lambda each: each.base)]


def list_segments(folder: Path) -> Listing:
    """List the segments by the present file names. A compaction or a cut that was decided counts as carried out, but
    that what is cut off inside of a segment is there until it is."""
    for _ in range(_MOST_LISTINGS):
        listing, is_complete = _list_segments(folder)
        if is_complete:
            break
    return listing


def _list_segments(folder: Path) -> tuple[Listing, bool]:
    """Also returns whether all files still existed after their names were read."""
    names = names_in(folder)
    bases = {int(match[1]) for name in names if (match := _SEGMENT_NAME.fullmatch(name))}
    swapped: set[int] = set()
    for swap in _decided(folder, names, MANIFEST, Swap):
        bases.difference_update(swap.bases)
        if not swap.empty:
            bases.add(swap.bases[0])
            swapped.add(swap.bases[0])
    for cut in _decided(folder, names, CUT, Cut):
        bases = {base for base in bases if base < cut.base or (base == cut.base and cut.size)}
    ordered = sorted(bases)
    is_complete = True
    found: list[SegmentPlace] = []
    for base, below in zip(ordered, [*ordered[1:], MOST_OFFSETS][: len(ordered)], strict=True):
        place = SegmentPlace(folder, base, below, base == ordered[-1], base in swapped)
        stat = place.stat(".log")
        is_complete = is_complete and stat is not None
        if stat is not None and stat.st_size:
            found.append(replace(place, size=stat.st_size))
    if found and not found[-1].is_last:
        # The segment that follows is empty. If it is left from a failed roll, this segment extends beyond its base.
        found[-1] = replace(found[-1], below=MOST_OFFSETS)
    return Listing(found, ordered[-1] if ordered else None), is_complete


def names_in(folder: Path) -> list[str]:
    try:
        return DISK.list_dir(folder)
    except FileNotFoundError:
        raise TopicNotFound(
            f"{folder} is not there: the topic was deleted, or has fewer partitions, or this is no partition's folder"
        ) from None


def _decided(folder: Path, names: list[str], suffix: str, kind: type[Decision]) -> list[Decision]:
    """What is decided by manifests, and may be carried out or not."""
    found = []
    for name in names:
        if not name.endswith(suffix):
            continue
        try:
            payload = read_whole(folder / name)
        except CorruptData:
            # As when a broker starts: the segments stay as they are.
            continue
        if payload is not None:
            found.append(msgspec.json.decode(payload, type=kind))
    return found
